package execenvtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

var isolationCases = []testCase{
	{clause: "G1", name: "no_interface_but_loopback_and_no_way_out", needs: needsNoNetwork, run: noNetwork},
	{clause: "G1", name: "sandboxes_cannot_talk", needs: needsNoNetwork, run: noTalk},
	{clause: "G2", name: "only_three_places_are_writable", needs: needsReadOnlyRoot, run: onlyThreePlaces},
	{clause: "P7", name: "processes_of_another_are_invisible", run: noSharedProcesses},
}

var concurrencyCases = []testCase{
	{clause: "G3", name: "everything_at_once", run: everythingAtOnce},
	{clause: "G3", name: "methods_return_soon_after_their_context_ends", run: endedContexts},
	{clause: "G3", name: "stuck_archives_return_soon_after_their_context_ends", run: stuckArchives},
	{clause: "G4", name: "capabilities_are_constant", run: constantCapabilities},
}

func noNetwork(c *C) {
	b := c.create()
	out := b.output("net",
		"tcp:169.254.169.254:80", "tcp:[fd00:ec2::254]:80", "tcp:8.8.8.8:53", "udp:8.8.8.8:53",
		"tcp:10.0.0.1:80", "tcp:172.17.0.1:80", "tcp:192.168.0.1:80", "tcp:[2001:4860:4860::8888]:53",
		"lookup:example.com", "lookup:metadata.google.internal")
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "interface "):
			if line != "interface lo" {
				c.Errorf("there is an interface besides loopback: %s", line)
			}
		case strings.HasPrefix(line, "try "):
			if strings.HasSuffix(line, " ok") || strings.Contains(line, " slow ") {
				c.Errorf("not refused, or not at once: %s", line)
			}
		default:
			c.Errorf("probe net prints %q", line)
		}
	}
	if n := strings.Count(out, "try "); n != 10 {
		c.Errorf("%d attempts were made, want 10:\n%s", n, out)
	}
}

func noTalk(c *C) {
	one, two := c.create(), c.create()
	for _, addr := range [][2]string{{"tcp", "127.0.0.1:18943"}, {"unix", "@agentdock-suite"}, {"unix", "/tmp/suite.sock"}} {
		p := one.start("listen", addr[0], addr[1])
		p.await("ready")
		// The listener is there: its neighbour in the sandbox reaches it.
		if got := one.output("dial", addr[0], addr[1]); got != "connected\n" {
			c.Errorf("within a sandbox dialling %s prints %q", addr, got)
		}
		if r := two.run("dial", addr[0], addr[1]); r.Outcome.Success() {
			c.Errorf("another sandbox reached %s", addr)
		}
		c.ok("Kill", p.Kill(c.ctx()))
	}
}

func onlyThreePlaces(c *C) {
	b := c.create()
	want := map[string]bool{"dir /workspace": true, "dir /tmp": true, "dir /dev/shm": true}
	for line := range strings.Lines(b.output("writable")) {
		line = strings.TrimSpace(line)
		if !want[line] {
			c.Errorf("can be written: %s", line)
		}
		delete(want, line)
	}
	for place := range want {
		c.Errorf("cannot be written: %s", place)
	}
	for _, path := range []string{"/etc/passwd", "/usr/new", "/bin/new", "/new", "/var/tmp/new", "/run/new", "/proc/sys/kernel/hostname", "/dev/new"} {
		if r := b.run("write", path, "x"); r.Outcome.Kind != run.Exited || r.Outcome.Success() {
			c.Errorf("writing %s: %v", path, r.Outcome)
		}
	}
}

func noSharedProcesses(c *C) {
	one, two := c.create(), c.create()
	p := one.start("family", "/workspace/private-family")
	p.await("ready")
	one.sees("private-family")
	if out := two.output("ps"); strings.Contains(out, "private-family") {
		c.Errorf("another sandbox sees the process:\n%s", out)
	}
}

