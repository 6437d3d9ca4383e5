package hostile

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

const (
	meetingName = "agentdock-hostile-meeting"
	meetingPort = "45871"
)

// met makes the family's cases: one sandbox offers, the other one looks.
func met(words ...string) func(*world) {
	return func(w *world) {
		p := w.start(w.bystander, nil, "offer", "/tmp", meetingName, meetingPort)
		defer p.kill()
		p.await("ready")
		checks := want(blocked("ENOENT", "ECONNREFUSED", "ESRCH", "EPERM", "EACCES", "-"))
		w.holds(strings.Join(words, " "), w.try(w.box, words...), checks...)
	}
}

// together is the control: both programs on the host, with nothing between.
func together(words ...string) control {
	return shown("two programs of the host meet", func(b *bench) {
		cmd := b.command(b.user(), do("offer", b.dir, meetingName, meetingPort))
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); removeSegment() }()
		said := make([]byte, 200)
		if n, err := out.Read(said); err != nil || string(said[:n]) != "ready\n" {
			b.Fatalf("it said %q, %v", said[:n], err)
		}
		at := append([]string{}, words...)
		for i := range at {
			at[i] = strings.ReplaceAll(at[i], "/tmp", b.dir)
		}
		b.through(b.user(), at)
	})
}

// segmentKey is the attacking program's shmKey.
const segmentKey = 0x0a6e7d0c

// removeSegment removes what a control on the host would leave.
func removeSegment() {
	if id, err := unix.SysvShmGet(segmentKey, 0, 0); err == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
}

func meeting(what string, words ...string) attack {
	return attack{what: what, run: met(words...), bites: together(words...)}
}

var neighbourCases = []attack{
	meeting("files", "read", "/tmp/offered"),
	meeting("abstract_sockets", "connect-unix", "@"+meetingName),
	meeting("loopback", "connect", "127.0.0.1", meetingPort),
	meeting("loopback_6", "connect", "::ffff:127.0.0.1", meetingPort),
	meeting("shared_memory", "shm-attach"),
	meeting("processes", "process-like", meetingName),
	{what: "cgroup_names", run: func(w *world) {
		w.holds("names", w.try(w.box, "names-like", "/sys/fs/cgroup", w.bystander.ID()), nothing)
	}},
	{what: "names_of_its_sandbox", run: func(w *world) {
		w.holds("mounts", w.try(w.box, "sees", "/proc/self/mountinfo", w.bystander.ID()), nothing)
	}},
	{what: "signals", run: signalsStay},
	{what: "memory_bomb", own: small, run: neighbourBombs("alloc", more)},
	{what: "fork_storm", own: fewPIDs, run: neighbourBombs("storm")},
	{what: "spinning", own: same, run: neighbourBombs("spin", "16")},
	{what: "flood", own: same, run: neighbourBombs("yes", "stdout")},
	{what: "full_disk", own: roomy, run: neighbourBombs("fill", "big", more)},
	{what: "no_inodes", own: same, run: neighbourBombs("inodes", ".", "20000")},
	{what: "later_sandbox_sees_no_files", own: same, run: func(w *world) {
		w.holds("write", w.try(w.box, "create", "/tmp/left-behind"), exited(0))
		next := w.create(nil)
		defer w.destroy(next)
		w.holds("read", w.try(next, "read", "/tmp/left-behind"), blocked("ENOENT"))
	}},
	{what: "destroyed_by_its_neighbour", own: same, run: func(w *world) {
		p := w.start(w.bystander, nil, "hold")
		p.await("ready")
		w.holds("kill", w.try(w.box, "kill-all"), ended(run.Signalled, run.Exited))
		if err := p.Signal(w.ctx(), syscall.SIGKILL); err != nil {
			w.Error(err)
		}
		w.holds("the neighbour's program", p.finish(), signalled("SIGKILL"))
	}},
}

// signalsStay sends signals to every number there may be.
func signalsStay(w *world) {
	p := w.start(w.bystander, nil, "hold")
	p.await("ready")
	for pid := 2; pid < 60; pid++ {
		w.try(w.box, "kill", strconv.Itoa(pid), strconv.Itoa(int(syscall.SIGTERM)))
	}
	if err := p.Signal(w.ctx(), syscall.SIGKILL); err != nil {
		w.Error(err)
	}
	w.holds("the neighbour's program", p.finish(), signalled("SIGKILL"))
}

// neighbourBombs uses a sandbox's limits up while its neighbour works.
func neighbourBombs(words ...string) func(*world) {
	return func(w *world) {
		hold := w.start(w.bystander, nil, "hold")
		hold.await("ready")
		p := w.start(w.box, func(e *execenv.ExecSpec) { e.Timeout = 2 * time.Second }, words...)
		for range 3 {
			begin := time.Now()
			w.holds("the neighbour", w.try(w.bystander, "alloc", "30000000"), exited(0))
			w.holds("the neighbour", w.try(w.bystander, "fork", "10"), exited(0))
			if d := time.Since(begin); d > 30*time.Second {
				w.Errorf("the neighbour takes %s", d)
			}
		}
		if r := p.finish(); r.Outcome.Kind == run.InfrastructureLost || r.Outcome.Success() {
			w.Errorf("the bomb ended as %v (%s)", r.Outcome, r.Outcome.Evidence)
		}
		if err := hold.Signal(w.ctx(), syscall.SIGKILL); err != nil {
			w.Error(err)
		}
		w.holds("the neighbour's program", hold.finish(), signalled("SIGKILL"))
	}
}
