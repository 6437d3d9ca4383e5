package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

const patience = time.Minute

func spec(e *testEnvironment, id string) execenv.Spec {
	l := run.DefaultLimits()
	l.DiskBytes = 32 * run.MiB
	return execenv.Spec{ID: id, Image: testenv.BareImage, Limits: e.Capabilities().Enforces.Allow(l)}
}

func create(t *testing.T, e *testEnvironment, id string) execenv.Sandbox {
	t.Helper()
	sb, err := e.Create(t.Context(), spec(e, id))
	if err != nil {
		t.Fatalf("%v: %v", err, errors.Unwrap(err))
	}
	return sb
}

// hold starts a command that does not end by itself.
func hold(t *testing.T, sb execenv.Sandbox) execenv.Exec {
	t.Helper()
	x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{guestPath, "probe", "hold"}})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func wait(t *testing.T, x execenv.Exec) execenv.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := x.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A daemon that is killed takes no sandbox with it by itself: its containers would
// run on, looked after by nobody.
func TestDaemonIsKilled(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	sb := create(t, e, "one")
	supervisor := daemon.Pid(e.mustFind(t, "one").name())
	x := hold(t, sb)
	daemon.Kill()
	if r := wait(t, x); r.Outcome.Kind != run.InfrastructureLost || r.Outcome.Evidence == "" {
		t.Errorf("the command's outcome is %v (%s)", r.Outcome, r.Outcome.Evidence)
	}
	for deadline := time.Now().Add(patience); unix.Kill(supervisor, 0) == nil && !zombie(supervisor); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sandbox runs on without its daemon")
		}
	}
	if info, err := sb.Info(t.Context()); err != nil || info.State != execenv.StateEnded || info.Outcome.Kind != run.InfrastructureLost {
		t.Errorf("the sandbox is %+v, %v", info, err)
	}
	e.freeTimeout = 500 * time.Millisecond
	if err := e.Destroy(t.Context(), "one"); err == nil {
		t.Error("a sandbox was freed whose daemon is away")
	}
	if infos, _ := e.List(t.Context()); len(infos) != 1 {
		t.Errorf("what could not be freed is not listed: %v", infos)
	}
	if _, err := e.Create(t.Context(), spec(e, "two")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a sandbox without a daemon: %v", err)
	}

	daemon.Start()
	e.freeTimeout = patience
	if err := e.Destroy(t.Context(), "one"); err != nil {
		t.Errorf("after the daemon has come back: %v", err)
	}
	sb = create(t, e, "two")
	x = hold(t, sb)
	if err := x.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, x); r.Outcome.Kind != run.Cancelled {
		t.Errorf("with the daemon back, a command that is killed is %v", r.Outcome)
	}
	if err := e.Destroy(t.Context(), "two"); err != nil {
		t.Error(err)
	}
	if left := leftovers(t, e); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

func zombie(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err != nil || bytes.Contains(status, []byte("State:\tZ"))
}

// What a program does to the process that watches over it costs that command and
// saves nothing of it.
func TestWatcherIsAttacked(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	sb := create(t, e, "one")
	program, err := orphan()
	if err != nil {
		t.Fatal(err)
	}
	putProgram(t, sb, "orphan", program)
	bystander := hold(t, sb)
	supervisor := daemon.Pid(e.mustFind(t, "one").name())
	// Its children are the shepherd of the bystander and what nobody watches over.
	for name, sig := range map[string]unix.Signal{"kill": unix.SIGKILL, "stop": unix.SIGSTOP, "terminate": unix.SIGTERM} {
		x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"/workspace/orphan", "/workspace/beat-" + name, strconv.Itoa(int(sig))}, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := wait(t, x)
		if r.StdoutBytes == 0 {
			t.Fatalf("%s: the program did not get to its attack: %v", name, r.Outcome)
		}
		switch {
		case sig == unix.SIGSTOP && !r.Outcome.Success(), sig != unix.SIGSTOP && r.Outcome.Kind != run.Signalled:
			t.Errorf("%s: %v (%s)", name, r.Outcome, r.Outcome.Evidence)
		case r.Duration > 2*time.Second:
			t.Errorf("%s: it took %s", name, r.Duration)
		}
		// The dead are collected a moment later.
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			left := len(testenv.Descendants(supervisor))
			if left == 2 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d processes are left in the sandbox, want the bystander and its shepherd", name, left)
			}
		}
	}
	if info, err := sb.Info(t.Context()); err != nil || info.State != execenv.StateRunning {
		t.Errorf("the sandbox is %+v, %v", info, err)
	}
	if err := bystander.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := wait(t, bystander); r.Outcome.Kind != run.Cancelled {
		t.Errorf("the bystander is %v (%s)", r.Outcome, r.Outcome.Evidence)
	}
}

