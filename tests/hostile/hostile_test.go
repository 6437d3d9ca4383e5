package hostile

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestHostile runs every case, and looks after each whether anything but the
// attacker's own sandbox was harmed.
func TestHostile(t *testing.T) {
	testenv.RequireRoot(t)
	attacks(t, testenv.StartExecd(t, testenv.BareStore(t)))
}

// TestHostileInDocker runs the same against the development fallback. What it does
// not claim to hold is left out, by capability.
func TestHostileInDocker(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	attacks(t, testenv.StartDockerExecd(t, daemon))
}

func attacks(t *testing.T, service *testenv.Execd) {
	w := newWorld(t, service)
	plant(t, w.onHost())
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			fw := w.in(t)
			for _, a := range f.cases {
				t.Run(a.what, func(t *testing.T) {
					if missing := lacks(w.caps, f.name, a.what); missing != "" {
						t.Skip("not enforceable here: " + missing)
					}
					a.want = a.wants(w.caps, f.name)
					fw.attacked(t, a)
				})
				if n := w.services.visits.Load(); n > 0 {
					t.Fatalf("%s: %d connections came out of a sandbox", a.what, n)
				}
			}
			if fw.box != nil {
				fw.destroy(fw.box)
			}
		})
	}
	noCanaryIn(t, "the service's log", w.service.Log())
}

// attacked runs one case. The family's sandbox is made for the first case that
// shares it, and again if a case ended it.
func (w *world) attacked(t *testing.T, a attack) {
	c := w.in(t)
	if a.own != nil {
		c.box = c.create(a.own)
		defer func() { c.destroy(c.box); w.unharmed(t) }()
	} else {
		if w.box == nil {
			w.box = c.create(nil)
		}
		c.box = w.box
		defer func() {
			if info, err := c.box.Info(c.ctx()); err != nil || info.State != execenv.StateRunning {
				t.Errorf("the family's sandbox has ended: %+v, %v", info.Outcome, err)
				c.destroy(c.box)
				w.box = nil
			} else {
				c.holds("after the command", c.try(c.box, "survivors"), nothing)
			}
			w.unharmed(t)
		}()
	}
	if a.run != nil {
		a.run(c)
		return
	}
	words := c.expand(a.do)
	r := c.start(c.box, a.with, words...).finish()
	c.holds(strings.Join(words, " "), r, a.want...)
}

// unharmed looks at what an attack must not have touched: the service answers
// and holds what it should, the bystander works, the host is as it was.
func (w *world) unharmed(t *testing.T) {
	t.Helper()
	c := w.in(t)
	infos, err := c.client.List(c.ctx())
	if err != nil {
		t.Errorf("the service does not answer: %v", err)
	}
	for _, i := range infos {
		if i.ID == c.bystander.ID() && i.State != execenv.StateRunning {
			t.Errorf("the bystander is %s: %v", i.State, i.Outcome)
		}
	}
	c.holds("the bystander", c.try(c.bystander, "survivors"), nothing)
	if now := readHost(t); now != w.host {
		t.Errorf("the host has changed:\n%+v\nwas\n%+v", now, w.host)
	}
	if rss := memoryOf(c.service.Pid()); rss > serviceMemory {
		t.Errorf("the service holds %d MiB", rss/run.MiB)
	}
}

// expand puts in what is known only here.
func (w *world) expand(words []string) []string {
	vars := w.services.vars()
	vars["$victim"] = "1" // init: another user's process, and the only one in sight
	vars["$group"] = "/sys/fs/cgroup/" + w.box.ID() + "/x"
	vars["$id"] = w.box.ID()
	vars["$service"] = w.service.Socket
	vars["$hostpid"] = strconv.Itoa(os.Getpid())
	return expand(words, vars)
}

// serviceMemory is more than the service needs for all that the suite keeps in
// it: output of ended commands above all.
const serviceMemory = 512 * run.MiB

// hostState is what a program that got out would like to change.
type hostState struct {
	name, corePattern, modprobe, swaps, forward, sysrq string
}

func readHost(t testing.TB) hostState {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return hostState{
		name:        unix.ByteSliceToString(u.Nodename[:]),
		corePattern: read("/proc/sys/kernel/core_pattern"),
		modprobe:    read("/proc/sys/kernel/modprobe"),
		swaps:       read("/proc/swaps"),
		forward:     read("/proc/sys/net/ipv4/ip_forward"),
		sysrq:       read("/proc/sys/kernel/sysrq"),
	}
}

func memoryOf(pid int) int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	var size, resident int64
	_, _ = fmt.Sscan(string(data), &size, &resident)
	return resident * int64(os.Getpagesize())
}

// TestEveryCaseIsWhole finds lines that prove nothing.
func TestEveryCaseIsWhole(t *testing.T) {
	seen, total := map[string]bool{}, 0
	for _, f := range families() {
		controls := 0
		for _, a := range f.cases {
			name := f.name + "/" + a.what
			total++
			if seen[name] {
				t.Errorf("%s: there are two of that name", name)
			}
			seen[name] = true
			if (a.run == nil) == (len(a.do) == 0) {
				t.Errorf("%s: needs either something to do or a function", name)
			}
			if a.run == nil && len(a.want) == 0 {
				t.Errorf("%s: expects nothing", name)
			}
			if a.dangerous && a.bites.how != "" {
				t.Errorf("%s: is too dangerous for a control, and has one", name)
			}
			if a.bites.how != "" {
				controls++
			}
		}
		if controls == 0 {
			t.Errorf("%s: no case has a control", f.name)
		}
	}
	if total < 120 {
		t.Errorf("there are %d cases, fewer than 120", total)
	}
}
