// Package cgroup puts processes into control groups of their own and reads
// back what the host's kernel recorded about them. It speaks cgroup v1 (also
// hybrid hosts) and v2.
//
// It exists beside gVisor's own cgroup code because that joins a v1 group with
// the whole creating process: two sandboxes created at once would move the
// execution service through each other's groups. Here the service never
// moves; processes are put into a group before they run anything hostile.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cpuPeriodMicros = 100_000

// Limits of a group; a zero field is not set.
type Limits struct {
	MilliCPU    int64
	MemoryBytes int64
	// PIDs counts host threads.
	PIDs int64
}

// Stats is what the kernel recorded.
type Stats struct {
	MemoryBytes     int64
	PeakMemoryBytes int64
	CPU             time.Duration
	// OOMKills counts processes of the group that were killed for want of
	// memory, and OwnOOMs how often the want was for the group's own limit:
	// the host or a group above may have run out instead.
	OOMKills, OwnOOMs int64
	// PIDsHits counts forks refused for the limit of host threads; always 0
	// where the kernel does not count it.
	PIDsHits int64
}

// ErrUnavailable says that the host offers no usable control groups.
var ErrUnavailable = errors.New("no usable control groups")

// Hierarchy is the host's control group file system.
type Hierarchy struct {
	root  string
	v2    bool
	ready readiness
}

// controllersV1 are the v1 hierarchies that are used. cpuacct is often the same
// directory as cpu.
var controllersV1 = []string{"memory", "cpu", "cpuacct", "pids"}

// Detect looks at the host below /sys/fs/cgroup.
func Detect() (*Hierarchy, error) { return DetectAt("/sys/fs/cgroup") }

// DetectAt looks at a mounted hierarchy.
func DetectAt(root string) (*Hierarchy, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return nil, fmt.Errorf("%w: cannot read %s: %v; mount cgroup2 there", ErrUnavailable, root, err)
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		h := &Hierarchy{root: root, v2: true}
		if err := h.offers(root); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return h, nil
	}
	for _, c := range controllersV1 {
		if err := unix.Statfs(filepath.Join(root, c), &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC {
			return nil, fmt.Errorf("%w: %s is neither cgroup v2 nor has it the v1 controller %s", ErrUnavailable, root, c)
		}
	}
	return &Hierarchy{root: root}, nil
}

// Version is 1 or 2.
func (h *Hierarchy) Version() int {
	if h.v2 {
		return 2
	}
	return 1
}

// Group is one control group. It need not exist.
type Group struct {
	h    *Hierarchy
	path string // relative to the root of each hierarchy, no leading slash
}

// CheckName refuses a name that does not say which group it is: one that climbs,
// or that would be another after it was made clean.
func CheckName(name string) error {
	if len(name) > 1024 || strings.ContainsAny(name, "\x00\n") {
		return fmt.Errorf("the name of a control group is longer than 1024 bytes or holds a NUL or a new line")
	}
	for _, element := range strings.Split(strings.TrimPrefix(name, "/"), "/") {
		if element == "" || element == "." || element == ".." {
			return fmt.Errorf("control group %q has an element %q; name it from the root of the hierarchy, without '.' and '..'", name, element)
		}
	}
	return nil
}

// Group names a group.
func (h *Hierarchy) Group(name string) *Group {
	return &Group{h: h, path: strings.TrimPrefix(path.Clean("/"+name), "/")}
}

// Dirs are all directories that make up the group, memory first.
func (g *Group) Dirs() []string {
	if g.h.v2 {
		return []string{filepath.Join(g.h.root, g.path)}
	}
	dirs := make([]string, len(controllersV1))
	for i, c := range controllersV1 {
		dirs[i] = filepath.Join(g.h.root, c, g.path)
	}
	return dirs
}

func (g *Group) file(controller, name string) string {
	if g.h.v2 {
		return filepath.Join(g.h.root, g.path, name)
	}
	return filepath.Join(g.h.root, controller, g.path, name)
}

// Prepare makes the group, its parents included, as one that other groups go
// into. Whoever makes groups for hostile work calls it first: what the host
// does not allow is known then, and not when the first work arrives. On v2 it
// may move the calling process, see handOn.
func (g *Group) Prepare() error {
	var err error
	if g.h.v2 {
		err = g.h.delegate(g.path)
	} else {
		err = g.mkdir()
	}
	if err != nil {
		return fmt.Errorf("cannot prepare control group %s: %w", g.path, advise(err))
	}
	return nil
}

