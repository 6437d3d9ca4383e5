// Package supervisor is what runs commands inside a container: the first process
// of its PID namespace, and a shepherd for each command. It has no capability and
// is the same user as the programs, so the kernel's own rules are what keeps it
// apart from them: no signal from inside ends or stops the first process of a PID
// namespace, and neither it nor a shepherd can be traced or looked into, because
// they are not dumpable.
//
// A shepherd is the reaper of all that its command starts: however a process
// detaches itself, it stays below the shepherd. A shepherd can be killed by the
// programs, being their user. Then what it herded falls to the first process, and
// is killed: whatever is not below a live shepherd belongs to nobody.
//
// The execution service speaks to the first process over one connection, made
// before anything hostile runs. When it closes, the first process ends, and the
// kernel ends everything else with it.
package supervisor

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// What a request asks for.
const (
	OpStart  = "start"  // Argv, Env, Dir, TTY, three files: started or refused, and later ended
	OpSignal = "signal" // Signal to the first process of a command
	OpKill   = "kill"   // all processes of a command
	OpUsage  = "usage"  // answered by usage
)

// Request is from the execution service.
type Request struct {
	Op string
	// Command is the number of a command, or of a question.
	Command   uint64
	Argv, Env [][]byte `json:",omitempty"`
	Dir       []byte   `json:",omitempty"`
	TTY       bool     `json:",omitempty"`
	Signal    int      `json:",omitempty"`
}

// What an event says.
const (
	EventReady   = "ready"   // commands can be started
	EventStarted = "started" // the program runs
	EventRefused = "refused" // it could not be started, for Reason
	EventEnded   = "ended"   // with Status, and nothing is left of it
	EventUsage   = "usage"
)

// Event is from the supervisor.
type Event struct {
	Op      string
	Command uint64
	Reason  string `json:",omitempty"`
	// Status is a wait status of the first process.
	Status uint32  `json:",omitempty"`
	Places []Place `json:",omitempty"`
	// Processes counts those of all commands.
	Processes int64 `json:",omitempty"`
}

// Place is what a writable place holds.
type Place struct{ Used, UsedInodes int64 }

const (
	headerBytes = 4
	// maxRequest is above what the port lets through, encoded.
	maxRequest = 4 << 20
	// maxEvent is what the service reads at once, whatever the container says.
	maxEvent = 64 << 10
	// files are passed with a start: standard input, output and error.
	files = 3
)

// Send writes a request, with the files of a start.
func Send(conn *net.UnixConn, r Request, pass ...*os.File) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(data) > maxRequest {
		return fmt.Errorf("a request of %d bytes is more than %d", len(data), maxRequest)
	}
	var rights []byte
	if len(pass) > 0 {
		fds := make([]int, len(pass))
		for i, f := range pass {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix(header(data), rights, nil); err != nil {
		return err
	}
	_, err = conn.Write(data)
	return err
}

// ReadEvent reads what the supervisor says. Files are not taken from it.
func ReadEvent(r io.Reader) (Event, error) {
	var e Event
	var head [headerBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return e, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxEvent {
		return e, fmt.Errorf("an event of %d bytes is more than %d", n, maxEvent)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return e, err
	}
	err := json.Unmarshal(data, &e)
	return e, err
}

func header(data []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(len(data)))
}

func sendEvent(w io.Writer, e Event) error {
	const most = 2048 // of a reason, which has names in it
	e.Reason = e.Reason[:min(len(e.Reason), most)]
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = w.Write(append(header(data), data...))
	return err
}

// receive reads a request and the files that came with it.
func receive(conn *net.UnixConn) (Request, []*os.File, error) {
	var r Request
	head, rights := make([]byte, headerBytes), make([]byte, unix.CmsgSpace(4*files))
	n, oobn, _, _, err := conn.ReadMsgUnix(head, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return r, nil, err
	}
	passed, err := passedFiles(rights[:oobn])
	if err != nil {
		return r, nil, err
	}
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return r, passed, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxRequest {
		return r, passed, fmt.Errorf("a request of %d bytes is more than %d", size, maxRequest)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(conn, data); err != nil {
		return r, passed, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, passed, err
	}
	if r.Op == OpStart && len(passed) != files {
		return r, passed, errors.New("a start without its files")
	}
	return r, passed, nil
}

func passedFiles(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var all []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return all, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			all = append(all, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return all, nil
}
