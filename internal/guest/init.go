// Package guest is what runs of AgentDock inside a sandbox: the init process
// that sets the sandbox up before anything hostile arrives, and the packing
// and unpacking of archives as the unprivileged user.
package guest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// RequestsFD and AnswersFD are the descriptors of init's control connection, two
// pipes: one line per request, one per answer.
//
//	(at start)   ready | error TEXT
//	enter A N    init moves into the cgroup of slot N of area A, so that the
//	             next process the sandbox's kernel starts begins its life there
//	leave        init moves back
//	usage        ok USED FREE USEDINODES FREEINODES … (for each mount)
//	refused N    ok DISK INODES PIDS UNSEEN (what was counted for slot N of area x)
//	account N    ok, then the numbers of "refused N", then those of "usage"
const (
	RequestsFD = 3
	AnswersFD  = 5
)

// Setup says what init prepares.
type Setup struct {
	// Group is the sandbox's cgroup below /sys/fs/cgroup.
	Group string
	// PIDs bounds the processes of all commands together.
	PIDs int64
	// Mounts are the writable places.
	Mounts []Mount
}

// Mount is one writable place with both its quotas. The sandbox's kernel takes
// an inode limit only from a mount made inside, which is why init does it.
type Mount struct {
	Path string
	// Type of the file system; it takes the options of tmpfs.
	Type   string
	Bytes  int64
	Inodes int64
	Mode   uint32
	UID    int
}

const cgroupRoot = "/sys/fs/cgroup"

// Init sets the sandbox up, gives up every capability, and serves the control
// connection until it closes. It runs as process 1 and reaps orphans.
func Init(s Setup) error {
	requests, answers := os.NewFile(RequestsFD, "requests"), os.NewFile(AnswersFD, "answers")
	reap()
	groups, err := prepare(s)
	if err == nil {
		err = dropPrivileges()
	}
	if err != nil {
		fmt.Fprintf(answers, "error %s\n", oneLine(err))
		return err
	}
	fmt.Fprintln(answers, "ready")
	in := bufio.NewReaderSize(requests, 4096)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		answer, err := groups.serve(s, strings.Fields(line))
		if err != nil {
			answer = "error " + oneLine(err)
		}
		fmt.Fprintln(answers, answer)
	}
}

func prepare(s Setup) (groups, error) {
	for _, m := range s.Mounts {
		data := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%o,uid=%d,gid=%d", m.Bytes, m.Inodes, m.Mode, m.UID, m.UID)
		if err := unix.Mount(m.Type, m.Path, m.Type, unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
			return "", fmt.Errorf("cannot mount %s: %w", m.Path, err)
		}
	}
	return prepareGroups(s)
}

// groups is the directory of the sandbox's cgroup. Below it are "init", where
// init lives, and two areas with a group per slot, so that everything a
// command ever started can be killed at once: "x" carries the process limit
// and holds the commands, "t" holds our own tools.
type groups string

func prepareGroups(s Setup) (groups, error) {
	g := groups(filepath.Join(cgroupRoot, s.Group))
	for _, d := range []string{"init", "x", "t"} {
		if err := os.Mkdir(filepath.Join(string(g), d), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return g, fmt.Errorf("cannot make cgroup %s: %w", d, err)
		}
	}
	// A group that hands controllers on must hold no process: move first.
	if err := g.enter("init"); err != nil {
		return g, err
	}
	for _, d := range []string{cgroupRoot, string(g)} {
		if err := writeFile(filepath.Join(d, "cgroup.subtree_control"), "+pids"); err != nil {
			return g, fmt.Errorf("cannot hand the process limit on in %s: %w", d, err)
		}
	}
	if err := writeFile(filepath.Join(string(g), "x", "pids.max"), strconv.FormatInt(s.PIDs, 10)); err != nil {
		return g, fmt.Errorf("cannot set the process limit: %w", err)
	}
	return g, nil
}

func (g groups) serve(s Setup, words []string) (string, error) {
	switch {
	case len(words) == 3 && words[0] == "enter" && (words[1] == "x" || words[1] == "t"):
		slot, err := strconv.ParseUint(words[2], 10, 31)
		if err != nil {
			return "", err
		}
		name := filepath.Join(words[1], strconv.FormatUint(slot, 10))
		if err := os.Mkdir(filepath.Join(string(g), name), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		return "ok", g.enter(name)
	case len(words) == 1 && words[0] == "leave":
		return "ok", g.enter("init")
	case len(words) == 1 && words[0] == "usage":
		return usage(s.Mounts)
	case len(words) >= 1 && words[0] == "hold":
		return hold(words[1:])
	case len(words) == 1 && words[0] == "held":
		return "ok", checkpointCall(CheckpointDone, 0)
	case len(words) == 2 && words[0] == "refused":
		return refused(words[1])
	case len(words) == 2 && words[0] == "account":
		counts, err := refused(words[1])
		if err != nil {
			return "", err
		}
		places, err := usage(s.Mounts)
		return counts + strings.TrimPrefix(places, "ok"), err
	}
	return "", fmt.Errorf("unknown request %q", words)
}

func (g groups) enter(name string) error {
	if err := writeFile(filepath.Join(string(g), name, "cgroup.procs"), "0"); err != nil {
		return fmt.Errorf("cannot enter cgroup %s: %w", name, err)
	}
	return nil
}

func usage(mounts []Mount) (string, error) {
	var b strings.Builder
	b.WriteString("ok")
	for _, m := range mounts {
		var st unix.Statfs_t
		if err := unix.Statfs(m.Path, &st); err != nil {
			return "", fmt.Errorf("cannot stat %s: %w", m.Path, err)
		}
		bytes := (int64(st.Blocks) - int64(st.Bfree)) * st.Bsize
		fmt.Fprintf(&b, " %d %d %d %d", bytes, int64(st.Bavail)*st.Bsize, st.Files-st.Ffree, st.Ffree)
	}
	return b.String(), nil
}

// dropPrivileges leaves init with uid 0 of the sandbox, which owns its cgroups,
// and with no capability at all. A change to all threads stops each of them,
// which takes a millisecond or so in a sandbox, so only what is set is changed;
// all threads come from one and have the same.
func dropPrivileges() error {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set == 0 {
		if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
			return fmt.Errorf("cannot set no_new_privs: %w", err)
		}
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err == nil && set == 0 {
			continue
		}
		if err := prctlAll(unix.PR_CAPBSET_DROP, c); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("cannot drop capability %d: %w", c, err)
		}
	}
	if err := capsetAll(); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return nil
}

func prctlAll(option, arg uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, option, arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// reap collects the orphans that a process 1 inherits.
func reap() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			for {
				pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
				if pid <= 0 && !errors.Is(err, unix.EINTR) {
					break
				}
			}
		}
	}()
}

func writeFile(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", " ")
}
