// Package simprobe is the contract suite's probe for package fake: the
// vocabulary that execenvtest documents, on a process of the model instead of
// one of the kernel.
package simprobe

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
)

// Name is what the program is called in fake.Config.Programs and
// fake.Binary.
const Name = "probe"

const badUsage = 120

// Probe is the program.
func Probe(p *fake.Proc) int {
	if len(p.Args) < 2 {
		return badUsage
	}
	verb, args := p.Args[1], p.Args[2:]
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	num := func(i int) int64 {
		n, _ := strconv.ParseInt(arg(i), 10, 64)
		return n
	}
	switch verb {
	case "exit":
		return int(num(0))
	case "echo":
		return say(p, strings.Join(args, " "))
	case "args":
		return quoted(p, args)
	case "env":
		return quoted(p, p.Env)
	case "pwd":
		return say(p, p.Dir)
	case "cat":
		_, err := io.Copy(p.Stdout, p.Stdin)
		return failed(p, err)
	case "hold":
		say(p, "ready")
		p.Pause()
	case "take":
		return take(p, arg(0))
	case "give":
		if err := p.WriteFile(arg(0)+".given", nil); err != nil {
			return failed(p, err)
		}
		say(p, "given")
		_, err := io.Copy(p.Stdout, p.Stdin)
		return failed(p, err)
	case "streams":
		for i := range num(0) {
			fmt.Fprintf(p.Stdout, "o%d\n", i)
			fmt.Fprintf(p.Stderr, "e%d\n", i)
		}
		return 0
	case "bytes":
		return allBytes(p)
	case "flood":
		return flood(p, arg(0), num(1))
	case "fill":
		return fill(p, arg(0), args[1:])
	case "intact":
		b, err := p.ReadFile(arg(0))
		if err != nil {
			return failed(p, err)
		}
		return say(p, fmt.Sprint("intact ", len(b)))
	case "touch":
		return touch(p, arg(0), num(1), args[2:])
	case "write":
		return failed(p, p.WriteFile(arg(0), []byte(arg(1))))
	case "read":
		b, err := p.ReadFile(arg(0))
		_, _ = p.Stdout.Write(b)
		return failed(p, err)
	case "remove":
		return failed(p, p.RemoveAll(arg(0)))
	case "mkdir":
		return failed(p, p.MkdirAll(arg(0)))
	case "symlink":
		return failed(p, p.Symlink(arg(0), arg(1)))
	case "mkfifo":
		return failed(p, p.Mkfifo(arg(0)))
	case "mksock":
		return failed(p, p.Mksock(arg(0)))
	case "tree":
		return tree(p, arg(0))
	case "writable":
		return writable(p)
	default:
		return process(p, verb, args, num)
	}
	return badUsage
}

func say(p *fake.Proc, line string) int {
	fmt.Fprintln(p.Stdout, line)
	return 0
}

func quoted(p *fake.Proc, lines []string) int {
	for _, l := range lines {
		fmt.Fprintf(p.Stdout, "%q\n", l)
	}
	return 0
}

func failed(p *fake.Proc, err error) int {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		say(p, "error "+err.Error())
		return 1
	}
	names := map[syscall.Errno]string{syscall.ENOSPC: "ENOSPC", syscall.EAGAIN: "EAGAIN", syscall.EROFS: "EROFS", syscall.ENOENT: "ENOENT"}
	name, ok := names[errno]
	if !ok {
		name = fmt.Sprintf("errno %d", int(errno))
	}
	say(p, "error "+name)
	return int(errno) & 0x7f
}

// take waits for what give does: the model has no files to pass on.
func take(p *fake.Proc, socket string) int {
	if err := p.Mksock(socket); err != nil {
		return failed(p, err)
	}
	say(p, "ready")
	for {
		if _, err := p.ReadFile(socket + ".given"); err == nil {
			break
		}
		p.Sleep(time.Millisecond)
	}
	say(p, "taken")
	p.Pause()
	return 0
}

func allBytes(p *fake.Proc) int {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	_, _ = p.Stdout.Write(all)
	for _, b := range []byte("\xff\xfe\x00\xc3\xe2\x82é€\xf0\x9f") {
		_, _ = p.Stderr.Write([]byte{b})
	}
	return 0
}

func flood(p *fake.Proc, stream string, n int64) int {
	w := p.Stdout
	if stream == "stderr" {
		w = p.Stderr
	}
	block := make([]byte, 251*1024)
	for i := range block {
		block[i] = byte(i % 251)
	}
	for n > 0 {
		k, _ := w.Write(block[:min(n, int64(len(block)))])
		n -= int64(k)
	}
	return 0
}

func fill(p *fake.Proc, name string, then []string) int {
	if err := p.WriteFile(name, nil); err != nil {
		return failed(p, err)
	}
	block := make([]byte, 256<<10)
	written := 0
	for {
		n, err := p.AppendFile(name, block)
		written += n
		if err != nil {
			say(p, fmt.Sprint("written ", written))
			return refused(p, then, name, err)
		}
	}
}

func touch(p *fake.Proc, dir string, n int64, then []string) int {
	for i := range n {
		if err := p.WriteFile(fmt.Sprintf("%s/f%d", dir, i), nil); err != nil {
			say(p, fmt.Sprint("created ", i))
			return refused(p, then, dir, err)
		}
	}
	return say(p, fmt.Sprint("created ", n))
}

func refused(p *fake.Proc, then []string, name string, err error) int {
	switch strings.Join(then, " ") {
	case "cope":
		return failed(p, p.RemoveAll(name))
	case "hold":
		p.Pause()
	}
	return failed(p, err)
}

