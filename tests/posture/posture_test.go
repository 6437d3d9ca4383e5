// Package posture looks at the running processes of a real service with a live
// sandbox, from the host, and compares what they hold with what they may hold.
// Each table has a reason for every entry. What is not in it fails, and so does
// an entry that is not there: a table that is too wide hides the next mistake.
package posture

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

const (
	guest = "/.agentdock/agentdock-guest"
	// firstID begins the host users of sandboxes, see gvisor.firstHostID.
	firstID = 1_879_048_192
)

// live is a service with a sandbox in which a program runs.
type live struct {
	execd *testenv.Execd
	box   execenv.Sandbox
	id    string
	image string // the root image's file
}

func start(t *testing.T) live {
	t.Helper()
	return startWith(t, run.DefaultLimits())
}

func startWith(t *testing.T, limits run.Limits) live {
	t.Helper()
	testenv.RequireRoot(t)
	images := testenv.BareStore(t)
	l := live{execd: testenv.StartExecd(t, images, "--max-cpu", "2"), id: "posture"}
	client := l.execd.Dial()
	var err error
	l.box, err = client.Create(t.Context(), execenv.Spec{ID: l.id, Image: testenv.BareImage, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	info, err := l.box.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.image = filepath.Join(images, "blobs/sha256", strings.TrimPrefix(info.ImageDigest, "sha256:")+".erofs")
	if _, err := l.box.Exec(t.Context(), execenv.ExecSpec{Argv: []string{guest, "probe", "hold"}}); err != nil {
		t.Fatal(err)
	}
	return l
}

// inside runs a probe in the sandbox.
func (l live) inside(t *testing.T, args ...string) string {
	t.Helper()
	c, err := l.box.Exec(t.Context(), execenv.ExecSpec{Argv: append([]string{guest, "probe"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := c.Output(t.Context(), 0, func(chunk execenv.Chunk) error { out.Write(chunk.Data); return nil }); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const (
	noCapability = "0000000000000000"
	// SYS_ADMIN 21, SETUID 7, SETGID 6, DAC_OVERRIDE 1: see the table "kept" of
	// cmd/agentdock-execd, where each has its reason.
	servicesCapabilities = "00000000002000c2"
	// SYS_PTRACE 19
	sentrysCapability = "0000000000080000"
)

// serviceStatus holds for the service and each of its threads.
var serviceStatus = []field{
	{"Uid", "0 0 0 0", "it maps users and writes control groups"},
	{"Gid", "0 0 0 0", "the same"},
	{"CapInh", noCapability, "nothing it starts inherits any"},
	{"CapPrm", servicesCapabilities, "what starting a sentry takes"},
	{"CapEff", servicesCapabilities, "the same"},
	{"CapBnd", servicesCapabilities, "not even a root program it would execute gets more"},
	{"CapAmb", noCapability, "nothing it starts inherits any"},
	{"NoNewPrivs", "1", "no setuid program gives it more"},
}

func (l live) serviceKnown() map[string]string {
	return map[string]string{
		os.DevNull:                 "null device",
		l.execd.StateDir + "/lock": "lock of the state directory",
	}
}

// serviceFiles is what the service may have open: no image, no control group,
// no terminal.
var serviceFiles = map[string]allowed{
	"read-only null device":                {0, 1, "standard input as it was given; closed once it has no use"},
	"writable null device":                 {0, 1, "standard output, the same"},
	"writable lock of the state directory": {1, 1, "two services must not share it"},
	"memfd:empty":                          {3, many, "standard files of sandboxes, sealed; programs without input read one"},
	"pipe":                                 {1, many, "its log, and programs' output"},
	"unix socket":                          {3, many, "its listener, callers, controls of the sandbox"},
	"eventpoll":                            {1, many, "the Go runtime's"},
	"eventfd":                              {1, many, "the same"},
	"pidfd":                                {1, many, "watches the sentry"},
}

func TestService(t *testing.T) {
	l := start(t)
	p := look(t, l.execd.Pid())
	report(t, wrongStatus(p.status, serviceStatus))
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.pid))
	if len(threads) < 2 {
		t.Errorf("threads are %q", threads)
	}
	for _, thread := range threads {
		if _, err := os.Stat(thread); err == nil {
			report(t, wrongStatus(readStatus(t, thread), serviceStatus))
		}
	}

	host := look(t, os.Getpid())
	for _, ns := range allNamespaces {
		own := ns == "mnt" // what it mounts is never seen outside
		if got := p.namespaces[ns] != host.namespaces[ns]; got != own {
			t.Errorf("its %s namespace is its own: %v, want %v", ns, got, own)
		}
	}
	report(t, wrongFiles(p, l.serviceKnown(), serviceFiles))
	wantEnv := []string{"AGENTDOCK_EXECD_STAGE=isolated", "PATH=" + execd.Path}
	if slices.Sort(p.environ); !slices.Equal(p.environ, wantEnv) {
		t.Errorf("environment is %q, want %q", p.environ, wantEnv)
	}
	for _, m := range p.mounts {
		if strings.Contains(m.options, "shared:") || strings.Contains(m.options, "master:") {
			t.Errorf("mount is not private: %s", m)
		}
	}
	if p.root != "/" {
		t.Errorf("root is %s", p.root)
	}
}

// sentryFiles is what the sandbox's process may have open, and its helpers with
// it, which are copies of it.
var sentryFiles = map[string]allowed{
	"read-only null device": {1, 1, "standard input of gVisor"},
	"writable null device":  {2, 2, "standard output and error of gVisor"},
	"read-only root image":  {1, 1, "the sandbox's root; the host's page cache shares it"},
	"read-only guest image": {1, 1, "the helper"},
	"memfd:empty":           {3, 4, "standard files of init, and a program's input; sealed"},
	"memfd:runsc-memory":    {1, 1, "the sandbox's memory"},
	"memfd:memory-usage":    {1, 1, "gVisor's count of it"},
	"memfd:systrap-memory":  {1, 1, "shared with the helpers"},
	"pipe":                  {2, 12, "the Go runtime's, and programs' output"},
	"unix socket":           {2, 8, "gVisor's control connection, init's"},
	"eventfd":               {1, 8, "the Go runtime's and gVisor's"},
	"eventpoll":             {1, 4, "the same"},
	"seccomp notify":        {0, 4, "how gVisor hears from its helpers"},
	"seccomp":               {0, 4, "the same, as newer kernels call it"},
	"pidfd":                 {0, 4, "watches a process of its own PID namespace"},
}

func (l live) known() map[string]string {
	return map[string]string{
		os.DevNull:                        "null device",
		l.image:                           "root image",
		l.execd.StateDir + "/guest.erofs": "guest image",
	}
}

// sentryStatus holds for the sandbox's process and its helpers, which run as user.
func sentryStatus(user string) []field {
	four := strings.Join([]string{user, user, user, user}, " ")
	return []field{
		{"Uid", four, "a user that nothing else of the host has"},
		{"Gid", four, "the same"},
		{"Groups", "", "supplementary groups would reach files of the host"},
		{"CapInh", noCapability, "none to pass on"},
		{"CapPrm", sentrysCapability, "over its helpers, in its own user namespace only"},
		{"CapEff", sentrysCapability, "the same"},
		{"CapBnd", sentrysCapability, "no more can be had"},
		{"CapAmb", noCapability, "none to pass on"},
		{"NoNewPrivs", "1", "no setuid program gives it more"},
		{"Seccomp", "2", "gVisor's allow-list of system calls"},
	}
}

func TestSentryAndItsHelpers(t *testing.T) {
	l := start(t)
	sentry := l.execd.Sentry(l.id)
	if sentry == 0 {
		t.Fatal("the sandbox has no process")
	}
	service := look(t, l.execd.Pid())
	first := look(t, sentry)
	user := strings.Fields(first.status["Uid"])[0]
	var uid int
	if _, err := fmt.Sscan(user, &uid); err != nil || uid < firstID {
		t.Errorf("the sentry's user is %q, want one from %d on", user, firstID)
	}
	pids := append([]int{sentry}, testenv.Descendants(sentry)...)
	if len(pids) < 2 {
		t.Errorf("there are no helper processes: %v", pids)
	}
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			continue // ended meanwhile
		}
		t.Run(fmt.Sprintf("process_%d", slices.Index(pids, pid)), func(t *testing.T) {
			p := look(t, pid)
			report(t, wrongStatus(p.status, sentryStatus(user)))
			for _, ns := range allNamespaces {
				// The cgroup namespace only hides names below /proc, which its
				// root does not have; it has no clock of its own to hide.
				own := ns != "cgroup" && ns != "time"
				if got := p.namespaces[ns] != service.namespaces[ns]; got != own {
					t.Errorf("its %s namespace is its own: %v, want %v", ns, got, own)
				}
				if p.namespaces[ns] != first.namespaces[ns] {
					t.Errorf("its %s namespace is not the sentry's", ns)
				}
			}
			report(t, wrongFiles(p, l.known(), sentryFiles))
			if len(p.environ) > 0 {
				t.Errorf("environment is %q, want none", p.environ)
			}
			if len(p.mounts) != 1 || p.mounts[0].point != "/" || p.mounts[0].kind != "tmpfs" || !strings.HasPrefix(p.mounts[0].options, "ro,") ||
				strings.Contains(p.mounts[0].options, "shared:") || strings.Contains(p.mounts[0].options, "master:") {
				t.Errorf("mounts are %v, want one read-only tmpfs", p.mounts)
			}
			if p.root != "/" || p.cwd != "/" {
				t.Errorf("root is %s, directory is %s", p.root, p.cwd)
			}
		})
	}
	// No file of the host: directories, and a copy of the time zone, which gVisor
	// makes before the root becomes read-only.
	want := []string{"etc", "etc/localtime", "proc"}
	if _, err := os.Stat("/etc/localtime"); err != nil {
		want = []string{"etc", "proc"}
	}
	if got := below(t, first); !slices.Equal(got, want) {
		t.Errorf("the sentry's root holds %q, want %q", got, want)
	}
}

// A workspace on disk is one more file, and all that is different.
func TestWorkspaceOnDisk(t *testing.T) {
	limits := run.DefaultLimits()
	limits.MemoryBytes, limits.DiskBytes = 128*run.MiB, 256*run.MiB
	l := startWith(t, limits)
	sentry := l.execd.Sentry(l.id)
	look := func(pid int, known map[string]string, table map[string]allowed) {
		p := look(t, pid)
		for _, f := range p.files {
			if strings.HasPrefix(f.target, l.execd.StateDir+"/#") && strings.HasSuffix(f.target, " (deleted)") {
				known[f.target] = "file without a name"
			}
		}
		table = maps.Clone(table)
		table["writable file without a name"] = allowed{1, 1, "what the workspace holds"}
		report(t, wrongFiles(p, known, table))
	}
	look(l.execd.Pid(), l.serviceKnown(), serviceFiles)
	for _, pid := range append([]int{sentry}, testenv.Descendants(sentry)...) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			look(pid, l.known(), sentryFiles)
		}
	}
}

func TestInit(t *testing.T) {
	l := start(t)
	report(t, wrongStatus(parseStatus(l.inside(t, "status", "1")), []field{
		{"Pid", "1", "it is the sandbox's first process"},
		{"Uid", "0 0 0 0", "it owns the sandbox's control groups"},
		{"Gid", "0 0 0 0", "the same"},
		{"Groups", "", "none are needed"},
		{"CapInh", noCapability, "it has set the sandbox up and given all up"},
		{"CapPrm", noCapability, "the same"},
		{"CapEff", noCapability, "the same"},
		{"CapBnd", noCapability, "the same"},
		{"CapAmb", noCapability, "the same"},
		{"NoNewPrivs", "1", "no setuid program gives it more"},
	}))
}

// Two sandboxes never share a user, or a namespace through which they could meet.
func TestSandboxesShareNothing(t *testing.T) {
	l := start(t)
	client := l.execd.Dial()
	if _, err := client.Create(t.Context(), execenv.Spec{ID: "other", Image: testenv.BareImage, Limits: run.DefaultLimits(), Lifetime: time.Minute}); err != nil {
		t.Fatal(err)
	}
	one, two := look(t, l.execd.Sentry(l.id)), look(t, l.execd.Sentry("other"))
	if one.status["Uid"] == two.status["Uid"] || one.status["Gid"] == two.status["Gid"] {
		t.Errorf("both run as %s", one.status["Uid"])
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		if one.namespaces[ns] == two.namespaces[ns] {
			t.Errorf("both are in %s", one.namespaces[ns])
		}
	}
}
