package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceVerbs change what a process sees of files and of itself. It is a
// function because some of them run other verbs.
func namespaceVerbs() map[string]attempt {
	return map[string]attempt{
		"mount": func(args []string) error {
			return unix.Mount("none", arg(args, 1), arg(args, 0), 0, "")
		},
		"bind": func(args []string) error {
			return unix.Mount(arg(args, 0), arg(args, 1), "", unix.MS_BIND, "")
		},
		"remount-writable": func(args []string) error {
			return unix.Mount("none", arg(args, 0), "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		// cgroup-then mounts control groups anew and looks whether anything of them
		// can be changed by that way: the last two words are a file and what to write.
		"cgroup-then": func(args []string) error {
			if err := unix.Mount("none", "/tmp", arg(args, 0), 0, arg(args, 1)); err != nil {
				return fmt.Errorf("mount: %w", err)
			}
			if arg(args, 2) == "mkdir" {
				return os.Mkdir("/tmp/"+arg(args, 3), 0o755)
			}
			return fileVerbs["write"]([]string{"/tmp/" + arg(args, 2), arg(args, 3)})
		},
		"umount": func(args []string) error { return unix.Unmount(arg(args, 0), unix.MNT_DETACH) },
		"new-mount": func(args []string) error {
			fs, err := unix.Fsopen(arg(args, 0), 0)
			if err != nil {
				return fmt.Errorf("fsopen: %w", err)
			}
			if err := unix.FsconfigCreate(fs); err != nil {
				return fmt.Errorf("fsconfig: %w", err)
			}
			_, err = unix.Fsmount(fs, 0, 0)
			return err
		},
		"open-tree": func([]string) error {
			_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
			return err
		},
		"pivot-root": func(args []string) error {
			// The new root has to be a mount point, so this makes one first.
			if err := unix.Mount(arg(args, 0), arg(args, 0), "", unix.MS_BIND, ""); err != nil {
				return err
			}
			return unix.PivotRoot(arg(args, 0), arg(args, 0))
		},
		"setns": func(args []string) error {
			fd, err := unix.Open(arg(args, 0), unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Setns(fd, 0)
		},
		// in-namespaces tries another verb as root of a new user namespace with
		// namespaces of its own: the usual first step of a kernel exploit.
		"in-namespaces": func(args []string) error {
			return again(&syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}, args)
		},
		// on-tmpfs tries another verb in an empty memory file system; a control
		// needs a place that it may fill.
		"on-tmpfs": func(args []string) error {
			if err := os.MkdirAll("stage", 0o777); err != nil {
				return err
			}
			if err := unix.Mount("none", "stage", "tmpfs", 0, "size=1g,mode=777"); err != nil {
				return err
			}
			if err := os.Chdir("stage"); err != nil {
				return err
			}
			return again(nil, args)
		},
		// with-own-tmp tries a verb with an empty /tmp of its own, and then reads any
		// of the files that the words after "then-read" name.
		"with-own-tmp": func(args []string) error {
			// What is below the old /tmp stays in reach of this directory.
			here, err := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				return err
			}
			if err := unix.Mount("none", "/tmp", "tmpfs", 0, "size=16m"); err != nil {
				return err
			}
			if err := unix.Fchdir(here); err != nil {
				return err
			}
			i := slices.Index(args, "then-read")
			if i < 0 {
				return usageError("then-read is missing")
			}
			if err := verbs()[arg(args, 0)](args[1:i]); err != nil {
				return err
			}
			for _, name := range append(args[i+1:], "escaped") {
				if _, err = os.ReadFile(name); err == nil {
					fmt.Println("written outside:", name)
					return nil
				}
			}
			return err
		},
		// unshare tries for one kind of namespace without a user namespace.
		"unshare": func(args []string) error {
			flag := map[string]uintptr{
				"mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "net": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC,
				"uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
			}[arg(args, 0)]
			return unix.Unshare(int(flag))
		},
	}
}

// again runs this program with another verb. Its answer is the answer.
func again(attr *syscall.SysProcAttr, args []string) error {
	if _, dangerous := dangerousVerbs[arg(args, 0)]; dangerous && os.Getenv("AGENTDOCK_SANDBOX") != "true" {
		return usageError(args[0] + " is for sandboxes only")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attr, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot begin: %w", err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != throughStatus {
		os.Exit(code) // it has said why
	}
	return nil
}
