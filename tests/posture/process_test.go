package posture

import (
	"errors"
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
	// unix says that a socket is a unix socket.
	unix bool
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
		f := file{fd: fd, target: target, write: flags&unix.O_ACCMODE != unix.O_RDONLY}
		if strings.HasPrefix(target, "socket:") {
			f.unix, err = isUnix(pid, fd)
			if errors.Is(err, unix.EBADF) {
				continue // closed meanwhile
			}
			must(err)
		}
		p.files = append(p.files, f)
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

// isUnix asks a socket of another process for its kind. The kernel's list of unix
// sockets would not do: it passes some over while others come and go.
func isUnix(pid, fd int) (bool, error) {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(process)
	socket, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(socket)
	domain, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return domain == unix.AF_UNIX, err
}

// kind names what a descriptor is, so that it can be in a table: a name for
// what is known, and the path itself for anything else.
func (f file) kind(known map[string]string) string {
	access := "read-only "
	if f.write {
		access = "writable "
	}
	switch {
	case known[f.target] != "":
		return access + known[f.target]
	case strings.HasPrefix(f.target, "socket:"):
		if f.unix {
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
func wrongFiles(p process, known map[string]string, table map[string]allowed) (problems []string) {
	count := map[string]int{}
	for _, f := range p.files {
		k := f.kind(known)
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
