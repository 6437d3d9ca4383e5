package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// kind is a kind of process that is killed.
type kind string

const (
	killExecd  kind = "execd"
	killSentry kind = "sentry"
	// killStub kills one of the processes in which the sentry lets programs of
	// the sandbox run, its init's and the helper's among them.
	killStub kind = "sentry's helper process"
	// killGuest kills all commands and archive helpers inside a sandbox.
	killGuest  kind = "everything of the user in a sandbox"
	killClient kind = "client"
	// stopSentry stops a sentry for longer than its commands may run. It comes on
	// top of the kills that were asked for.
	stopSentry kind = "sentry stopped (SIGSTOP) past a command's limit, not counted as a kill"
)

// shares are parts of a hundred.
var shares = []struct {
	kind  kind
	share int
}{{killExecd, 6}, {killSentry, 32}, {killStub, 37}, {killGuest, 15}, {killClient, 10}, {stopSentry, 2}}

// schedule is n kills or more in a random order, one of each kind at least, and
// the stops.
func schedule(rng *rand.Rand, n int) []kind {
	var all []kind
	stops := 0
	for _, s := range shares {
		for range max(1, n*s.share/100) {
			all = append(all, s.kind)
			if s.kind == stopSentry {
				stops++
			}
		}
	}
	for len(all) < n+stops {
		all = append(all, killSentry)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// kill kills one of a kind, as soon as there is one.
func (w *world) kill(k kind) {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if w.try(k) {
			w.tally.killed(k)
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("there is no %s to kill for %v", k, patience)
		}
	}
}

func (w *world) try(k kind) bool {
	switch k {
	case killExecd:
		return w.killExecd()
	case killClient:
		return w.killClient()
	case stopSentry:
		w.busy.Go(w.frozen)
		return true
	}
	id, pid := w.pickSandbox()
	if pid == 0 {
		return false
	}
	switch k {
	case killSentry:
		return w.killSentry(id, pid)
	case killStub:
		stubs := testenv.Descendants(pid)
		if len(stubs) == 0 {
			return false
		}
		w.tally.touched(id, k)
		return unix.Kill(stubs[w.rng.IntN(len(stubs))], unix.SIGKILL) == nil
	default:
		return w.killGuest(id)
	}
}

// pickSandbox picks one in sorted order, so that it depends on the seed.
func (w *world) pickSandbox() (id string, pid int) {
	sentries := w.execd.Sentries()
	ids := make([]string, 0, len(sentries))
	for id := range sentries {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return "", 0
	}
	sort.Strings(ids)
	id = ids[w.rng.IntN(len(ids))]
	return id, sentries[id]
}

// killExecd kills the service, measures until all it started is gone, and
// starts it again.
func (w *world) killExecd() bool {
	sentries, all := &watched{}, &watched{}
	defer sentries.close()
	defer all.close()
	for _, pid := range w.execd.Sentries() {
		sentries.add(pid)
	}
	if len(sentries.files) == 0 {
		return false // nothing would be measured
	}
	for _, pid := range testenv.Descendants(w.execd.Pid()) {
		all.add(pid)
	}
	begun := time.Now()
	if err := unix.Kill(w.execd.Pid(), unix.SIGKILL); err != nil {
		return false
	}
	gone := sentries.gone(begun)
	w.tally.took(execdToSentries, gone)
	w.tally.took(execdToAll, all.gone(begun))
	w.execd.Kill() // waits for it
	begun = time.Now()
	w.execd.Start()
	w.tally.took(execdToReady, time.Since(begun))
	for begun := time.Now(); time.Since(begun) < patience; {
		if _, err := w.env.List(context.Background()); !fault.Is(err, fault.Unavailable) {
			break
		}
	}
	w.files = w.execd.Files()
	return true
}

// watched are processes whose end is waited for.
type watched struct{ files []unix.PollFd }

func (p *watched) add(pid int) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		p.files = append(p.files, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
}

func (p *watched) gone(since time.Time) time.Duration {
	for i := range p.files {
		for {
			n, err := unix.Poll(p.files[i:i+1], int(patience.Milliseconds()))
			if n == 1 {
				break
			}
			if !errors.Is(err, unix.EINTR) {
				return patience
			}
		}
	}
	return time.Since(since)
}

func (p *watched) close() {
	for _, f := range p.files {
		unix.Close(int(f.Fd))
	}
}

// killSentry kills a sandbox's kernel and measures until nothing of the sandbox
// runs.
func (w *world) killSentry(id string, pid int) bool {
	group := w.execd.Groups()[id]
	if group == nil {
		return false
	}
	w.tally.touched(id, killSentry)
	begun := time.Now()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return false
	}
	w.busy.Go(func() {
		for time.Since(begun) < patience {
			if pids, err := group.Procs(); err == nil && len(pids) == 0 {
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
		w.tally.took(sentryToEmpty, time.Since(begun))
	})
	return true
}

// killGuest has a command in the sandbox kill all that it may.
func (w *world) killGuest(id string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	sb, err := w.env.Attach(ctx, id)
	if err != nil {
		return false
	}
	w.tally.touched(id, killGuest)
	x, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{execenv.Workspace + "/bin/program", "kill"}})
	if err != nil {
		return false
	}
	r, err := x.Wait(ctx)
	return err == nil && r.Outcome.Kind == run.Exited
}

