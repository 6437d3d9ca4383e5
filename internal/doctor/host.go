package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/localexecd"
)

// hostFacts looks at the host without changing anything. None of it needs root.
func hostFacts(imageDir string) []Fact {
	return []Fact{
		kernelFact(), architectureFact(), rootFact(), cgroupFact(), userNamespaceFact(), processorFact(), memoryFact(),
		kvmFact(), erofsFact(), imageFact(imageDir),
	}
}

// fallbackFacts are those on which sandboxes in containers depend. Control groups and
// images are the daemon's.
func fallbackFacts(string) []Fact {
	return []Fact{kernelFact(), architectureFact(), fallbackUserFact(), userNamespaceFact(), processorFact(), memoryFact()}
}

func fallbackUserFact() Fact {
	f := Fact{Name: "user", Value: fmt.Sprintf("uid %d", os.Geteuid()), OK: os.Geteuid() != 0}
	if !f.OK {
		f.Value, f.Do = "root", "run this as the user who has the rootless daemon, or name that user's socket with "+localexecd.DockerSocketEnv
		f.OK = os.Getenv(localexecd.DockerSocketEnv) != ""
	}
	return f
}

func kernelFact() Fact {
	f := Fact{Name: "kernel", OK: true}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Fact{Name: f.Name, Value: err.Error()}
	}
	f.Value = "Linux " + unix.ByteSliceToString(u.Release[:])
	return f
}

func architectureFact() Fact {
	f := Fact{Name: "architecture", Value: runtime.GOARCH, OK: runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"}
	if !f.OK {
		f.Do = "use an amd64 or arm64 machine: gVisor has no kernel for others"
	}
	return f
}

func rootFact() Fact {
	if uid := os.Geteuid(); uid != 0 {
		return Fact{Name: "user", Value: fmt.Sprintf("uid %d, not root", uid), Do: "run this as root: sandboxes need it to set up namespaces and limits"}
	}
	return Fact{Name: "user", Value: "root", OK: true}
}

func cgroupFact() Fact {
	h, err := cgroup.Detect()
	if err != nil {
		return Fact{Name: "control groups", Value: err.Error(), Do: "mount cgroup2 at /sys/fs/cgroup, or give the container its controllers cpu, memory and pids"}
	}
	used := []string{"cpu", "memory", "pids"}
	if h.Version() == 1 {
		used = append(used, "cpuacct")
	}
	return Fact{Name: "control groups", Value: fmt.Sprintf("v%d with %s", h.Version(), strings.Join(used, ", ")), OK: true}
}

// userNamespaceSettings forbid or bound user namespaces, where they exist.
// Those about unprivileged users do not concern a service that is root.
var userNamespaceSettings = []struct {
	name   string
	forbid func(value int64) bool
}{
	{"user/max_user_namespaces", func(v int64) bool { return v == 0 }},
	{"kernel/unprivileged_userns_clone", func(int64) bool { return false }},
	{"kernel/apparmor_restrict_unprivileged_userns", func(int64) bool { return false }},
}

func userNamespaceFact() Fact {
	f := Fact{Name: "user namespaces", OK: true}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return Fact{Name: f.Name, Value: "not in this kernel", Do: "use a kernel with CONFIG_USER_NS"}
	}
	var seen []string
	for _, s := range userNamespaceSettings {
		data, err := os.ReadFile("/proc/sys/" + s.name)
		if err != nil {
			continue
		}
		name := strings.ReplaceAll(s.name, "/", ".")
		text := strings.TrimSpace(string(data))
		seen = append(seen, name+"="+text)
		if v, err := strconv.ParseInt(text, 10, 64); err == nil && s.forbid(v) {
			f.OK, f.Do = false, "allow them: sysctl -w "+name+"=15000"
		}
	}
	f.Value = "in this kernel"
	if len(seen) > 0 {
		f.Value += ", " + strings.Join(seen, ", ")
	}
	return f
}

func processorFact() Fact {
	return Fact{Name: "processors", Value: strconv.Itoa(runtime.NumCPU()), OK: true}
}

func memoryFact() Fact {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return Fact{Name: "memory", Value: err.Error()}
	}
	var total, free int64
	for line := range strings.Lines(string(data)) {
		_, _ = fmt.Sscanf(line, "MemTotal: %d kB", &total)
		_, _ = fmt.Sscanf(line, "MemAvailable: %d kB", &free)
	}
	f := Fact{Name: "memory", Value: fmt.Sprintf("%d MiB, %d MiB available", total>>10, free>>10), OK: free>>10 >= 512}
	if !f.OK {
		f.Do = "free some: one sandbox of the default size may use 512 MiB"
	}
	return f
}

// kvmFact is for information: no environment of this build uses it.
func kvmFact() Fact {
	f := Fact{Name: "KVM", Value: "not present (nothing here needs it)", OK: true}
	if _, err := os.Stat("/dev/kvm"); err == nil {
		f.Value = "present (no environment of this version uses it)"
	}
	return f
}

func erofsFact() Fact {
	path, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		return Fact{Name: "erofs-utils", Value: "not installed", Do: "install the package erofs-utils; only making images needs it"}
	}
	return Fact{Name: "erofs-utils", Value: path, OK: true}
}

// diskFact is about workspaces that are larger than memory.
func diskFact(can bool) Fact {
	f := Fact{Name: "disk for workspaces", Value: "a disk limit may be above the memory limit", OK: can}
	if !can {
		f.Value = "none: a disk limit above the memory limit is refused"
		f.Do = "if you need larger workspaces, name a directory with " + localexecd.DiskDirEnv + " (for a lasting service AGENTDOCK_EXECD_DISK_DIR); " +
			"it must be on ext4, XFS or Btrfs and not mounted noexec"
	}
	return f
}

func imageFact(dir string) Fact {
	f := Fact{Name: "images", OK: true}
	store, err := image.Open(dir)
	if err != nil {
		return Fact{Name: f.Name, Value: err.Error(), Do: "name another directory with --image-dir"}
	}
	images, err := store.List()
	if err != nil {
		return Fact{Name: f.Name, Value: err.Error(), Do: "make the store readable, or name another with --image-dir"}
	}
	f.Value = fmt.Sprintf("%d in %s, the default one among them", len(images), store.Dir())
	if _, err := store.Resolve(image.Default); err != nil {
		f.OK, f.Do = false, "make the default one: agentdock image build"
		f.Value = fmt.Sprintf("%d in %s, without the default one", len(images), store.Dir())
	}
	return f
}

// sandboxProcesses are the processes below root that are the sandbox, by what
// gVisor calls them, and all that they started.
func sandboxProcesses(root int, id string) (all []int) {
	for _, pid := range children(root) {
		argv := commandLine(pid)
		if len(argv) > 0 && argv[0] == "runsc-sandbox" && argv[len(argv)-1] == id {
			all = append(all, pid)
		}
	}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

func children(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		data, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func commandLine(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// hostRuns counts the host's processes that have mark as an argument.
func hostRuns(mark string) (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			continue
		}
		for _, arg := range commandLine(pid) {
			if arg == mark {
				n++
			}
		}
	}
	return n
}

// groupsNamed finds the control groups with that name, wherever they are.
func groupsNamed(name string) (found []string, err error) {
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
			return nil // removed while we look
		case err != nil:
			return err
		case d.IsDir() && d.Name() == name:
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// status is /proc/PID/status.
func status(pid int) map[string]string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

func namespace(pid int, name string) string {
	link, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
	return link
}