func putProgram(t *testing.T, sb execenv.Sandbox, name string, program []byte) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(program))})
	_, _ = w.Write(program)
	_ = w.Close()
	if err := sb.PutArchive(t.Context(), "", &archive); err != nil {
		t.Fatal(err)
	}
}

// TestAProgramStopsWhoStartedIt: it is faster than the process that watches over
// it can say that it runs, and has its limit all the same. Not each of them wins
// that race, so there are many.
func TestAProgramStopsWhoStartedIt(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	sb := create(t, e, "one")
	putProgram(t, sb, "stopper", stopper())
	bystander := hold(t, sb)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var tries sync.WaitGroup
	for range 30 {
		tries.Go(func() {
			x, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{"/workspace/stopper"}, Timeout: time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			if r, err := x.Wait(ctx); err != nil || r.Outcome.Kind != run.WallClock {
				t.Errorf("%v, %v", r.Outcome, err)
			}
		})
	}
	tries.Wait()
	if err := bystander.Kill(ctx); err != nil {
		t.Error(err)
	}
	if r := wait(t, bystander); r.Outcome.Kind != run.Cancelled {
		t.Errorf("the bystander: %v", r.Outcome)
	}
}

// stopper stops its parent and pauses for ever.
func stopper() []byte {
	return program86([]byte{
		0xb8, 110, 0, 0, 0, 0x0f, 0x05, // getppid
		0x89, 0xc7, 0xbe, 19, 0, 0, 0, 0xb8, 62, 0, 0, 0, 0x0f, 0x05, // kill(it, SIGSTOP)
		0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7, // pause, again and again
	})
}

// storm forks for ever, and so does all that comes of it.
func storm() []byte {
	return program86([]byte{0xb8, 57, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7})
}

// program86 is a program of a few instructions.
func program86(code []byte) []byte {
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
			Entry: base + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		},
		elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base,
			Filesz: size, Memsz: size, Align: 0x1000,
		},
		code,
	} {
		_ = binary.Write(&b, binary.LittleEndian, part) // of a fixed size, into memory
	}
	return b.Bytes()
}

var orphan = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "orphan")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "orphan"), "./orphan")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return out, err
	}
	return os.ReadFile(filepath.Join(dir, "orphan"))
})

