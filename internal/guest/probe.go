package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Probe tries one thing that a boundary must refuse and prints what came of it,
// a line "WHAT RESULT" for each attempt, where RESULT is "ok" or the name of an
// error. It judges nothing: the same attempts are made where the guarantee is
// absent, and whoever started both compares.
//
// The helper carries the probes because it is the one program that is in every
// sandbox, whatever its image holds.
func Probe(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("cannot probe: no probe is named")
	}
	p, ok := probes[args[0]]
	if !ok || len(args)-1 < p.needs {
		return fmt.Errorf("cannot probe: unknown probe %q, or too few arguments", args)
	}
	return p.run(args[1:], out)
}

var probes = map[string]struct {
	needs int
	run   func(args []string, out io.Writer) error
}{
	"kernel":  {0, probeKernel},
	"id":      {0, probeID},
	"status":  {1, probeStatus},
	"connect": {1, probeConnect},
	"write":   {1, probeWrite},
	"list":    {1, probeList},
	"fork":    {1, probeFork},
	"alloc":   {1, probeAlloc},
	"fill":    {2, probeFill},
	"touch":   {2, probeTouch},
	"flood":   {1, probeFlood},
	"burn":    {1, probeBurn},
	"hold":    {0, probeHold},
	"wait":    {0, probeWait},
}

func result(out io.Writer, what string, err error) {
	text := "ok"
	var errno unix.Errno
	switch {
	case errors.As(err, &errno):
		text = unix.ErrnoName(errno)
	case err != nil:
		text = strings.ReplaceAll(err.Error(), " ", "_")
	}
	fmt.Fprintln(out, what, text)
}

// probeKernel says which kernel answers.
func probeKernel(_ []string, out io.Writer) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	fmt.Fprintln(out, "release", unix.ByteSliceToString(u.Release[:]))
	return nil
}

// probeID says who the program is and tries to be more. The attempts change
// nothing where they succeed.
func probeID(_ []string, out io.Writer) error {
	fmt.Fprintln(out, "uid", os.Getuid())
	fmt.Fprintln(out, "gid", os.Getgid())
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasPrefix(name, "Cap") {
			fmt.Fprintln(out, name, strings.TrimSpace(value))
		}
	}
	// Not from the status file: not every kernel shows it there.
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "no_new_privs", nnp)
	result(out, "setuid", unix.Setuid(0))
	result(out, "chroot", unix.Chroot("/"))
	return nil
}

// probeStatus prints what the kernel says about a process.
func probeStatus(args []string, out io.Writer) error {
	pid, err := number(args[0])
	if err != nil {
		return err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	_, err = out.Write(status)
	return err
}

// connectPatience bounds an attempt that nobody answers.
const connectPatience = 500 * time.Millisecond

// probeConnect names the network interfaces and tries to reach addresses: "a.b.c.d:port"
// for TCP, "@name" for an abstract unix socket.
func probeConnect(args []string, out io.Writer) error {
	devices, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(devices)) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fmt.Fprintln(out, "interface", name)
		}
	}
	for _, to := range args {
		result(out, to, connect(to))
	}
	return nil
}

func connect(to string) error {
	var addr unix.Sockaddr = &unix.SockaddrUnix{Name: to}
	family := unix.AF_UNIX
	if !strings.HasPrefix(to, "@") {
		var in unix.SockaddrInet4
		if n, err := fmt.Sscanf(to, "%d.%d.%d.%d:%d", &in.Addr[0], &in.Addr[1], &in.Addr[2], &in.Addr[3], &in.Port); n != 5 {
			return fmt.Errorf("no address: %w", err)
		}
		addr, family = &in, unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.Connect(fd, addr)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(poll, int(connectPatience.Milliseconds())); n == 0 || err != nil {
		return unix.ETIMEDOUT
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// probeWrite tries to make a file in each directory, or to open what is not one
// for writing. A file that it made is left: another sandbox must not see it.
func probeWrite(args []string, out io.Writer) error {
	for _, path := range args {
		name, flags := path, os.O_WRONLY
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			name, flags = path+"/agentdock-probe", os.O_WRONLY|os.O_CREATE
		}
		f, err := os.OpenFile(name, flags, 0o600)
		if err == nil {
			_ = f.Close()
		}
		result(out, path, err)
	}
	return nil
}

// probeList counts what is in each directory.
func probeList(args []string, out io.Writer) error {
	for _, dir := range args {
		entries, err := os.ReadDir(dir)
		if err != nil {
			result(out, dir, err)
			continue
		}
		fmt.Fprintln(out, dir, len(entries))
	}
	return nil
}

func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("cannot probe: %w", err)
	}
	return int(n), nil
}

// probeFork starts up to N processes that live until it ends.
func probeFork(args []string, out io.Writer) error {
	n, err := number(args[0])
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close() // ends them all
	var children []*os.Process
	var last error
	for range n {
		p, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], "probe", "wait"}, &os.ProcAttr{Files: []*os.File{r, nil, nil}})
		if err != nil {
			last = err
			break
		}
		children = append(children, p)
	}
	_ = r.Close()
	fmt.Fprintln(out, "children", len(children))
	result(out, "fork", last)
	for _, p := range children {
		_ = p.Kill()
		_, _ = p.Wait()
	}
	return nil
}

// probeAlloc touches that many bytes of memory.
func probeAlloc(args []string, out io.Writer) error {
	n, err := number(args[0])
	if err != nil {
		return err
	}
	const page = 4096
	memory := make([]byte, n)
	for i := 0; i < len(memory); i += page {
		memory[i] = 1
	}
	fmt.Fprintln(out, "allocated", len(memory))
	return nil
}

// probeFill writes up to that many bytes into a file.
func probeFill(args []string, out io.Writer) error {
	n, err := number(args[1])
	if err != nil {
		return err
	}
	f, err := os.Create(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	written := 0
	for written < n && err == nil {
		var m int
		m, err = f.Write(chunk)
		written += m
	}
	fmt.Fprintln(out, "written", written)
	result(out, "write", err)
	return nil
}

// probeTouch makes up to that many empty files in a directory.
func probeTouch(args []string, out io.Writer) error {
	n, err := number(args[1])
	if err != nil {
		return err
	}
	made := 0
	for made < n {
		f, failure := os.Create(fmt.Sprintf("%s/probe-%d", args[0], made))
		if failure != nil {
			err = failure
			break
		}
		_ = f.Close()
		made++
	}
	fmt.Fprintln(out, "made", made)
	result(out, "create", err)
	return nil
}

// probeFlood writes that many bytes to its output.
func probeFlood(args []string, out io.Writer) error {
	n, err := number(args[0])
	if err != nil {
		return err
	}
	_, err = out.Write([]byte(strings.Repeat("x", n)))
	return err
}

// probeBurn keeps two processors busy for that many milliseconds.
func probeBurn(args []string, _ io.Writer) error {
	n, err := number(args[0])
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Duration(n) * time.Millisecond)
	other := make(chan struct{})
	burn := func() {
		for time.Now().Before(end) {
		}
	}
	go func() { defer close(other); burn() }()
	burn()
	<-other
	return nil
}

// probeHold does not end by itself, and ignores what asks it to.
func probeHold(_ []string, _ io.Writer) error {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	time.Sleep(time.Hour)
	return nil
}

// probeWait ends at the end of its input: with whoever holds the other end.
func probeWait(_ []string, _ io.Writer) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
