package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/run"
)

// verifyTimeout bounds Verify; on a quiet machine it takes a tenth of a second.
const verifyTimeout = 30 * time.Second

// verifyLimits are those of the sandbox that Verify makes: small, and none of
// them what a kernel would have by itself.
func verifyLimits() run.Limits {
	return run.Limits{
		MilliCPU: 900, MemoryBytes: 96 * run.MiB, PIDs: 48, DiskBytes: run.MiB, Inodes: 64,
		OutputBytes: 64 * run.KiB, WallClock: 10 * time.Second,
	}
}

// Verify makes one sandbox without an image of anybody, looks from outside and
// from inside whether it is confined as Capabilities claim, and destroys it
// (REQUIREMENTS C2). An error names every guarantee that this host does not
// give; the service must then not serve.
func (e *Environment) Verify(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	bare := filepath.Join(e.cfg.StateDir, "verify.erofs")
	if err := image.WriteBare(bare); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(bare)) }()
	spec := execenv.Spec{ID: "verify-" + strings.ToLower(rand.Text()[:12]), Image: "bare", Limits: verifyLimits()}
	var b *box
	_, err = e.boxes.Create(ctx, spec, func() *box { b = newBox(e, spec, bare, ""); return b })
	if err != nil {
		return fault.Wrap(fault.Unsupported, err, "a sandbox does not start on this host")
	}
	problems := append(verifyGroup(b), verifySentry(b)...)
	inside, insideErr := verifyInside(ctx, b)
	problems = append(problems, inside...)
	destroyErr := e.Destroy(ctx, spec.ID)
	if b.group.Exists() {
		problems = append(problems, "C3: its control group is left")
	}
	if err := errors.Join(insideErr, destroyErr); err != nil {
		return fault.Wrap(fault.Unsupported, err, "a sandbox does not work on this host")
	}
	if len(problems) > 0 {
		return fault.New(fault.Unsupported, "this host does not give what sandboxes need: %s", strings.Join(problems, "; "))
	}
	return nil
}

// verifyGroup looks whether the kernel took the limits, and holds to them all
// that the sandbox consists of.
func verifyGroup(b *box) (problems []string) {
	if err := b.group.Confirm(hostLimits(b.Spec.Limits)); err != nil {
		problems = append(problems, "A5g: "+err.Error())
	}
	if _, err := b.group.Stats(); err != nil {
		problems = append(problems, "A5g: cannot read what the sandbox uses: "+err.Error())
	}
	members, err := b.group.Procs()
	if err != nil {
		problems = append(problems, "A5g: "+err.Error())
	}
	for _, pid := range tree(b.sentry.Getpid()) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil && !slices.Contains(members, pid) {
			problems = append(problems, fmt.Sprintf("A5g: process %d of the sandbox is outside its control group", pid))
		}
	}
	return problems
}

func tree(root int) []int {
	all := []int{root}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// verifySentry reads what the kernel says about the sandbox's process.
func verifySentry(b *box) (problems []string) {
	pid := b.sentry.Getpid()
	id := fmt.Sprint(b.user)
	four := strings.Join([]string{id, id, id, id}, " ")
	status, err := processStatus(pid)
	if err != nil {
		return []string{"A5d: " + err.Error()}
	}
	for _, w := range []struct{ id, field, want string }{
		{"A5b", "Uid", four},
		{"A5b", "Gid", four},
		{"A5d", "Seccomp", "2"},
		{"A5d", "NoNewPrivs", "1"},
	} {
		if got := status[w.field]; got != w.want {
			problems = append(problems, fmt.Sprintf("%s: %s of the sandbox's process is %q, want %q", w.id, w.field, got, w.want))
		}
	}
	for _, ns := range []struct{ id, name string }{{"A5b", "user"}, {"A5a", "net"}, {"A5d", "mnt"}, {"A5d", "pid"}, {"A5d", "ipc"}, {"A5d", "uts"}} {
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns.name))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns.name)
		if err := errors.Join(err1, err2); err != nil || theirs == ours {
			problems = append(problems, fmt.Sprintf("%s: the sandbox's %s namespace is %q, the service's %q", ns.id, ns.name, theirs, ours))
		}
	}
	return problems
}

// processStatus is /proc/PID/status, with single spaces.
func processStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, fmt.Errorf("cannot look at the sandbox's process: %w", err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields, nil
}

// verifyInside runs probes in the sandbox. What they must print is what they
// print nowhere else.
func verifyInside(ctx context.Context, b *box) (problems []string, err error) {
	none := strings.Repeat("0", 16)
	for _, p := range []struct {
		id   string
		argv []string
		want string
	}{
		{"A5b, A5c", []string{"id"}, "uid 10001\ngid 10001\nCapInh " + none + "\nCapPrm " + none + "\nCapEff " + none +
			"\nCapBnd " + none + "\nCapAmb " + none + "\nno_new_privs 1\nsetuid EPERM\nchroot EPERM\n"},
		{"A5a", []string{"connect", "169.254.169.254:80"}, "interface lo\n169.254.169.254:80 ENETUNREACH\n"},
		{"A5e, A5f", []string{"write", "/", "/etc", guestDir, "/workspace"}, "/ EROFS\n/etc EROFS\n" + guestDir + " EROFS\n/workspace ok\n"},
	} {
		c, err := b.Exec(ctx, execenv.ExecSpec{Argv: append([]string{guestPath, "probe"}, p.argv...)})
		if err != nil {
			return problems, err
		}
		var said strings.Builder
		if err := c.Output(ctx, 0, func(chunk execenv.Chunk) error { said.Write(chunk.Data); return nil }); err != nil {
			return problems, err
		}
		r, err := c.Wait(ctx)
		if err != nil {
			return problems, err
		}
		if said.String() != p.want || !r.Outcome.Success() {
			problems = append(problems, fmt.Sprintf("%s: inside, probe %s prints %q and ends %s", p.id, p.argv[0], said.String(), r.Outcome))
		}
	}
	return problems, nil
}