// Create makes the group, its parents included, and sets its limits. It fails
// if a limit could not be set; then nothing of the group itself is left.
func (g *Group) Create(l Limits) (err error) {
	defer func() {
		if err != nil {
			_ = g.removeOnce()
			err = fmt.Errorf("cannot create control group %s: %w", g.path, advise(err))
		}
	}()
	if !g.h.v2 {
		if err := g.mkdir(); err != nil {
			return err
		}
		return g.limitV1(l)
	}
	if err := again(func() error {
		if err := g.h.delegate(path.Dir(g.path)); err != nil {
			return err
		}
		return mkdir(g.file("", ""))
	}); err != nil {
		return err
	}
	return g.limitV2(l)
}

func (g *Group) mkdir() error {
	for _, d := range g.Dirs() {
		if err := again(func() error { return os.MkdirAll(d, 0o755) }); err != nil {
			return err
		}
	}
	return nil
}

// again repeats what makes a group below parents that another service may be
// removing, because they are empty.
func again(make func() error) (err error) {
	for range 10 {
		if err = make(); !gone(err) {
			return err
		}
	}
	return err
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// advise says what to do about refusals that have one cause.
func advise(err error) error {
	if errors.Is(err, unix.EROFS) {
		return fmt.Errorf("%w; mount the control groups writable (a container gets them read-only unless told otherwise)", err)
	}
	return err
}

// Add moves a process, all its threads, into the group.
func (g *Group) Add(pid int) error {
	for _, d := range g.Dirs() {
		if err := write(filepath.Join(d, "cgroup.procs"), int64(pid)); err != nil {
			return fmt.Errorf("cannot put process %d into control group %s: %w", pid, g.path, err)
		}
	}
	return nil
}

// Procs lists the processes in the group; none if it does not exist.
func (g *Group) Procs() ([]int, error) {
	seen := map[int]bool{}
	var pids []int
	for _, d := range g.Dirs() {
		data, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 && !seen[pid] {
				seen[pid] = true
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// Exists reports whether any directory of the group exists.
func (g *Group) Exists() bool {
	for _, d := range g.Dirs() {
		if _, err := os.Lstat(d); err == nil {
			return true
		}
	}
	return false
}

// Children lists the groups directly below.
func (g *Group) Children() ([]string, error) {
	seen := map[string]bool{}
	var names []string
	for _, d := range g.Dirs() {
		entries, err := os.ReadDir(d)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// Destroy kills everything in the group and removes it. It returns nil only
// when the group is gone.
func (g *Group) Destroy(ctx context.Context) error {
	pause := time.Millisecond
	for {
		g.kill()
		err := g.removeOnce()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot remove control group %s: %w", g.path, err)
		case <-time.After(pause):
			pause = min(2*pause, 50*time.Millisecond)
		}
	}
}

// RemoveEmptyParents removes the groups above this one that nobody uses.
func (g *Group) RemoveEmptyParents() {
	for p := path.Dir(g.path); p != "." && p != "/"; p = path.Dir(p) {
		if g.h.Group(p).removeOnce() != nil {
			return
		}
	}
}

// kill sends SIGKILL to all that is in the group now.
func (g *Group) kill() {
	if g.h.v2 && write(g.file("", "cgroup.kill"), 1) == nil {
		return
	}
	pids, _ := g.Procs()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

func (g *Group) removeOnce() error {
	var first error
	for _, d := range g.Dirs() {
		if err := unix.Rmdir(d); err != nil && !gone(err) && first == nil {
			first = err
		}
	}
	return first
}

// Stats reads the kernel's counters. A counter the kernel does not keep is 0.
func (g *Group) Stats() (Stats, error) {
	if g.h.v2 {
		return g.statsV2()
	}
	return g.statsV1()
}

func write(file string, v int64) error { return writeText(file, strconv.FormatInt(v, 10)) }

// writeText never makes the file: the error for one that is missing would not
// say that it is.
func writeText(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func readInt(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// readKeys reads a flat keyed file: "name value" per line.
// FileBytes is the part of the group's memory that caches files. The kernel
// takes it back when memory is wanted.
func (g *Group) FileBytes() (int64, error) {
	controller := "memory"
	if g.h.v2 {
		controller = ""
	}
	kinds, err := readKeys(g.file(controller, "memory.stat"))
	return kinds["active_file"] + kinds["inactive_file"], err
}

func readKeys(file string) (map[string]int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseKeys(f)
}

// parseKeys fails rather than leave out a counter that is there.
func parseKeys(r io.Reader) (map[string]int64, error) {
	keys := map[string]int64{}
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		if k, v, ok := strings.Cut(scan.Text(), " "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("cannot read counter %.40q: %w", k, err)
			}
			keys[k] = n
		}
	}
	return keys, scan.Err()
}

func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
