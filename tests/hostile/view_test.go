package hostile

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/run"
)

// hostName is what a sandbox must not know.
func hostName() string { name, _ := os.Hostname(); return name }

func kernelRelease() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

// silent wants that the output does not hold a text of the host.
func silent(what string, text func() string) check {
	return func(r ran) string {
		if s := text(); s != "" && strings.Contains(r.stdout+r.stderr, s) {
			return fmt.Sprintf("it shows the host's %s, %q", what, s)
		}
		return ""
	}
}

// shows is the control: the same program on the host prints it.
func shows(text func() string, words ...string) control {
	return shown("the same program on the host shows it", func(b *bench) {
		if out := b.through(b.user(), words); !strings.Contains(out, text()) {
			b.Errorf("the control does not bite: %s", clip(out))
		}
	})
}

var viewCases = []attack{
	{what: "host_name", do: do("uname"), want: want(exited(0), silent("name", hostName)), bites: shows(hostName, "uname")},
	{what: "kernel", do: do("uname"), want: want(exited(0), silent("kernel", kernelRelease)), bites: shows(kernelRelease, "uname")},
	{what: "kernel_by_proc", do: do("read", "/proc/version"), want: want(exited(0), silent("kernel", kernelRelease)), bites: shows(kernelRelease, "read", "/proc/version")},
	{what: "host_name_by_proc", do: do("read", "/proc/sys/kernel/hostname"), want: want(either(want(blocked("ENOENT")), want(exited(0), silent("name", hostName)))), bites: shows(hostName, "read", "/proc/sys/kernel/hostname")},
	{what: "processors", own: func(l *run.Limits) { l.MilliCPU = 1000 }, do: do("processors"), want: want(exited(0), prints(`processors 1\n`)), bites: shows(func() string { return fmt.Sprintf("processors %d", runtime.NumCPU()) }, "processors")},
	{what: "memory", own: same, do: do("memory-total"), want: want(exited(0), atMost("memory", 256*run.MiB))},
	{what: "disk", own: same, do: do("disk-total", "/workspace"), want: want(exited(0), atMost("disk", 48*run.MiB))},
	{what: "disk_of_tmp", own: same, do: do("disk-total", "/tmp"), want: want(exited(0), atMost("disk", 48*run.MiB))},
	{what: "host_paths_in_mounts", do: do("sees", "/proc/self/mountinfo", `erofs.*(/var/lib|/home|/root|/tmp/|blobs|state)`), want: want(nothing)},
	{what: "host_paths_of_init", do: do("sees", "/proc/1/cmdline", `state|images|sandboxes`), want: want(nothing)},
	{what: "host_processes", do: do("process-like", "--state-dir"), want: want(nothing), bites: shown("the service is in sight of a program of the host", func(b *bench) {
		cmd := b.command(b.user(), do("hold", "--state-dir", "x"))
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		if _, err := out.Read(make([]byte, 6)); err != nil {
			b.Fatal(err)
		}
		b.through(b.user(), do("process-like", "--state-dir"))
	})},
	{what: "host_disks", do: do("sees", "/proc/partitions", `[0-9]+ +(sd|vd|nvme|xvd)`), want: want(blocked("ENOENT", "-"))},
	{what: "host_modules", do: do("sees", "/proc/modules", `.`), want: want(blocked("ENOENT", "-"))},
	{what: "host_devices", do: do("names-like", "/sys/class/net", "eth"), want: want(nothing)},
	{what: "machine_id", do: do("read", "/etc/machine-id"), want: want(blocked("ENOENT"))},
	{what: "boot_id", do: do("read", "/proc/sys/kernel/random/boot_id"), want: want(either(want(blocked("ENOENT")), want(exited(0), silent("boot id", bootID))))},
	{what: "user_on_the_host", do: do("sees", "/proc/self/uid_map", `1879[0-9]{6}`), want: want(nothing)},
}

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

// atMost wants a number after a word that is no more than the limit.
func atMost(word string, most int64) check {
	return func(r ran) string {
		var n int64
		if _, err := fmt.Sscanf(r.stdout, word+" %d", &n); err != nil || n > most || n <= 0 {
			return fmt.Sprintf("%s is %d, want at most %d (%v)", word, n, most, err)
		}
		return ""
	}
}
