// Command init is the first process of the virtual machine that the package
// above boots. It sets the machine up as a host with pure cgroup v2, runs the
// steps of its plan, says on the console how each ended, and turns the machine
// off.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/tests/cgroup2"
)

const hierarchy = "/sys/fs/cgroup"

func main() {
	if len(os.Args) > 2 && os.Args[1] == "contained" {
		fail("cannot enter a namespace", contained(os.Args[2:]))
	}
	if os.Getpid() != 1 {
		fail("cannot start", errors.New("this is the init of a virtual machine, not a program to call"))
	}
	if err := setUp(); err != nil {
		fmt.Println("cannot set the machine up:", err)
	} else if err := runPlan(); err != nil {
		fmt.Println("cannot run the plan:", err)
	} else {
		fmt.Println(cgroup2.Done)
	}
	time.Sleep(100 * time.Millisecond) // the console is slow
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "init: %s: %v\n", what, err)
	os.Exit(1)
}

// setUp mounts what a host has. The first root file system cannot be pivoted
// away from, which every sandbox does, so another mount of it becomes the root.
func setUp() error {
	if err := os.MkdirAll("/root-again", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", "/root-again", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount the root again: %w", err)
	}
	if err := os.Chdir("/root-again"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("cannot move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	for _, m := range []struct{ source, dir, kind, data string }{
		{"proc", "/proc", "proc", ""},
		{"sysfs", "/sys", "sysfs", ""},
		{"devtmpfs", "/dev", "devtmpfs", ""},
		{"devpts", "/dev/pts", "devpts", ""},
		{"tmpfs", "/dev/shm", "tmpfs", ""},
		{"tmpfs", "/tmp", "tmpfs", "mode=1777"},
		{"tmpfs", "/run", "tmpfs", ""},
		{"cgroup2", hierarchy, "cgroup2", ""},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.dir, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("cannot mount %s: %w", m.dir, err)
		}
	}
	return os.Symlink("/proc/self/fd", "/dev/fd")
}

func runPlan() error {
	text, err := os.ReadFile(cgroup2.PlanFile)
	if err != nil {
		return err
	}
	var plan cgroup2.Plan
	if err := json.Unmarshal(text, &plan); err != nil {
		return err
	}
	for _, s := range plan.Steps {
		fmt.Printf("%s%s\n", cgroup2.Begin, s.Name)
		status, err := run(s)
		if err != nil {
			fmt.Printf("cannot run %s: %v\n", s.Name, err)
			status = -1
		}
		fmt.Printf("%s%s %d\n", cgroup2.End, s.Name, status)
	}
	return nil
}

// run runs a step and reaps what it leaves to the first process.
func run(s cgroup2.Step) (status int, err error) {
	group := filepath.Join(hierarchy, s.Group)
	if err := makeGroup(s); err != nil {
		return 0, err
	}
	dir, err := os.Open(group)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	argv := s.Argv
	if s.Contained {
		argv = append([]string{"/init", "contained"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = s.Env, os.Stdout, os.Stderr, "/tmp"
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid
	timer := time.AfterFunc(time.Duration(s.Seconds)*time.Second, func() {
		fmt.Printf("step %s took more than %d seconds\n", s.Name, s.Seconds)
		_ = unix.Kill(pid, unix.SIGQUIT) // a Go program says where it is
		time.Sleep(3 * time.Second)
		_ = unix.Kill(pid, unix.SIGKILL)
	})
	defer timer.Stop()
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		case got == pid:
			return ws.ExitStatus(), nil
		}
	}
}

// makeGroup makes a step's group. The root hands on all it has.
func makeGroup(s cgroup2.Step) error {
	handOn, err := os.ReadFile(filepath.Join(hierarchy, "cgroup.controllers"))
	if err != nil {
		return err
	}
	controllers := strings.Fields(string(handOn))
	dir := hierarchy
	for _, elem := range strings.Split(s.Group, "/") {
		if elem == "" {
			continue
		}
		on := "+" + strings.Join(controllers, " +")
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(on), 0); err != nil {
			return err
		}
		if len(s.Controllers) > 0 {
			controllers = s.Controllers
		}
		dir = filepath.Join(dir, elem)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// contained becomes the program argv in a control group namespace, whose root
// is the group this process is in, with the hierarchy mounted as seen from there.
func contained(argv []string) error {
	runtime.LockOSThread() // namespaces are a thread's
	if err := unix.Unshare(unix.CLONE_NEWCGROUP | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Unmount(hierarchy, 0); err != nil {
		return err
	}
	if err := unix.Mount("cgroup2", hierarchy, "cgroup2", 0, ""); err != nil {
		return err
	}
	return unix.Exec(argv[0], argv, os.Environ())
}
