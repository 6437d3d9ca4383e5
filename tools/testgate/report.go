package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
)

// event is one line of "go test -json" (see: go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// test names a test in a package; the package itself has an empty name.
type test struct{ Package, Name string }

// skip is a case that did not run, and what it said about it.
type skip struct {
	test
	Reason string
}

// report turns events into what a person wants to read: a line for each
// package, and everything that a failed test printed.
type report struct {
	out    io.Writer
	output map[test]*strings.Builder // of what has not ended yet
	skips  []skip
	// parts counts cases of which a part was left out, by the capability that is
	// missing.
	parts  map[string]int
	passed int
	failed int
	// failures is what failed, again and in short.
	failures strings.Builder
}

// mustNot is the verdict on a skip that fails the run.
const mustNot = "MUST NOT SKIP"

// enough of what one failure printed, in bytes, to see what it is.
const enough = 3000

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[test]*strings.Builder{}, parts: map[string]int{}}
}

// read consumes events to their end. Lines that are not events, such as what
// a test's child process left on standard output, are passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				r.event(e)
			} else {
				fmt.Fprint(r.out, line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read test results: %w", err)
		}
	}
}

func (r *report) event(e event) {
	key := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		r.failures.WriteString(e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		r.end(key, e.Action)
	}
}

func (r *report) end(key test, action string) {
	var printed string
	if b := r.output[key]; b != nil {
		printed = b.String()
		delete(r.output, key)
	}
	if key.Name == "" {
		r.endPackage(key.Package, action, printed)
		return
	}
	switch action {
	case "pass":
		r.passed++
		for line := range strings.Lines(printed) {
			if missing, ok := missingIn(line); ok {
				r.parts[missing]++
			}
		}
	case "fail":
		r.failed++
		r.fail(key.Package+" "+key.Name, printed)
	case "skip":
		r.skips = append(r.skips, skip{key, reason(printed)})
	}
}

// endPackage prints the package's last line, or all of it if it failed: then
// also what tests printed that never came to an end, as after a panic.
func (r *report) endPackage(name, action, printed string) {
	if action != "fail" {
		lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
		fmt.Fprintln(r.out, lines[len(lines)-1])
		return
	}
	var open []string
	for key := range r.output {
		if key.Package == name {
			open = append(open, key.Name)
		}
	}
	sort.Strings(open)
	for _, t := range open {
		r.fail(name+" "+t+" (never ended)", r.output[test{name, t}].String())
		delete(r.output, test{name, t})
	}
	r.fail(name, printed)
}

// fail prints what failed, and keeps its beginning and its end.
func (r *report) fail(name, printed string) {
	fmt.Fprint(r.out, printed)
	if len(printed) > enough {
		printed = printed[:enough/2] + "\n[…]\n" + printed[len(printed)-enough/2:]
	}
	fmt.Fprintf(&r.failures, "FAILED: %s\n%s", name, strings.ToValidUTF8(printed, "�"))
}

// reason picks what a test gave to t.Skip out of all it printed.
func reason(printed string) string {
	var kept []string
	for line := range strings.Lines(printed) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 {
		return "no reason given"
	}
	return kept[len(kept)-1]
}

// finish prints the sum and returns an error if the run proves too little.
func (r *report) finish(strict bool, allowed []allowance) error {
	unexpected := 0
	whole := map[string]int{}
	for _, s := range r.skips {
		verdict := "skipped"
		missing, isDeclared := missingIn(s.Reason)
		if a, ok := find(allowed, s.test, s.Reason); ok && isDeclared {
			whole[missing]++
			continue
		} else if ok {
			verdict = "skip allowed (" + a.Reason + ")"
		} else if strict {
			verdict = mustNot
			unexpected++
		}
		line := fmt.Sprintf("%s: %s %s: %s\n", verdict, s.Package, s.Name, s.Reason)
		if verdict == mustNot {
			r.failures.WriteString(line)
		}
		fmt.Fprint(r.out, line)
	}
	r.declare(whole)
	fmt.Fprintf(r.out, "tests: %d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d tests failed", r.failed)
	case unexpected > 0:
		return fmt.Errorf("%d cases that must run here were skipped; install what they name, or allow the skip with a reason", unexpected)
	case r.passed+len(r.skips) == 0:
		return errors.New("no test ran")
	}
	return nil
}

// declare prints what environments under test declare that they cannot hold, with
// how many cases that takes away.
func (r *report) declare(whole map[string]int) {
	names := map[string]bool{}
	for _, of := range []map[string]int{whole, r.parts} {
		for name := range of {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(r.out, "%s%s: %d cases, and parts of %d\n", declared, name, whole[name], r.parts[name])
	}
}
