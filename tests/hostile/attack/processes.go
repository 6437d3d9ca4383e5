package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processVerbs make too many processes, or ones that will not end.
var processVerbs = map[string]attempt{
	"fork": func(args []string) error { return forks(num(args, 0), "sleep") },
	"fork-within": func(args []string) error {
		own := unix.Rlimit{Cur: uint64(num(args, 0)), Max: uint64(num(args, 0))}
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			return err
		}
		return forks(num(args, 1), "sleep")
	},
	// zombies are children that ended and that nobody waits for.
	"zombies": func(args []string) error { return forks(num(args, 0), "end-at-once") },
	"threads": func(args []string) error {
		var ready sync.WaitGroup
		for range num(args, 0) {
			ready.Add(1)
			go func() {
				runtime.LockOSThread()
				ready.Done()
				select {}
			}()
		}
		ready.Wait()
		return nil
	},
	"end-at-once": func([]string) error { return nil },
	// after-stdin lets a control put this process where it is bounded first.
	"after-stdin": func(args []string) error {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return again(nil, args)
	},
	// storm multiplies for ever.
	"storm": func([]string) error {
		for {
			_ = child("storm").Start()
			time.Sleep(time.Millisecond)
		}
	},
	// chain is always one process, and never the same.
	"chain": func([]string) error {
		_ = child("chain").Start()
		return nil
	},
	"exec-loop": func([]string) error {
		return unix.Exec("/proc/self/exe", []string{"attack", "exec-loop"}, os.Environ())
	},
	"spawn": func(args []string) error {
		for range num(args, 0) {
			if err := child("end-at-once").Run(); err != nil {
				return err
			}
		}
		return nil
	},
	"sleep": func([]string) error { time.Sleep(time.Hour); return nil },
	"hold": func([]string) error {
		fmt.Println("ready")
		time.Sleep(time.Hour)
		return nil
	},
	// daemon leaves a child that has left session and parent, ignores what can
	// be ignored and, if told so, keeps the pipes of this process open.
	"daemon": func(args []string) error {
		c := child("stubborn")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if len(args) > 0 && args[0] == "holding" {
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
		}
		if err := c.Start(); err != nil {
			return err
		}
		if len(args) > 0 && args[0] == "stopped" {
			_ = c.Process.Signal(unix.SIGSTOP)
		}
		fmt.Println("daemon", c.Process.Pid)
		return nil
	},
	"stubborn": func([]string) error {
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGXCPU, unix.SIGALRM)
		time.Sleep(time.Hour)
		return nil
	},
	"stop-self": func([]string) error {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		time.Sleep(time.Hour)
		return nil
	},
	"kill-all": func([]string) error { return unix.Kill(-1, unix.SIGKILL) },
	// survivors gets through if another process can be seen than init, this one, and
	// whoever started this one.
	"survivors": func([]string) error {
		self, parent := os.Getpid(), os.Getppid()
		pids, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range pids {
			pid, _ := strconv.Atoi(filepath.Base(p))
			line, err := os.ReadFile(p + "/cmdline")
			if pid == self || pid == parent || pid == 1 || err != nil {
				continue
			}
			fmt.Printf("process %d: %q\n", pid, line)
			return nil
		}
		return errors.New("there is no other process")
	},
	"spin": func(args []string) error {
		for range num(args, 0) - 1 {
			if err := child("spin", "1").Start(); err != nil {
				return err
			}
		}
		for n := uint64(1); n != 0; n |= 1 {
			n <<= 1
		}
		return nil
	},
	"yield-storm": func([]string) error {
		for {
			_ = call(unix.SYS_SCHED_YIELD)
		}
	},
	"timer-storm": func([]string) error {
		for range 64 {
			fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)
			if err != nil {
				return err
			}
			each := unix.Timespec{Nsec: 1}
			if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
				return err
			}
		}
		time.Sleep(time.Hour)
		return nil
	},
	"signal-storm": func([]string) error {
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGUSR1)
		for {
			_ = unix.Kill(os.Getpid(), unix.SIGUSR1)
		}
	},
	"open-fifo": func(args []string) error {
		if err := unix.Mkfifo(arg(args, 0), 0o600); err != nil {
			return err
		}
		_, err := os.ReadFile(arg(args, 0))
		return err
	},
	"big-arguments": func(args []string) error {
		c := child("end-at-once", strings.Repeat("x", num(args, 0)))
		return c.Run()
	},
	"exit": func(args []string) error { os.Exit(num(args, 0)); return nil },
	"raise": func(args []string) error {
		return unix.Kill(os.Getpid(), unix.Signal(num(args, 0)))
	},
}

func child(args ...string) *exec.Cmd { return exec.Command("/proc/self/exe", args...) }

// forks keeps n children, or says at which the system had enough. They end
// with it.
func forks(n int, verb string) error {
	pids := make([]int, 0, n)
	defer func() {
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for i := range n {
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"attack", verb}, &syscall.ProcAttr{Env: os.Environ()})
		if err != nil {
			return fmt.Errorf("after %d: %w", i, err)
		}
		pids = append(pids, pid)
	}
	return nil
}
