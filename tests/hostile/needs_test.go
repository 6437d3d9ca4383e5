package hostile

import (
	"path"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// need is what cases are about besides what every sandbox holds: an environment
// that declares that it lacks it is not attacked there.
type need struct {
	// cases is a pattern of FAMILY/CASE.
	cases, capability string
	has               func(execenv.Capabilities) bool
}

func ownKernel(c execenv.Capabilities) bool { return c.Isolation == execenv.IsolationKernel }
func memory(c execenv.Capabilities) bool    { return c.Enforces.Memory }
func processes(c execenv.Capabilities) bool { return c.Enforces.PIDs }
func processor(c execenv.Capabilities) bool { return c.Enforces.CPU }
func told(c execenv.Capabilities) bool {
	return c.Reports.PIDs && c.Reports.Disk && c.Reports.Inodes
}

const (
	aKernel = "a kernel of its own"
	telling = "telling that a command reached a limit"
)

var needs = []need{
	{"memory/*", "memory limit", memory},
	{"neighbours/memory_bomb", "memory limit", memory},
	{"processes/fork_bomb", "pids limit", processes},
	{"processes/thread_bomb", "pids limit", processes},
	{"processes/fork_storm", "pids limit", processes},
	{"neighbours/fork_storm", "pids limit", processes},
	{"cpu-and-time/processor_quota", "processor limit", processor},
	{"processes/fork_storm_to_its_limit", telling, told},
	{"disk-and-inodes/*_to_its_limit", telling, told},
	{"view/kernel", aKernel, ownKernel},
	{"view/kernel_by_proc", aKernel, ownKernel},
	{"view/processors", aKernel, ownKernel},
	{"view/memory", aKernel, ownKernel},
	{"view/host_disks", aKernel, ownKernel},
	{"view/boot_id", aKernel, ownKernel},
}

// tolerated is how cases may end besides, where programs are processes of the
// host's kernel, each with the reason why that is left at.
var tolerated = map[string]struct {
	want   []check
	reason string
}{
	"processes/kill_init":               {want(exited(0)), unfelt},
	"processes/stop_init":               {want(exited(0)), unfelt},
	"processes/fork_storm_ends_in_time": {want(ended(run.Signalled), within(12*time.Second)), overShare},
	"kernel-surface/netlink_audit":      {want(exited(0)), unprivilegedSockets},
	"kernel-surface/netlink_netfilter":  {want(exited(0)), unprivilegedSockets},
	"kernel-surface/type_into_terminal": {want(exited(0)), ownTerminal},
	"kernel-surface/cgroup_raise_limit": {want(blocked("ENOENT")), otherPlace},
	"kernel-surface/cgroup_new":         {want(blocked("ENOENT")), otherPlace},
	"kernel-surface/cgroup_leave":       {want(blocked("ENOENT")), otherPlace},
	"network/tunnel_device":             {want(blocked("ENOENT")), otherPlace},
	"network/tunnel_interface":          {want(blocked("ENOENT")), otherPlace},
}

const (
	overShare           = "where a sandbox has a share of the processes and no limit, a storm that is far over it is killed before its time is over"
	unfelt              = "the kernel takes signals to the first process of a PID namespace from inside, and delivers none that would end or stop it"
	unprivilegedSockets = "sockets to the kernel's audit and packet filter can be made; without a capability they do nothing"
	ownTerminal         = "a program can type into its own terminal"
	otherPlace          = "what is attacked is not there at all"
)

// lacks names the capability that a case needs and an environment lacks.
func lacks(c execenv.Capabilities, family, what string) string {
	for _, n := range needs {
		if ok, err := path.Match(n.cases, family+"/"+what); err == nil && ok && !n.has(c) {
			return n.capability
		}
	}
	return ""
}

// wants is how a case must end in an environment.
func (a attack) wants(c execenv.Capabilities, family string) []check {
	t, ok := tolerated[family+"/"+a.what]
	if !ok || ownKernel(c) {
		return a.want
	}
	return want(either(a.want, t.want))
}

// TestNeedsAreOfCases finds lines about cases that are gone.
func TestNeedsAreOfCases(t *testing.T) {
	for _, n := range needs {
		found := false
		for _, f := range families() {
			for _, a := range f.cases {
				ok, err := path.Match(n.cases, f.name+"/"+a.what)
				if err != nil {
					t.Fatal(err)
				}
				found = found || ok
			}
		}
		if !found {
			t.Errorf("%s: there is no such case", n.cases)
		}
	}
	known := map[string]bool{}
	for _, f := range families() {
		for _, a := range f.cases {
			known[f.name+"/"+a.what] = a.run == nil
		}
	}
	for name, line := range tolerated {
		if !known[name] || line.reason == "" {
			t.Errorf("%s: there is no such case of one command, or no reason", name)
		}
	}
}
