package ingest

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

// tool finds a program of the host, or says how to get it.
func tool(name, debianPackage string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fault.Wrap(fault.Unsupported, err, "cannot make an image: %s is missing; install the package %s "+
			"(on Debian and Ubuntu: apt-get install %s)", name, debianPackage, debianPackage)
	}
	return path, nil
}

// scrubbed is the whole environment of a child: nothing of ours goes there.
func scrubbed(extra ...string) []string {
	return append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8",
		"TZ=UTC",
	}, extra...)
}

// runTree runs cmd to its end. Cancelling ctx kills it and, when it is the
// first process of its own PID and mount namespaces (ownTree), everything it
// started and mounted; so does the death of this process, by whatever signal.
func runTree(ctx context.Context, cmd *exec.Cmd, ownTree bool) error {
	// The kernel ties a parent-death signal to the thread that forked, so
	// that thread has to last as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // a terminal's ^C reaches us alone, and we kill it
	}
	if ownTree {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		// What it mounts ends with it too, and is never seen here, where a
		// stage is removed file by file. Propagation is made private.
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// tail keeps the end of what a child says, for the error message.
type tail struct{ text []byte }

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

// withOutput adds what the child said to its error.
func (t *tail) withOutput(name string, err error) error {
	said := strings.TrimSpace(strings.ToValidUTF8(string(t.text), "?"))
	if said == "" {
		return fmt.Errorf("%s failed: %w", name, err)
	}
	return fmt.Errorf("%s failed: %w: %s", name, err, said)
}