// killClient kills a client, starts another, and destroys what it left.
func (w *world) killClient() bool {
	i := w.rng.IntN(len(w.clients))
	prefix := w.clients[i].prefix + "-"
	w.clients[i].kill()
	w.clients[i] = w.startClient()
	w.busy.Go(func() {
		for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			infos, err := w.env.List(ctx)
			for _, info := range infos {
				if err == nil && strings.HasPrefix(info.ID, prefix) {
					err = w.env.Destroy(ctx, info.ID)
				}
			}
			cancel()
			if err == nil {
				return
			}
		}
		w.t.Errorf("what client %s left cannot be destroyed", prefix)
	})
	return true
}

// frozen stops a sentry for longer than its command may run. The outcome is the
// clock's, although the sandbox's kernel cannot kill the command.
func (w *world) frozen() {
	const limit = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	env, err := execrpc.DialUnix(ctx, w.calm.Socket)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer env.Close()
	id := "frozen-" + w.tally.unique()
	defer func() {
		if err := env.Destroy(ctx, id); err != nil {
			w.t.Errorf("a stopped sandbox cannot be destroyed: %v", err)
		}
	}()
	program, err := os.ReadFile(w.program)
	if err != nil {
		w.t.Error(err)
		return
	}
	sb, err := env.Create(ctx, execenv.Spec{ID: id, Image: testenv.BareImage, Limits: limits()})
	if err == nil {
		err = sb.PutArchive(ctx, "bin", tarOf("program", program))
	}
	if err != nil {
		w.t.Errorf("%s: %v", id, err)
		return
	}
	x, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{execenv.Workspace + "/bin/program", "hold"}, Timeout: limit})
	if err != nil {
		w.t.Errorf("%s: %v", id, err)
		return
	}
	begun := time.Now()
	pid := w.calm.Sentry(id)
	if pid == 0 {
		w.t.Errorf("%s has no process", id)
		return
	}
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		w.t.Errorf("%s: %v", id, err)
		return
	}
	r, err := x.Wait(ctx)
	if err != nil {
		w.t.Errorf("%s: %v", id, err)
		return
	}
	w.tally.took(stoppedToOutcome, time.Since(begun)-limit)
	e := event{What: "exec", Sandbox: id, Outcome: string(r.Outcome.Kind)}
	if r.Outcome.Kind != run.WallClock {
		e.Violation = "the sentry was stopped, and the command past its limit ended as " + r.Outcome.String() + ": " + r.Outcome.Evidence
	}
	w.tally.saw(e)
}
