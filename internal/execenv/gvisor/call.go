package gvisor

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
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// A sentry is asked over its control socket, and may be in the hands of the
// program it runs. gVisor's own client for that socket trusts it: it connects
// and reads without a deadline, lets an answer grow until memory is full, and
// takes up to 128 descriptors with each answer. This one speaks the same
// protocol (a JSON object each way, descriptors only on the way there) within
// bounds. gVisor's is used to start a sandbox and not after that.

// maxAnswer bounds one answer. The longest honest ones are a control file of a
// cgroup and an error message.
const maxAnswer = 256 << 10

// forEver is for the calls whose answer comes when something ends: those end
// with the sentry at the latest.
const forEver time.Duration = 0

var errAnswerTooLong = fmt.Errorf("the sandbox's kernel answered with more than %d bytes", maxAnswer)

// call asks the sentry one thing. An answer that is an error is a
// urpc.RemoteError; any other error says nothing about what it did.
func (b *box) call(method string, patience time.Duration, arg any, files []*os.File, result any) error {
	path := b.sentry.GetControlSocketPath()
	if path == "" {
		return errors.New("the sandbox's kernel has no control socket any more")
	}
	err := callAt(path, method, patience, arg, files, result)
	var refused urpc.RemoteError
	if err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("asking the sandbox's kernel for %s: %w", method, err)
	}
	return err
}

func callAt(path, method string, patience time.Duration, arg any, files []*os.File, result any) error {
	request, err := json.Marshal(struct {
		Method string `json:"method"`
		Arg    any    `json:"arg"`
	}{method, arg})
	if err != nil {
		return err
	}
	conn, err := dialControl(path, time.Now().Add(cmp.Or(patience, controlTimeout)))
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
		return urpc.RemoteError{Message: answer.Err}
	}
	return nil
}

// execute starts a process, whose standard files become the sentry's user's, as
// it opens them again by name.
func (b *box) execute(args *control.ExecArgs) (pid int32, err error) {
	for _, f := range args.Files[:min(3, len(args.Files))] {
		err := f.Chown(b.sentry.UID, b.sentry.GID)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EROFS) {
			return 0, err
		}
	}
	err = b.call(boot.ContMgrExecuteAsync, controlTimeout, args, args.Files, &pid)
	return pid, err
}

// readGroupFile and writeGroupFile work on the cgroups inside the sandbox.
func (b *box) readGroupFile(file control.CgroupControlFile) (string, error) {
	args := control.CgroupsReadArgs{Args: []control.CgroupsReadArg{{File: file}}}
	var out control.CgroupsResults
	if err := b.call(boot.CgroupsReadControlFiles, killTimeout, &args, nil, &out); err != nil {
		return "", err
	}
	if len(out.Results) != 1 {
		return "", fmt.Errorf("the sandbox's kernel gave %d answers for one", len(out.Results))
	}
	return out.Results[0].Unpack()
}

func (b *box) writeGroupFile(file control.CgroupControlFile, value string) error {
	args := control.CgroupsWriteArgs{Args: []control.CgroupsWriteArg{{File: file, Value: value}}}
	var out control.CgroupsResults
	if err := b.call(boot.CgroupsWriteControlFiles, killTimeout, &args, nil, &out); err != nil {
		return err
	}
	if len(out.Results) != 1 {
		return fmt.Errorf("the sandbox's kernel gave %d answers for one", len(out.Results))
	}
	return out.Results[0].AsError()
}

// checkStatus refuses a wait status that no ended process has, which an outcome
// would otherwise be made up from.
func checkStatus(status unix.WaitStatus) error {
	const core, lastSignal = 0x80, 64
	switch s := uint32(status); {
	case s&^0xff00 == 0: // exited
		return nil
	case s&^0xff == 0 && s&^core != 0 && s&^core <= lastSignal: // ended by a signal
		return nil
	default:
		return fmt.Errorf("the sandbox's kernel gave the impossible wait status 0x%x", s)
	}
}
