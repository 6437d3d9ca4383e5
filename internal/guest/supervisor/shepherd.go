package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors of a shepherd besides the program's standard files.
const (
	reportFD  = 3 // lines about the program
	commandFD = 4 // the command, as JSON
)

// Words of a report.
const (
	reportStarted = "started" // PID
	reportRefused = "refused" // REASON
	reportEnded   = "ended"   // STATUS, and "left" if other processes are
)

// command is what a shepherd runs.
type command struct {
	Argv, Env [][]byte
	Dir       []byte
	TTY       bool
	// Processes bounds those of this user, everywhere; 0 does not.
	Processes uint64
}

// Shepherd starts the program and reaps all that comes of it. It returns when
// nothing is left.
func Shepherd() error {
	// The kernel gives a signal to the first thread if it can, so that is the one
	// which waits: a signal that ends this process does so before it reports.
	runtime.LockOSThread()
	if err := keepToItself(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	unix.CloseOnExec(reportFD)
	unix.CloseOnExec(commandFD)
	report := os.NewFile(reportFD, "report")
	pid, err := startBehind()
	if err != nil {
		fmt.Fprintln(report, reportRefused, strings.ReplaceAll(err.Error(), "\n", " "))
		return nil
	}
	// Whoever reads the program's output waits for the program, not for us.
	if err := forgetFiles(); err != nil {
		return err
	}
	fmt.Fprintln(report, reportStarted, pid)
	return herd(pid, report)
}

// keepToItself makes the process one that others of its user cannot look into.
func keepToItself() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot keep others out: %w", err)
	}
	return nil
}

func forgetFiles() error {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for fd := range files {
		if err := unix.Dup3(null, fd, 0); err != nil {
			return err
		}
	}
	return unix.Close(null)
}

// herd reaps until nothing is left, and reports how the program ended.
func herd(program int, report io.Writer) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return err
		case pid == program:
			left := ""
			if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); !errors.Is(err, unix.ECHILD) {
				left = "left"
			}
			fmt.Fprintln(report, reportEnded, uint32(status), left)
		}
	}
}

// behind is how far programs are behind their supervisor and shepherds when there
// is more to run than processors: what has to stop them must get to it.
const behind = 10

// startBehind starts the program from a thread whose priority it inherits.
func startBehind() (pid int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with this, as it can never be raised again
		if err = fallBehind(); err == nil {
			pid, err = startProgram()
		}
	}()
	<-done
	return pid, err
}

func fallBehind() error {
	const lowest = 19
	inverse, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // the kernel says 20 - nice
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-inverse+behind, lowest))
	}
	if err != nil {
		return fmt.Errorf("cannot lower the priority: %w", err)
	}
	return nil
}

func startProgram() (int, error) {
	data, err := io.ReadAll(io.LimitReader(os.NewFile(commandFD, "command"), maxRequest))
	if err != nil {
		return 0, err
	}
	var c command
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, err
	}
	argv, env := texts(c.Argv), texts(c.Env)
	if len(argv) == 0 {
		return 0, errors.New("the command is empty")
	}
	if c.Processes > 0 {
		limit := unix.Rlimit{Cur: c.Processes, Max: c.Processes}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
			return 0, fmt.Errorf("cannot bound processes: %w", err)
		}
	}
	if err := unix.Chdir(string(c.Dir)); err != nil {
		return 0, fmt.Errorf("failed to find initial working directory %q: %w", c.Dir, err)
	}
	attr := &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: c.TTY, Ctty: 0},
	}
	pid, err := lookAndStart(argv, env, attr)
	if err != nil {
		return 0, fmt.Errorf("failed to load %s: %w", argv[0], err)
	}
	return pid, nil
}

func lookAndStart(argv, env []string, attr *syscall.ProcAttr) (int, error) {
	if strings.Contains(argv[0], "/") {
		return syscall.ForkExec(argv[0], argv, attr)
	}
	refusal := error(unix.ENOENT)
	for _, dir := range strings.Split(pathOf(env), ":") {
		if dir == "" {
			dir = "."
		}
		pid, err := syscall.ForkExec(dir+"/"+argv[0], argv, attr)
		if err == nil {
			return pid, nil
		}
		// The first refusal that says more than "not here" is the answer if no
		// later directory has it.
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && errors.Is(refusal, unix.ENOENT) {
			refusal = err
		}
	}
	return 0, refusal
}

func pathOf(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return ""
}

func texts(list [][]byte) []string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = string(b)
	}
	return out
}
