// Package answer reads what a sandbox says: its init over a connection of its
// own, its kernel (the sentry) over gVisor's control socket. Both may be in the
// hands of the program they run, so all of it is bounded, and what cannot be true
// is an error. It is apart from what links gVisor, which cannot be fuzzed.
package answer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A sentry is asked over its control socket, and may be in the hands of the
// program it runs. gVisor's own client for that socket trusts it: it connects
// and reads without a deadline, lets an answer grow until memory is full, and
// takes up to 128 descriptors with each answer. This one speaks the same
// protocol (a JSON object each way, descriptors only on the way there) within
// bounds. gVisor's is used to start a sandbox and to resume it, and for nothing else.

// maxAnswer bounds one answer. The longest honest ones are a control file of a
// cgroup and an error message.
const maxAnswer = 256 << 10

// ForEver is for the calls whose answer comes when something ends: those end
// with the sentry at the latest.
const ForEver time.Duration = 0

var errAnswerTooLong = fmt.Errorf("the sandbox's kernel answered with more than %d bytes", maxAnswer)

// Refused is what a sentry gives as the reason why it did not do it.
type Refused struct{ Reason string }

func (e *Refused) Error() string { return e.Reason }

// Call asks a sentry one thing at its control socket. An answer that is an error
// is a Refused; any other error says nothing about what it did.
func Call(path, method string, patience time.Duration, arg any, files []*os.File, result any) error {
	request, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return err
	}
	conn, err := dialControl(path, time.Now().Add(cmp.Or(patience, Timeout)))
	if err != nil {
		return err
	}
	defer conn.Close()
	if patience > 0 {
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	if err := sendRequest(conn, request, files); err != nil {
		return err
	}
	return readAnswer(conn, result)
}

// dialControl connects without ever blocking in connect(2): a sentry that does
// not accept would hold a thread of this process for every call. One that is
// merely busy has a full queue for a moment.
func dialControl(path string, deadline time.Time) (*net.UnixConn, error) {
	// The path of a socket may be longer than an address can hold.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	addr := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d", fd)}
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		conn, err := net.DialUnix("unix", nil, addr)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return conn, err
		}
		time.Sleep(pause)
	}
}

func sendRequest(conn *net.UnixConn, request []byte, files []*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(request, rights, nil)
	if err == nil && n < len(request) {
		_, err = conn.Write(request[n:])
	}
	return err
}

// readAnswer reads with read(2), with which the kernel drops descriptors that
// come along.
func readAnswer(r io.Reader, result any) error {
	answer := struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
		Result  any    `json:"result"`
	}{Result: result}
	limited := &io.LimitedReader{R: r, N: maxAnswer}
	if err := json.NewDecoder(limited).Decode(&answer); err != nil {
		if limited.N <= 0 {
			return errAnswerTooLong
		}
		return err
	}
	if !answer.Success {
		return &Refused{Reason: answer.Err}
	}
	return nil
}
