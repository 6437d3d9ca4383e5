package hostile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
)

// found is the control: the same search, on the host, by an ordinary user.
func found(where func(dir string, pid int) []string) control {
	return shown("the same search by an ordinary user of the host finds it", func(b *bench) {
		dir, pid := plant(b, b.program)
		b.through(b.user(), where(dir, pid))
	})
}

// inProcess searches what a process shows of itself.
func inProcess(name string) control {
	return found(func(_ string, pid int) []string {
		return do("search", "$canary", fmt.Sprintf("/proc/%d/%s", pid, name))
	})
}

// readMany wants that a search looked at something.
var readMany = prints(`files read: [1-9]\d`)

var credentialCases = []attack{
	{what: "environments", do: do("search", "$canary", "/proc"), want: want(nothing, readMany), bites: inProcess("environ")},
	{what: "arguments", do: do("search", "$canary", "/proc/1", "/proc/sys", "/proc/net"), want: want(nothing), bites: inProcess("cmdline")},
	{what: "directories_of_processes", do: do("search", "$canary", "/proc/1/cwd", "/proc/1/root", "/proc/1/fd"), want: want(nothing), bites: inProcess("cwd")},
	{what: "all_files", do: do("search", "$canary", "/"), want: want(nothing, readMany), bites: found(func(dir string, _ int) []string { return do("search", "$canary", dir) })},
	{what: "temporary_files", do: do("search", "$canary", "/tmp", "/dev", "/run"), want: want(nothing), bites: found(func(string, int) []string { return do("search", "$canary", "/tmp") })},
	{what: "sys", do: do("search", "$canary", "/sys"), want: want(nothing, readMany)},
	{what: "memory_of_processes", do: do("search-memory", "$canary"), want: want(blocked("-", "EACCES", "EPERM")), bites: shown("the same search of a process's memory by root of the host finds it", func(b *bench) {
		_, pid := plant(b, b.program)
		b.through(nil, do("search-memory", "$canary", strconv.Itoa(pid)))
	})},
	{what: "own_environment", run: ownEnvironment, bites: shown("a program of the host inherits it", func(b *bench) {
		cmd := b.command(b.user(), do("environment"))
		cmd.Env = os.Environ()
		if out, err := cmd.Output(); err != nil || !bytes.Contains(out, []byte(canary())) {
			b.Errorf("the control does not bite: %v, %d bytes", err, len(out))
		}
	})},
	{what: "mounts", do: do("search", "$canary", "/proc/self/mounts", "/proc/self/mountinfo"), want: want(nothing)},
	{what: "environment_of_init", do: do("read", "/proc/1/environ"), want: want(blocked("EACCES", "EPERM"))},
	{what: "home_of_root", do: do("read", "/root/.netrc"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "service_account", do: do("read", "/var/run/secrets/kubernetes.io/serviceaccount/token"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "shadow_file", do: do("read", "/etc/shadow"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "kernel_keys", do: do("sees", "/proc/keys", "."), want: want(blocked("ENOENT", "EACCES", "-"))},
	{what: "kernel_command_line", do: do("sees", "/proc/cmdline", "root=|$canary"), want: want(blocked("-", "ENOENT"))},
	{what: "archive_of_everything", run: archiveHasNoCanary},
	{what: "errors", run: errorsHaveNoCanary},
	{what: "service", run: serviceHasNoCanary, bites: shown("the service's parent has it", func(b *bench) {
		if !processHolds(os.Getpid()) {
			b.Error("the control does not bite: the test process does not hold the canary")
		}
	})},
	{what: "sandbox_process_on_the_host", run: sentryHasNoCanary},
	{what: "every_output_so_far", run: func(w *world) {
		leaked.Lock()
		defer leaked.Unlock()
		for _, text := range leaked.in {
			w.Errorf("the canary was in an output: %s", text)
		}
	}},
}

func ownEnvironment(w *world) {
	r := w.try(w.box, "environment")
	for line := range strings.Lines(r.stdout) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		if _, ok := execenv.BaseEnv()[name]; !ok && !strings.HasPrefix(line, "through:") {
			w.Errorf("the environment has %q", line)
		}
	}
	noCanaryIn(w, "a program's environment", r.stdout)
}

func archiveHasNoCanary(w *world) {
	w.holds("a link to the host", w.try(w.box, "symlink", "/proc/1/environ", "secret"), exited(0))
	w.holds("a link to the root", w.try(w.box, "symlink", "/", "root"), exited(0))
	var out bytes.Buffer
	if err := w.box.GetArchive(w.ctx(), execenv.ArchiveRequest{}, &out); err != nil {
		w.Errorf("GetArchive: %v", err)
	}
	noCanaryIn(w, "an archive", out.String())
}

func errorsHaveNoCanary(w *world) {
	for _, argv := range [][]string{{"/no-such-program"}, {"/workspace"}, {attackPath, "read", "/proc/1/environ"}} {
		x, err := w.box.Exec(w.ctx(), execenv.ExecSpec{Argv: argv})
		if err != nil {
			noCanaryIn(w, "an error", err.Error())
			continue
		}
		res, err := x.Wait(w.ctx())
		noCanaryIn(w, "an outcome", fmt.Sprintf("%+v %v", res, err))
	}
	_, err := w.client.Create(w.ctx(), execenv.Spec{ID: newID(), Image: "no-such-image", Limits: limits()})
	if err == nil {
		w.Fatal("a sandbox of an image that does not exist was made")
	}
	noCanaryIn(w, "an error", err.Error())
	noCanaryIn(w, "the service's log", w.service.Log())
}

// processHolds looks at the environment and the arguments of a process.
func processHolds(pid int) bool {
	for _, name := range []string{"environ", "cmdline"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil && bytes.Contains(data, []byte(canary())) {
			return true
		}
	}
	return false
}

func serviceHasNoCanary(w *world) {
	if processHolds(w.service.Pid()) {
		w.Error("the service holds the canary of its parent")
	}
}

func sentryHasNoCanary(w *world) {
	pid := w.service.Sentry(w.box.ID())
	if pid == 0 {
		w.Fatal("the sandbox has no process")
	}
	if processHolds(pid) {
		w.Error("the sandbox's process holds the canary")
	}
	for _, name := range []string{"cwd", "root", "exe"} {
		target, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), name))
		noCanaryIn(w, name, target)
	}
}
