package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// raise ends the process by a signal as the kernel's default action would.
// The Go runtime's own handler is taken away first.
func raise(sig syscall.Signal) int {
	var act [32]byte // a zeroed sigaction: SIG_DFL
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&act)), 0, 8, 0, 0)
	_ = syscall.Kill(os.Getpid(), sig)
	return forever()
}

// trap prints the number of every signal it gets, of those named.
func trap(args []string) int {
	ch := make(chan os.Signal, 64)
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			return badUsage
		}
		signal.Notify(ch, syscall.Signal(n))
	}
	fmt.Println("ready")
	for sig := range ch {
		fmt.Println("got", int(sig.(syscall.Signal)))
	}
	return 0
}

// fork is fork(2) without the Go runtime's knowledge: the child may only make
// raw system calls. It makes exactly one process where starting a Go program
// would make several threads.
//
//go:norace
func fork() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	return pid, errno
}

// forkBomb makes processes until that fails, says how many and why, and ends
// with the error's number while they are all alive.
func forkBomb() int {
	debug.SetGCPercent(-1)
	for n := 0; ; n++ {
		pid, errno := fork()
		switch {
		case errno != 0:
			fmt.Println("children", n)
			return failed(errno)
		case pid == 0:
			for {
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
	}
}

// forkStorm is a fork bomb that never gives up, in every process it makes.
func forkStorm() int {
	fmt.Println("ready")
	debug.SetGCPercent(-1)
	for {
		if _, errno := fork(); errno != 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
}

func spawn(attr *syscall.SysProcAttr, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	p, err := os.StartProcess(self, append([]string{self}, args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		return err
	}
	return p.Release()
}

// family starts a child that beats in file, in the same session, and stays.
func family(file string) int {
	if err := spawn(nil, "daemon-child", file); err != nil {
		return failed(err)
	}
	awaitFile(file)
	fmt.Println("ready")
	return forever()
}

// daemon detaches a process in the way daemons do (two forks, a session of
// its own), which keeps stdout open, ignores signals and beats in file. With
// "stop" it stops itself after the first beat. The daemon outlives the caller.
func daemon(file string, how []string) int {
	args := append([]string{"daemon-middle", file}, how...)
	if err := spawn(&syscall.SysProcAttr{Setsid: true}, args...); err != nil {
		return failed(err)
	}
	awaitFile(file)
	fmt.Println("ready")
	return 0
}

func daemonMiddle(args []string) int {
	return failed(spawn(&syscall.SysProcAttr{Setsid: true}, append([]string{"daemon-child"}, args...)...))
}

func daemonChild(args []string) int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return failed(err)
	}
	for {
		_, _ = f.WriteString(".")
		if len(args) > 1 && args[1] == "stop" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func awaitFile(file string) {
	for {
		if info, err := os.Stat(file); err == nil && info.Size() > 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ps prints the command line of every process it can see, zombies apart.
func ps() int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		fmt.Println("error: no processes to be seen in /proc")
		return 1
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue
		}
		if _, after, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(after, "Z") {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		fmt.Println(filepath.Base(dir), strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " "))
	}
	return 0
}

// alloc takes memory and writes to all of it.
func alloc(n int64) int {
	const step = 1 << 20
	for taken := int64(0); taken < n; taken += step {
		b, err := syscall.Mmap(-1, 0, step, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return failed(err)
		}
		for i := 0; i < len(b); i += 512 {
			b[i] = byte(i>>9) | 1
		}
	}
	fmt.Println("allocated", n)
	return 0
}