func everythingAtOnce(c *C) {
	b := c.create()
	long := b.start("hold")
	long.await("ready")
	together(8, func(i int) {
		for j := range 3 {
			switch (i + j) % 4 {
			case 0:
				if got := b.output("echo", "x"); got != "x\n" {
					c.Errorf("echo prints %q", got)
				}
			case 1:
				if _, err := b.Info(c.ctx()); err != nil {
					c.Errorf("Info: %v", err)
				}
				if _, err := b.Usage(c.ctx()); err != nil {
					c.Errorf("Usage: %v", err)
				}
				if _, err := c.env.List(c.ctx()); err != nil {
					c.Errorf("List: %v", err)
				}
			case 2:
				name := c.id()
				if err := b.PutArchive(c.ctx(), name, bytesReader(tarOf(c.T, file("f", 0o644, name)))); err != nil {
					c.Errorf("PutArchive: %v", err)
				}
				if got := b.output("read", "/workspace/"+name+"/f"); got != name {
					c.Errorf("the file holds %q", got)
				}
			case 3:
				other := c.bare()
				if err := c.env.Destroy(c.ctx(), other.ID()); err != nil {
					c.Errorf("Destroy: %v", err)
				}
				if _, err := b.AttachExec(c.ctx(), long.ID()); err != nil {
					c.Errorf("AttachExec: %v", err)
				}
			}
		}
	})
	c.ok("Kill", long.Kill(c.ctx()))
	c.kind("hold", long.wait().Outcome, run.Cancelled)
}

func endedContexts(c *C) {
	b := c.create()
	p := b.exec(execenv.ExecSpec{Argv: []string{probePath, "hold"}, Stdin: true})
	p.await("ready")
	done := ended()
	for name, call := range map[string]func(){
		"Create":     func() { _, _ = c.env.Create(done, c.spec()) },
		"Attach":     func() { _, _ = c.env.Attach(done, b.ID()) },
		"List":       func() { _, _ = c.env.List(done) },
		"Info":       func() { _, _ = b.Info(done) },
		"Exec":       func() { _, _ = b.Exec(done, probe("hold")) },
		"AttachExec": func() { _, _ = b.AttachExec(done, p.ID()) },
		"PutArchive": func() { _ = b.PutArchive(done, "", bytesReader(tarOf(c.T, file("late", 0o644, "")))) },
		"GetArchive": func() { _ = b.GetArchive(done, execenv.ArchiveRequest{}, discard{}) },
		"Usage":      func() { _, _ = b.Usage(done) },
		"Output":     func() { _ = p.Output(done, 0, func(execenv.Chunk) error { return nil }) },
		"Wait":       func() { _, _ = p.Wait(done) },
		"WriteStdin": func() { _, _ = p.WriteStdin(done, make([]byte, 32<<20)) },
	} {
		began := time.Now()
		c.soon(name+" with an ended context", call)
		if d := time.Since(began); d > c.h.Patience/6 {
			c.Errorf("%s with an ended context took %s", name, d)
		}
	}
	if got := b.output("echo", "fine"); got != "fine\n" {
		c.Errorf("afterwards the sandbox prints %q", got)
	}
}

func stuckArchives(c *C) {
	b := c.create()
	c.ok("PutArchive", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T, file("big", 0o644, strings.Repeat("x", 1<<20))))))
	ctx, cancel := context.WithCancel(c.ctx())
	r := newStuckReader()
	go func() { <-r.reached; cancel() }()
	c.soon("PutArchive with a stuck reader", func() {
		if err := b.PutArchive(ctx, "stuck", r); err == nil {
			c.Errorf("PutArchive whose context ended returned nil")
		}
	})
	r.release()
	ctx, cancel = context.WithCancel(c.ctx())
	w := newStuckWriter()
	go func() { <-w.reached; cancel() }()
	c.soon("GetArchive with a stuck writer", func() {
		if err := b.GetArchive(ctx, execenv.ArchiveRequest{}, w); err == nil {
			c.Errorf("GetArchive whose context ended returned nil")
		}
	})
	w.release()
	if got := b.output("echo", "fine"); got != "fine\n" {
		c.Errorf("afterwards the sandbox prints %q", got)
	}
}

func constantCapabilities(c *C) {
	first := c.env.Capabilities()
	if first.Name == "" || !slices.Contains([]execenv.Isolation{execenv.IsolationNone, execenv.IsolationContainer, execenv.IsolationKernel}, first.Isolation) {
		c.Errorf("capabilities are %+v", first)
	}
	b := c.create()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := c.env.Capabilities(); got != first {
				c.Errorf("capabilities were %+v and are %+v", first, got)
			}
		})
	}
	wg.Wait()
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	if got := c.env.Capabilities(); got != first {
		c.Errorf("capabilities were %+v and are %+v", first, got)
	}
}
