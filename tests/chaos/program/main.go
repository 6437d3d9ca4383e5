// Command program is what runs in the sandboxes of the chaos test: it says how
// it will end before it does, so that an exit code nobody gave is found out.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 5 && os.Args[1] == "promise":
		code, pause, size := number(2), number(3), number(4)
		fmt.Printf("exit %d\n", code)
		for i := range size {
			fmt.Println(i)
		}
		orphan()
		time.Sleep(time.Duration(pause) * time.Millisecond)
		os.Exit(code)
	case len(os.Args) == 2 && os.Args[1] == "hold":
		time.Sleep(time.Hour)
		os.Exit(99)
	case len(os.Args) == 2 && os.Args[1] == "kill":
		// All that this user may kill: commands and the helper for archives.
		_ = syscall.Kill(-1, syscall.SIGKILL)
		os.Exit(0)
	}
	os.Exit(98)
}

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	if err != nil {
		os.Exit(98)
	}
	return n
}

// orphan leaves a process behind that nothing but a kill of the whole tree ends.
func orphan() {
	attr := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "hold"}, attr); err == nil {
		_ = p.Release()
	}
}