// TestContainerIsHardened reads what the daemon has on record. That it is so is
// shown by the contract suite and the attacks; this finds what neither tries.
func TestContainerIsHardened(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	s := spec(e, "one")
	s.Labels = map[string]string{"agentdock.execution_id": "e1", "agentdock.sandbox": "no", "mine": "x"}
	sb, err := e.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	supervisor := daemon.Pid(e.mustFind(t, "one").name())
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", supervisor)); err != nil || string(score) != "1000\n" {
		t.Errorf("the kernel's word on whom to end for want of memory is %q, %v", score, err)
	}
	for _, place := range maskedPaths {
		x := start(t, sb, guestPath, "probe", "list", place)
		r := wait(t, x)
		var out strings.Builder
		if err := x.Output(t.Context(), 0, func(c execenv.Chunk) error { out.Write(c.Data); return nil }); err != nil {
			t.Error(err)
		}
		if names := strings.TrimPrefix(strings.TrimSpace(out.String()), place+" "); names != "0" && !strings.HasPrefix(names, "E") {
			t.Errorf("%s is seen: %q, %v", place, out.String(), r.Outcome)
		}
	}
	var c struct {
		Config struct {
			User    string
			Labels  map[string]string
			Volumes map[string]struct{}
		}
		HostConfig struct {
			NetworkMode, IpcMode, PidMode, UsernsMode, UTSMode string
			Privileged, ReadonlyRootfs, AutoRemove             bool
			CapAdd, CapDrop, SecurityOpt, Binds                []string
			Devices                                            []struct{}
			RestartPolicy                                      struct{ Name string }
			LogConfig                                          struct{ Type string }
			Tmpfs                                              map[string]string
		}
		Mounts []struct {
			Type, Destination string
			RW                bool
		}
	}
	daemon.Inspect(e.mustFind(t, "one").name(), &c)
	h := c.HostConfig
	for what, ok := range map[string]bool{
		"user":              c.Config.User == "10001:10001",
		"network":           h.NetworkMode == "none",
		"namespaces":        h.IpcMode == "none" && h.PidMode == "" && h.UsernsMode == "" && h.UTSMode == "",
		"privileged":        !h.Privileged,
		"read-only root":    h.ReadonlyRootfs,
		"capabilities":      len(h.CapAdd) == 0 && slices.Equal(h.CapDrop, []string{"ALL"}),
		"security options":  len(h.SecurityOpt) == 2 && h.SecurityOpt[0] == "no-new-privileges:true" && strings.HasPrefix(h.SecurityOpt[1], `seccomp={"defaultAction":"SCMP_ACT_ERRNO"`),
		"devices and binds": len(h.Devices) == 0 && len(h.Binds) == 0,
		"restart":           h.RestartPolicy.Name == "no",
		"log":               h.LogConfig.Type == "none",
		"volumes":           len(c.Config.Volumes) == 0,
		"labels":            c.Config.Labels["agentdock.sandbox"] == "true" && c.Config.Labels["agentdock.execution_id"] == "e1" && c.Config.Labels["mine"] == "x",
		"mounts":            len(c.Mounts) == 2,
		"places":            strings.Contains(h.Tmpfs["/workspace"], "size=33554432,nr_inodes=131072"),
	} {
		if !ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	for _, m := range c.Mounts {
		if m.RW || m.Type != "bind" || !strings.HasPrefix(m.Destination, "/.agentdock/") {
			t.Errorf("a mount that is not ours, or can be written: %+v", m)
		}
	}
}

// TestDaemonsThatAreRefused starts the ones that must not be used.
func TestDaemonsThatAreRefused(t *testing.T) {
	// Not in the test's directory, which the daemon's user cannot reach.
	f, err := os.CreateTemp("", "allow-all")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(`{"defaultAction":"SCMP_ACT_ALLOW"}`)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		t.Fatal(err)
	}
	rootful := testenv.StartRootfulDockerd(t)
	permissive := testenv.StartDockerd(t, "--seccomp-profile="+f.Name())
	for name, tc := range map[string]struct {
		daemon *testenv.Dockerd
		cfg    Config
		says   string
	}{
		"as root":                {rootful, Config{}, "runs as root"},
		"without its allow-list": {permissive, Config{}, "seccomp allow-list"},
	} {
		tc.cfg.Socket, tc.cfg.StateDir, tc.cfg.Guest = tc.daemon.Socket, filepath.Join(tc.daemon.Dir, "state"), "/bin/true"
		e, err := New(t.Context(), tc.cfg)
		if err == nil {
			_ = e.Close(t.Context())
		}
		if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
