// The Go runtime would keep a file of a control group open, as if it had been
// inherited.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command attack is the hostile program of tests/hostile: a vocabulary of
// attempts, each of which really tries. It is one static binary so that it
// runs in any sandbox and, as the negative control, on the host.
//
// An attempt that gets through exits with 0 and prints "through: what it did";
// one that is stopped exits with 3 and prints "blocked: ERRNO: where". So the
// same words tell that the boundary holds and that the attempt is a real one.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit statuses. No case takes badUsage for an answer.
const (
	throughStatus = 0
	blockedStatus = 3
	badUsage      = 120
)

// attempt is one verb: nil means that it got through.
type attempt func(args []string) error

// verbs is filled from one table per file.
func verbs() map[string]attempt {
	all := map[string]attempt{}
	for _, table := range []map[string]attempt{kernelVerbs, dangerousVerbs, namespaceVerbs(), processVerbs, memoryVerbs, fileVerbs, fillingVerbs, asyncVerbs, outputVerbs, networkVerbs, searchVerbs, neighbourVerbs} {
		for name, f := range table {
			if all[name] != nil {
				panic("two attempts are called " + name)
			}
			all[name] = f
		}
	}
	return all
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: attack VERB [ARG…]")
		os.Exit(badUsage)
	}
	os.Exit(do(os.Args[1], os.Args[2:]))
}

func do(verb string, args []string) int {
	f, ok := verbs()[verb]
	if !ok {
		fmt.Fprintf(os.Stderr, "attack: no verb %q\n", verb)
		return badUsage
	}
	if _, dangerous := dangerousVerbs[verb]; dangerous && os.Getenv("AGENTDOCK_SANDBOX") != "true" {
		fmt.Fprintf(os.Stderr, "attack: %s is for sandboxes only\n", verb)
		return badUsage
	}
	err := f(args)
	var usage usageError
	switch {
	case err == nil:
		fmt.Printf("through: %s %s\n", verb, strings.Join(args, " "))
		return throughStatus
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "attack:", err)
		return badUsage
	}
	fmt.Printf("blocked: %s: %v\n", errnoName(err), err)
	return blockedStatus
}

// errnoName is "-" for an error that no system call gave.
func errnoName(err error) string {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return "-"
	}
	if name := unix.ErrnoName(no); name != "" {
		return name
	}
	return strconv.Itoa(int(no))
}

// usageError is a mistake of the test, not an answer of the system.
type usageError string

func (u usageError) Error() string { return string(u) }

func arg(args []string, i int) string {
	if i >= len(args) {
		fmt.Fprintf(os.Stderr, "attack: argument %d is missing\n", i+1)
		os.Exit(badUsage)
	}
	return args[i]
}

func num(args []string, i int) int {
	n, err := strconv.ParseInt(arg(args, i), 0, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(badUsage)
	}
	return int(n)
}

// call makes a system call that this program needs no answer from but whether
// it was let through.
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	for {
		_, _, no := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		switch no {
		case 0:
			return nil
		case unix.EINTR:
			// Go's runtime sends its threads a signal to preempt them: a call
			// that waits can end with it, and was not refused.
		default:
			return no
		}
	}
}
