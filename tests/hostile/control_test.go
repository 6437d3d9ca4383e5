package hostile

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// control is a run of the same attempt where nothing protects. It must get
// through there.
type control struct {
	// how says where it runs, for people; empty is no control.
	how string
	// run does it and fails the test if it is stopped.
	run func(b *bench, words []string)
}

// The places where controls run. All of them end with the test.
var (
	asUser = control{"as an ordinary user of the host", func(b *bench, words []string) { b.through(b.user(), words) }}
	asRoot = control{"as root of the host, in namespaces of its own", func(b *bench, words []string) { b.through(b.root(), words) }}
	// asOwner keeps the host's processes in sight.
	asOwner = control{"as root of the host", func(b *bench, words []string) { b.through(nil, words) }}
	// onTmpfs gives the attempt a memory file system that is large enough.
	onTmpfs = control{"on a memory file system without a quota, in a mount namespace of its own", func(b *bench, words []string) {
		b.through(b.root(), append([]string{"on-tmpfs"}, words...))
	}}
)

// withMemory runs where the limit is above what the attempt takes: it shows
// that the attempt really takes it.
func withMemory(limit int64) control {
	return control{"in a control group with more memory", func(b *bench, words []string) {
		h, err := cgroup.Detect()
		if err != nil {
			b.Fatal(err)
		}
		g := h.Group(filepath.Join(testenv.CgroupParent, newID()))
		if err := g.Create(cgroup.Limits{MemoryBytes: limit}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := g.Destroy(context.Background()); err != nil {
				b.Error(err)
			}
		})
		cmd := b.command(b.root(), append([]string{"after-stdin"}, words...))
		gate, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if err := g.Add(cmd.Process.Pid); err != nil {
			b.Error(err)
		}
		_ = gate.Close()
		b.judge(words, cmd.Wait(), out.String())
	}}
}

// instead runs other words, where the attempt needs a stage on the host.
func instead(c control, words ...string) control {
	return control{c.how, func(b *bench, _ []string) { c.run(b, words) }}
}

// shown is a control that is a function.
func shown(how string, run func(b *bench)) control {
	return control{how, func(b *bench, _ []string) { run(b) }}
}

// TestControls runs the controls.
func TestControls(t *testing.T) {
	testenv.RequireRoot(t)
	program, err := attackProgram()
	if err != nil {
		t.Fatal(err)
	}
	s := openServices(t)
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			for _, a := range f.cases {
				if a.bites.how == "" {
					continue
				}
				t.Run(a.what, func(t *testing.T) {
					b := newBench(t, program, s)
					a.bites.run(b, a.do)
				})
			}
		})
	}
}

// bench is a place on the host for one control.
type bench struct {
	*testing.T
	dir, program string
	services     *services
}

func newBench(t *testing.T, program []byte, s *services) *bench {
	// Not t.TempDir, which ordinary users cannot enter.
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{T: t, dir: dir, program: filepath.Join(dir, ".attack"), services: s}
	if err := os.WriteFile(b.program, program, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, b.program} {
		if err := os.Chown(name, execenv.UID, execenv.GID); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) user() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: execenv.UID, Gid: execenv.GID}}
}

func (b *bench) root() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		// Unlike with Cloneflags, mounts made there do not come back here.
		Unshareflags: unix.CLONE_NEWNS,
	}
}

func (b *bench) command(attr *syscall.SysProcAttr, words []string) *exec.Cmd {
	b.Helper()
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = unix.SIGKILL
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, b.program, b.expand(words)...)
	cmd.Dir, cmd.SysProcAttr = b.dir, attr
	cmd.Env = []string{"PATH=" + execenv.Path}
	return cmd
}

// through runs an attempt that must succeed.
func (b *bench) through(attr *syscall.SysProcAttr, words []string) (output string) {
	b.Helper()
	var out bytes.Buffer
	cmd := b.command(attr, words)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	b.judge(words, err, out.String())
	return out.String()
}

func (b *bench) judge(words []string, err error, out string) {
	b.Helper()
	if err != nil {
		b.Errorf("the control does not bite: %s: %v\n%s", strings.Join(words, " "), err, clip(out))
	}
}

// victim is a process of the same user that does no harm.
func (b *bench) victim() int {
	b.Helper()
	cmd := b.command(b.user(), []string{"hold"})
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		b.Fatal(err)
	}
	return cmd.Process.Pid
}

// expand puts in what is known only here.
func (b *bench) expand(words []string) []string {
	b.Helper()
	vars := b.services.vars()
	for _, w := range words {
		if strings.Contains(w, "$victim") && vars["$victim"] == "" {
			vars["$victim"] = strconv.Itoa(b.victim())
		}
		if strings.Contains(w, "$group") && vars["$group"] == "" {
			vars["$group"] = b.group()
		}
	}
	return expand(words, vars)
}

// group is a control group that may be written to.
func (b *bench) group() string {
	b.Helper()
	h, err := cgroup.Detect()
	if err != nil {
		b.Fatal(err)
	}
	g := h.Group(filepath.Join(testenv.CgroupParent, newID()))
	if err := g.Create(cgroup.Limits{PIDs: 100, MemoryBytes: run.GiB}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		for _, d := range g.Dirs() {
			_ = os.Remove(filepath.Join(d, "new"))
		}
		if err := g.Destroy(context.Background()); err != nil {
			b.Error(err)
		}
	})
	for _, d := range g.Dirs() {
		if _, err := os.Stat(filepath.Join(d, "pids.max")); err == nil {
			return d
		}
	}
	b.Fatal("the control group counts no processes")
	return ""
}

func expand(words []string, vars map[string]string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		for name, value := range vars {
			w = strings.ReplaceAll(w, name, value)
		}
		out[i] = w
	}
	return out
}