func tree(p *fake.Proc, dir string) int {
	all, err := p.Walk(dir)
	for _, f := range all {
		kind := map[fs.FileMode]string{0: "file", fs.ModeDir: "dir", fs.ModeSymlink: "symlink"}[f.Mode.Type()]
		if kind == "" {
			kind = "other"
		}
		fmt.Fprintf(p.Stdout, "%q %s %o %d %q\n", f.Path, kind, f.Mode.Perm(), f.Size, f.Target)
	}
	return failed(p, err)
}

func writable(p *fake.Proc) int {
	all, err := p.Walk("/")
	below := ""
	for _, f := range append([]fake.FileInfo{{Path: "", Mode: fs.ModeDir}}, all...) {
		name := "/" + f.Path
		if below != "" && strings.HasPrefix(name, below+"/") {
			continue
		}
		switch f.Mode.Type() {
		case fs.ModeDir:
			if p.WriteFile(name+"/.writable", nil) == nil {
				_ = p.RemoveAll(name + "/.writable")
				say(p, "dir "+name)
				below = name
			}
		case 0:
			if _, err := p.AppendFile(name, nil); err == nil {
				say(p, "file "+name)
			}
		}
	}
	return failed(p, err)
}

// process has the verbs about processes and what is around them.
func process(p *fake.Proc, verb string, args []string, num func(int) int64) int {
	deaf := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
	switch verb {
	case "raise":
		p.Raise(syscall.Signal(num(0)))
		p.Pause()
	case "trap":
		for i := range args {
			p.Notify(syscall.Signal(num(i)))
		}
		say(p, "ready")
		for {
			say(p, fmt.Sprint("got ", int(p.NextSignal())))
		}
	case "ignore-term":
		p.Ignore(deaf...)
		say(p, "ready")
		p.Pause()
	case "stop-self":
		say(p, "ready")
		p.Raise(syscall.SIGSTOP)
		say(p, "continued")
		p.Pause()
	case "forkbomb":
		for n := 0; ; n++ {
			if err := p.Start(func(c *fake.Proc) int { c.Pause(); return 0 }, p.Args...); err != nil {
				say(p, fmt.Sprint("children ", n))
				return failed(p, err)
			}
		}
	case "forkstorm":
		say(p, "ready")
		return storm(p)
	case "family":
		if err := beating(p, args[0], false); err != nil {
			return failed(p, err)
		}
		say(p, "ready")
		p.Pause()
	case "daemon":
		// Two generations, the first of which is gone at once.
		err := p.Start(func(c *fake.Proc) int { return failed(c, beating(c, args[0], len(args) > 1)) }, "probe", "daemon-middle")
		if err != nil {
			return failed(p, err)
		}
		awaitBeat(p, args[0])
		return say(p, "ready")
	case "ps":
		for pid, argv := range p.Processes() {
			say(p, fmt.Sprint(pid, " ", strings.Join(argv, " ")))
		}
		return 0
	case "alloc":
		p.Alloc(num(0))
		return say(p, "allocated "+args[0])
	case "id":
		return say(p, fmt.Sprintf("uid %d %d\ngid %d %d\ngroups []\nno_new_privs 1\nCapEff: 0000000000000000",
			execenv.UID, execenv.UID, execenv.GID, execenv.GID))
	case "net":
		say(p, "interface lo")
		for _, a := range args {
			say(p, "try "+a+" fast ENETUNREACH")
		}
		return 0
	case "listen":
		say(p, "ready")
		p.Pause()
	case "dial":
		return dial(p, args)
	case "tty":
		return tty(p)
	case "winch":
		p.Notify(syscall.SIGWINCH)
		size, _ := p.WindowSize()
		say(p, fmt.Sprintf("size %dx%d", size.Cols, size.Rows))
		for range num(0) {
			p.NextSignal()
			size, _ = p.WindowSize()
			say(p, fmt.Sprintf("size %dx%d", size.Cols, size.Rows))
		}
		return 0
	}
	return badUsage
}

// storm makes processes that make processes, without end.
func storm(p *fake.Proc) int {
	for {
		if p.Start(storm, p.Args...) != nil {
			p.Sleep(time.Millisecond)
		}
	}
}

// beating starts a child that beats in file, and waits for its first beat.
func beating(p *fake.Proc, file string, stop bool) error {
	err := p.Start(func(c *fake.Proc) int {
		c.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
		for {
			_, _ = c.AppendFile(file, []byte("."))
			if stop {
				c.Raise(syscall.SIGSTOP)
			}
			c.Sleep(5 * time.Millisecond)
		}
	}, "probe", "daemon-child", file)
	if err == nil {
		awaitBeat(p, file)
	}
	return err
}

func awaitBeat(p *fake.Proc, file string) {
	for {
		if b, err := p.ReadFile(file); err == nil && len(b) > 0 {
			return
		}
		p.Sleep(time.Millisecond)
	}
}

// dial reaches a listener in the same sandbox: the model's only network.
func dial(p *fake.Proc, args []string) int {
	want := "listen " + strings.Join(args, " ")
	for _, argv := range p.Processes() {
		if strings.HasSuffix(strings.Join(argv, " "), want) {
			return say(p, "connected")
		}
	}
	return failed(p, syscall.ECONNREFUSED)
}

func tty(p *fake.Proc) int {
	size, ok := p.WindowSize()
	for fd := range 3 {
		say(p, fmt.Sprintf("fd %d terminal %v %dx%d", fd, ok, size.Cols, size.Rows))
	}
	say(p, fmt.Sprint("controlling ", ok))
	fmt.Fprintln(p.Stderr, "on stderr")
	return 0
}
