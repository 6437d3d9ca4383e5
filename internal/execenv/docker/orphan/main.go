// Command orphan is a hostile program for tests: it starts a process that beats in
// a file for ever, detached in every way, and then sends a signal to the process
// that watches over it.
//
//	orphan FILE SIGNAL
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	if len(os.Args) == 2 {
		beat(os.Args[1])
	}
	watcher := os.Getppid()
	child, err := os.StartProcess("/proc/self/exe", []string{"orphan", os.Args[1]}, &os.ProcAttr{
		Files: []*os.File{nil, nil, nil}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fail(err)
	}
	for {
		if info, err := os.Stat(os.Args[1]); err == nil && info.Size() > 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fail(err)
	}
	fmt.Println("beating", child.Pid, "watched by", watcher)
	if err := syscall.Kill(watcher, syscall.Signal(n)); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}

func beat(name string) {
	f, err := os.Create(name)
	if err != nil {
		fail(err)
	}
	for {
		_, _ = f.WriteString("x")
		time.Sleep(time.Millisecond)
	}
}
