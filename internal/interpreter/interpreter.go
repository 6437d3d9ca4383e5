// Package interpreter is the code interpreter of live sandboxes: a Python process
// of ours that keeps variables, and how to speak to it over commands alone, so
// that every way in has the same one.
//
// A kernel is a command of the sandbox that listens on a socket in /tmp. All that
// is known about it is in its name and its arguments: whoever can list the
// commands of a sandbox finds it, and two ways in that start the same one start
// one. An execution is a run of the helper (Kernel.Relay) that connects to it and
// carries a Request in and Events out; ending the relay interrupts the code, and
// the variables stay. What a kernel says is as hostile as everything in a sandbox.
package interpreter

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

//go:embed kernel.py
var program string

// The name has "e2b" in it from the first way in. It stays: a sandbox outlives
// the process that started its kernel.
var name = regexp.MustCompile(`^e2b-kernel-([a-z0-9]{1,32})-([0-9]{1,9})$`)

// DefaultContext is the one of code that names none.
const DefaultContext = "python"

// Kernel is the interpreter of one context. Its number grows when it is started
// again.
type Kernel struct {
	Context string
	Number  int
	// Dir is where its code works.
	Dir string
}

// Name is the id of its command.
func (k Kernel) Name() string { return fmt.Sprintf("e2b-kernel-%s-%d", k.Context, k.Number) }

func (k Kernel) socket() string { return "/tmp/." + k.Name() }

// Argv starts it.
func (k Kernel) Argv() []string { return []string{"python3", "-c", program, k.socket(), k.Dir} }

// Next is what takes its place when it has ended.
func (k Kernel) Next() Kernel {
	k.Number++
	return k
}

// Relay is the command of one execution, and the variables it needs.
func (k Kernel) Relay() (argv []string, env map[string]string) {
	return []string{filewire.Program, "relay", k.socket()}, map[string]string{"GOMAXPROCS": "1"}
}

// Kernels are the newest of each context, and whether they run.
type Kernels map[string]struct {
	Kernel
	Runs bool
}

// Add looks at a command of the sandbox, which may be a kernel.
func (all Kernels) Add(id string, argv []string, runs bool) {
	m := name.FindStringSubmatch(id)
	if m == nil || len(argv) == 0 {
		return
	}
	number, _ := strconv.Atoi(m[2])
	if old, known := all[m[1]]; known && old.Number > number {
		return
	}
	one := all[m[1]]
	one.Kernel, one.Runs = Kernel{Context: m[1], Number: number, Dir: argv[len(argv)-1]}, runs
	all[m[1]] = one
}

// Request is what a relay is given as standard input.
func Request(code string, env map[string]string) ([]byte, error) {
	data, err := json.Marshal(map[string]any{"code": code, "env": env})
	if err != nil {
		return nil, fmt.Errorf("cannot write the request: %w", err)
	}
	return append(data, '\n'), nil
}

// Greeting reads the output of a kernel until it says that it listens.
type Greeting struct {
	said, complaint []byte
}

// Ready takes a piece of standard output, and says whether it listens.
func (g *Greeting) Ready(stdout []byte) bool {
	g.said = append(g.said, stdout[:min(len(stdout), max(0, 64-len(g.said)))]...)
	return bytes.Contains(g.said, []byte("ready\n"))
}

// Complain takes a piece of standard error.
func (g *Greeting) Complain(stderr []byte) {
	g.complaint = append(g.complaint, stderr[:min(len(stderr), max(0, 2000-len(g.complaint)))]...)
}

// Complaint is the last line of what it wrote to standard error.
func (g *Greeting) Complaint() string {
	b := bytes.TrimSpace(g.complaint)
	return string(bytes.ToValidUTF8(b[bytes.LastIndexByte(b, '\n')+1:], []byte("\uFFFD")))
}
