package posture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// process is what the host's kernel says about one.
type process struct {
	pid        int
	status     map[string]string
	namespaces map[string]string
	files      []file
	environ    []string
	mounts     []mount
	root, cwd  string
}

// file is an open descriptor.
type file struct {
	fd     int
	target string
	write  bool
}

type mount struct{ point, kind, options string }

func (m mount) String() string { return m.kind + " on " + m.point + " (" + m.options + ")" }

var allNamespaces = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}

func look(t *testing.T, pid int) process {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
	}
	p := process{pid: pid, status: readStatus(t, dir+"status"), namespaces: map[string]string{}}
	for _, ns := range allNamespaces {
		link, err := os.Readlink(dir + "ns/" + ns)
		must(err)
		p.namespaces[ns] = link
	}
	entries, err := os.ReadDir(dir + "fd")
	must(err)
	for _, e := range entries {
		target, err := os.Readlink(dir + "fd/" + e.Name())
		if os.IsNotExist(err) {
			continue // closed meanwhile
		}
		must(err)
		fd, err := strconv.Atoi(e.Name())
		must(err)
		var flags int
		info, err := os.ReadFile(dir + "fdinfo/" + e.Name())
		if os.IsNotExist(err) {
			continue
		}
		must(err)
		for line := range strings.Lines(string(info)) {
			_, _ = fmt.Sscanf(line, "flags: %o", &flags)
		}
		p.files = append(p.files, file{fd: fd, target: target, write: flags&unix.O_ACCMODE != unix.O_RDONLY})
	}
	raw, err := os.ReadFile(dir + "environ")
	must(err)
	for kv := range strings.SplitSeq(string(raw), "\x00") {
		if kv != "" {
			p.environ = append(p.environ, kv)
		}
	}
	raw, err = os.ReadFile(dir + "mountinfo")
	must(err)
	for line := range strings.Lines(string(raw)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		p.mounts = append(p.mounts, mount{point: fields[4], options: strings.Join(fields[5:], " "), kind: strings.Fields(after)[0]})
	}
	p.root, err = os.Readlink(dir + "root")
	must(err)
	p.cwd, err = os.Readlink(dir + "cwd")
	must(err)
	return p
}

func readStatus(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseStatus(string(data))
}

func parseStatus(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

// unixSockets are the inodes of the unix sockets of a network namespace, that
// of the process.
func unixSockets(t *testing.T, pid int) map[string]bool {
	t.Helper()
	inodes := map[string]bool{}
	// The kernel passes sockets over when others come or go while it is read:
	// a socket that is there is in one of several readings.
	for range 8 {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) >= 7 {
				inodes["socket:["+f[6]+"]"] = true
			}
		}
	}
	return inodes
}

// kind names what a descriptor is, so that it can be in a table: a name for
// what is known, and the path itself for anything else.
func (f file) kind(sockets map[string]bool, known map[string]string) string {
	access := "read-only "
	if f.write {
		access = "writable "
	}
	switch {
	case known[f.target] != "":
		return access + known[f.target]
	case strings.HasPrefix(f.target, "socket:"):
		if sockets[f.target] {
			return "unix socket"
		}
		return "socket that is no unix socket"
	case strings.HasPrefix(f.target, "pipe:"):
		return "pipe"
	case strings.HasPrefix(f.target, "/memfd:"):
		return strings.TrimSuffix(f.target[1:], " (deleted)")
	case strings.HasPrefix(f.target, "anon_inode:"):
		return strings.Trim(strings.TrimPrefix(f.target, "anon_inode:"), "[]")
	}
	return access + f.target
}

// allowed is an entry of a table: how many there may be, and why at all.
type allowed struct {
	least, most int
	why         string
}

const many = 1 << 20

// wrongFiles names each kind that the table lacks, and each that it has and the
// process has not.
func wrongFiles(p process, sockets map[string]bool, known map[string]string, table map[string]allowed) (problems []string) {
	count := map[string]int{}
	for _, f := range p.files {
		k := f.kind(sockets, known)
		if _, ok := table[k]; !ok {
			problems = append(problems, fmt.Sprintf("descriptor %d is a %s (%s), which nothing allows", f.fd, k, f.target))
		}
		count[k]++
	}
	for k, a := range table {
		if a.why == "" {
			problems = append(problems, k+" is allowed without a reason")
		}
		if n := count[k]; n < a.least || n > a.most {
			problems = append(problems, fmt.Sprintf("there are %d of %q (%s), want %d to %d", n, k, a.why, a.least, a.most))
		}
	}
	return problems
}

// field is a line of /proc/PID/status and why it is so.
type field struct{ name, want, why string }

func wrongStatus(status map[string]string, table []field) (problems []string) {
	for _, f := range table {
		if got, ok := status[f.name]; !ok || got != f.want {
			problems = append(problems, fmt.Sprintf("%s is %q, want %q: %s", f.name, got, f.want, f.why))
		}
	}
	return problems
}

// report fails the test for each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// below lists what is in a directory of a process's root, names only.
func below(t *testing.T, p process) (all []string) {
	t.Helper()
	root := fmt.Sprintf("/proc/%d/root/", p.pid)
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := strings.TrimPrefix(path, root); name != "" {
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
