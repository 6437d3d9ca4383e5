package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest"
)

// rawFile reads a descriptor that somebody else owns.
type rawFile int

func (f rawFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := unix.Pread(int(f), p, off)
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

// DetachStdio replaces the process's standard files by empty ones and returns
// the originals. gVisor hands the standard files of the creating process to
// every sandbox and changes their owner; a service must not let it have its
// terminal or log. New refuses to work before.
func DetachStdio() (stdin, stdout, stderr *os.File, err error) {
	stdin, stdout, stderr = os.Stdin, os.Stdout, os.Stderr
	for _, f := range []**os.File{&os.Stdin, &os.Stdout, &os.Stderr} {
		if *f, err = emptyFile(); err != nil {
			return nil, nil, nil, err
		}
	}
	return stdin, stdout, stderr, nil
}

// emptyFile is a file of its own, in memory, without a name, that stays empty
// whoever gets it.
func emptyFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("cannot make an empty file: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("cannot seal an empty file: %w", err)
	}
	return os.NewFile(uintptr(fd), "empty"), nil
}

// checkStdio refuses standard files whose owner must not change.
func checkStdio() error {
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("cannot look at standard file %s: %w", f.Name(), err)
		}
		if st.Mode()&os.ModeDevice != 0 {
			return fmt.Errorf("standard file %s is a device; call DetachStdio first", f.Name())
		}
	}
	return nil
}

// initPipes is our end of the connection to a sandbox's init. It is two pipes
// because a socket of the host cannot be put into a checkpoint.
type initPipes struct{ answers, requests *os.File }

// newInitPipes returns our end, and init's files by their descriptors.
func newInitPipes() (ours *initPipes, theirs map[int]*os.File, err error) {
	requestsRead, requestsWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	answersRead, answersWrite, err := os.Pipe()
	if err != nil {
		requestsRead.Close()
		requestsWrite.Close()
		return nil, nil, fmt.Errorf("cannot make a pipe: %w", err)
	}
	return &initPipes{answers: answersRead, requests: requestsWrite},
		map[int]*os.File{guest.RequestsFD: requestsRead, guest.AnswersFD: answersWrite}, nil
}

func (p *initPipes) Read(b []byte) (int, error)         { return p.answers.Read(b) }
func (p *initPipes) Write(b []byte) (int, error)        { return p.requests.Write(b) }
func (p *initPipes) SetReadDeadline(t time.Time) error  { return p.answers.SetReadDeadline(t) }
func (p *initPipes) SetWriteDeadline(t time.Time) error { return p.requests.SetWriteDeadline(t) }
func (p *initPipes) Close() error                       { return errors.Join(p.answers.Close(), p.requests.Close()) }

func closeFiles(files map[int]*os.File) {
	for _, f := range files {
		f.Close()
	}
}
