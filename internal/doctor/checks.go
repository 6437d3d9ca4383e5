package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
)

// check is one guarantee and the attack on it.
type check struct {
	id, name string
	// slow is left out by Options.Quick.
	slow bool
	// do says what to do when the attack comes through.
	do  string
	run func(context.Context, *session) (finding, error)
}

// finding is what came of an attack and of its control.
type finding struct {
	refused, bites    bool
	evidence, control string
}

const (
	reportIt = "do not run untrusted code here; report it with the output of agentdock doctor --json"
	fixGroup = "see what keeps control groups from being enforced: the kernel's configuration, or a container that hides its controllers"
)

// checks in the order in which they run. Those that use up a sandbox come last.
var checks = []check{
	{"A1", "kernel isolation", false, reportIt, checkKernel},
	{"A5a", "no network", false, reportIt, checkNetwork},
	{"A5b", "a user of its own outside", false, reportIt, checkOutsideUser},
	{"A5c", "unprivileged inside", false, reportIt, checkPrivileges},
	{"A5d", "system calls filtered", false, "use a kernel with CONFIG_SECCOMP_FILTER", checkSeccomp},
	{"A5e", "read-only root", false, reportIt, checkRoot},
	{"A5f", "fresh workspace", false, reportIt, checkFresh},
	{"A5g", "process quota", false, reportIt, checkProcesses},
	{"A5g", "disk quota", false, reportIt, checkDisk},
	{"A5g", "inode quota", false, reportIt, checkInodes},
	{"A5g", "output quota", false, reportIt, checkOutput},
	{"A5g", "processor quota", true, fixGroup, checkProcessor},
	{"A5g", "memory quota", false, fixGroup, checkMemory},
	{"A5h", "wall clock", false, reportIt, checkClock},
	{"C3", "nothing left", false, "see what holds it; agentdock-execd --sweep removes what a killed service left", checkLeft},
}

// checkKernel looks for a running program among the host's processes: it is
// there unless another kernel runs it.
func checkKernel(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	mark := "agentdock-doctor-" + rand.Text()
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, "kernel")
	if err != nil {
		return f, err
	}
	c, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{guestInside, "probe", "hold", mark}, Timeout: 10 * time.Second})
	if err != nil {
		return f, err
	}
	seen := hostRuns(mark)
	if err := c.Kill(ctx); err != nil {
		return f, err
	}
	if _, err := c.Wait(ctx); err != nil {
		return f, err
	}
	cmd := s.command(ctx, "hold", mark)
	if err := cmd.Start(); err != nil {
		return f, err
	}
	controlSeen := hostRuns(mark)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return f, err
	}
	host, guest := unix.ByteSliceToString(u.Release[:]), inside.of("release")
	return finding{
		refused: seen == 0 && guest != "" && guest != host, bites: controlSeen > 0,
		evidence: fmt.Sprintf("kernel %s answers, a running program is no process of the host", guest),
		control:  fmt.Sprintf("kernel %s answers, and it is one", host),
	}, nil
}

// checkNetwork listens on the host and tries to reach that from inside, by
// loopback and by an abstract unix socket, and the metadata address.
func checkNetwork(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return f, err
	}
	defer tcp.Close()
	name := "@agentdock-doctor-" + rand.Text()
	local, err := net.Listen("unix", name)
	if err != nil {
		return f, err
	}
	defer local.Close()
	args := []string{"connect", tcp.Addr().String(), name}
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, append(args, "169.254.169.254:80")...)
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, args...)
	if err != nil {
		return f, err
	}
	interfaces := inside.all("interface")
	f.refused = slices.Equal(interfaces, []string{"lo"})
	f.bites = true
	for _, to := range args[1:] {
		f.refused = f.refused && !slices.Contains([]string{"ok", ""}, inside.of(to))
		f.bites = f.bites && outside.of(to) == "ok"
	}
	metadata := inside.of("169.254.169.254:80")
	f.refused = f.refused && metadata != "ok" && metadata != ""
	f.evidence = fmt.Sprintf("interfaces: %s; the host's services are out of reach, metadata: %s", strings.Join(interfaces, ", "), metadata)
	f.control = "the host's services answer"
	return f, nil
}

// processes are what the sandbox is on the host.
func (s *session) processes(ctx context.Context) ([]int, error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	pids := sandboxProcesses(s.service, sb.ID())
	if len(pids) == 0 {
		return nil, fmt.Errorf("cannot find the process of sandbox %s", sb.ID())
	}
	return pids, nil
}

// checkOutsideUser reads from the host's kernel who the sandbox is.
func checkOutsideUser(ctx context.Context, s *session) (f finding, err error) {
	pids, err := s.processes(ctx)
	if err != nil {
		return f, err
	}
	f.refused = true
	for _, pid := range pids {
		ids := strings.Fields(status(pid)["Uid"] + " " + status(pid)["Gid"])
		f.refused = f.refused && len(ids) == 8 && !slices.Contains(ids, "0") &&
			namespace(pid, "user") != "" && namespace(pid, "user") != namespace(s.service, "user")
	}
	service := strings.Fields(status(s.service)["Uid"])
	f.bites = len(service) == 4 && slices.Contains(service, "0")
	f.evidence = fmt.Sprintf("%d processes run as %s in a user namespace of their own", len(pids), strings.Fields(status(pids[0])["Uid"] + " ?")[0])
	f.control = "the same look at the service says root, in the host's namespace"
	return f, nil
}

func checkPrivileges(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, "id")
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, "id")
	if err != nil {
		return f, err
	}
	f.refused = inside.of("uid") == "10001" && inside.of("gid") == "10001" && inside.of("no_new_privs") == "1" &&
		inside.of("setuid") == "EPERM" && inside.of("chroot") == "EPERM"
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		f.refused = f.refused && inside.of(set) == strings.Repeat("0", 16)
	}
	f.bites = outside.of("setuid") == "ok" && outside.of("chroot") == "ok"
	f.evidence = fmt.Sprintf("uid %s, no_new_privs %s, all capability sets empty, setuid: %s, chroot: %s",
		inside.of("uid"), inside.of("no_new_privs"), inside.of("setuid"), inside.of("chroot"))
	if !f.refused {
		f.evidence = strings.Join(inside.lines, ", ")
	}
	f.control = fmt.Sprintf("setuid: %s, chroot: %s", outside.of("setuid"), outside.of("chroot"))
	return f, nil
}

// checkSeccomp counts filters, because the doctor itself may run under one.
func checkSeccomp(ctx context.Context, s *session) (f finding, err error) {
	pids, err := s.processes(ctx)
	if err != nil {
		return f, err
	}
	service := status(s.service)
	f.refused = true
	for _, pid := range pids {
		st := status(pid)
		f.refused = f.refused && st["Seccomp"] == "2" && st["NoNewPrivs"] == "1"
	}
	sentry := status(pids[0])
	f.bites = sentry["Seccomp_filters"] != service["Seccomp_filters"] || service["Seccomp"] == "0"
	f.evidence = fmt.Sprintf("all %d processes have a filter and no_new_privs", len(pids))
	if !f.refused {
		f.evidence = fmt.Sprintf("seccomp mode %s, no_new_privs %s", sentry["Seccomp"], sentry["NoNewPrivs"])
	}
	f.control = fmt.Sprintf("the service has %s filters", service["Seccomp_filters"])
	return f, nil
}

func checkRoot(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	// Inside, as the program; and the places that only the kernel protects.
	targets := []string{"/", "/etc", "/usr", "/.agentdock", "/proc/sys/kernel/hostname", "/sys/fs/cgroup"}
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, append([]string{"write"}, targets...)...)
	if err != nil {
		return f, err
	}
	dir, err := s.scratch()
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, "write", dir)
	if err != nil {
		return f, err
	}
	f.refused = true
	for _, t := range targets {
		f.refused = f.refused && inside.of(t) != "ok" && inside.of(t) != ""
	}
	f.refused = f.refused && inside.of("/etc") == "EROFS"
	f.bites = outside.of(dir) == "ok"
	f.evidence = strings.Join(inside.lines, ", ")
	f.control = "a file can be made"
	return f, nil
}

// checkFresh writes in one sandbox and looks in another.
func checkFresh(ctx context.Context, s *session) (f finding, err error) {
	one, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	two, err := s.other(ctx)
	if err != nil {
		return f, err
	}
	places := []string{"/workspace", "/tmp", "/dev/shm"}
	if _, err := s.inside(ctx, one, execenv.ExecSpec{}, append([]string{"write"}, places...)...); err != nil {
		return f, err
	}
	there, err := s.inside(ctx, one, execenv.ExecSpec{}, append([]string{"list"}, places...)...)
	if err != nil {
		return f, err
	}
	elsewhere, err := s.inside(ctx, two, execenv.ExecSpec{}, append([]string{"list"}, places...)...)
	if err != nil {
		return f, err
	}
	f.refused, f.bites = true, true
	for _, p := range places {
		f.refused = f.refused && elsewhere.of(p) == "0"
		f.bites = f.bites && there.number(p) > 0
	}
	f.evidence = "files in another sandbox's " + strings.Join(places, ", ") + " are not seen: " + strings.Join(elsewhere.lines, ", ")
	f.control = "in the same one: " + strings.Join(there.lines, ", ")
	return f, nil
}

// checkLeft destroys the sandboxes and looks for anything of them.
func checkLeft(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	before, err := s.traces(sb.ID())
	if err != nil {
		return f, err
	}
	if err := s.env.Destroy(ctx, sb.ID()); err != nil {
		return f, err
	}
	after, err := s.traces(sb.ID())
	if err != nil {
		return f, err
	}
	list, err := s.env.List(ctx)
	if err != nil {
		return f, err
	}
	for _, info := range list {
		if info.ID == sb.ID() {
			after = append(after, "a line in the list")
		}
	}
	s.first = nil
	f.refused, f.bites = len(after) == 0, len(before) >= 3
	f.evidence = "after destroy: no process, control group, or file"
	if !f.refused {
		f.evidence = "after destroy: " + strings.Join(after, ", ")
	}
	f.control = fmt.Sprintf("before it, %d traces", len(before))
	return f, nil
}

// traces are the processes, groups and files of a sandbox on the host.
func (s *session) traces(id string) (all []string, err error) {
	for _, pid := range sandboxProcesses(s.service, id) {
		all = append(all, fmt.Sprintf("process %d", pid))
	}
	groups, err := groupsNamed(id)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		all = append(all, "control group "+g)
	}
	for _, dir := range []string{"sandboxes", "runsc"} {
		entries, err := os.ReadDir(s.stateDir + "/" + dir)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), id) {
				all = append(all, dir+"/"+e.Name())
			}
		}
	}
	return all, nil
}
