package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernelVerbs reach for the kernel and for what it keeps for root.
var kernelVerbs = map[string]attempt{
	"ptrace": func(args []string) error {
		runtime.LockOSThread()
		pid := num(args, 0)
		if err := unix.PtraceAttach(pid); err != nil {
			return err
		}
		var ws unix.WaitStatus
		_, _ = unix.Wait4(pid, &ws, unix.WALL, nil)
		return unix.PtraceDetach(pid)
	},
	"process-vm-read": func(args []string) error {
		buf := make([]byte, 16)
		local := []unix.Iovec{{Base: &buf[0], Len: 16}}
		address, err := someAddress(num(args, 0))
		if err != nil {
			return err
		}
		_, err = unix.ProcessVMReadv(num(args, 0), local, []unix.RemoteIovec{{Base: address, Len: 16}}, 0)
		return err
	},
	"pidfd-getfd": func(args []string) error {
		fd, err := unix.PidfdOpen(num(args, 0), 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, num(args, 1), 0)
		return err
	},
	"kill": func(args []string) error { return unix.Kill(num(args, 0), unix.Signal(num(args, 1))) },
	"bpf-map": func([]string) error {
		attr := [4]uint32{2 /* array */, 4, 4, 1}
		return call(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	},
	"bpf-program": func([]string) error {
		code := [2]uint64{0xb7, 0x95} // r0 = 0; exit
		licence := [4]byte{'G', 'P', 'L'}
		attr := struct {
			kind, count     uint32
			code, licence   uint64
			level, size     uint32
			log             uint64
			version, flags  uint32
			name            [16]byte
			ifindex, attach uint32
		}{kind: 1, count: 2, code: uint64(uintptr(unsafe.Pointer(&code))), licence: uint64(uintptr(unsafe.Pointer(&licence)))}
		return call(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	},
	"perf-event-open": func([]string) error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
		attr.Size = uint32(unsafe.Sizeof(attr))
		_, err := unix.PerfEventOpen(&attr, -1, 0, -1, 0)
		return err
	},
	"io-uring-setup": func([]string) error {
		var params [120]byte
		return call(unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)))
	},
	"keyctl-session": func([]string) error { _, err := unix.KeyctlJoinSessionKeyring(""); return err },
	"add-key": func([]string) error {
		_, err := unix.AddKey("user", "agentdock-hostile", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"name-to-handle": func(args []string) error {
		_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, arg(args, 0), 0)
		return err
	},
	"open-by-handle": func(args []string) error {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, arg(args, 0), 0)
		if err != nil {
			// A made-up handle of the root inode, as in the known escape.
			h = unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
		}
		at, err := unix.Open(arg(args, 0), unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_, err = unix.OpenByHandleAt(at, h, unix.O_RDONLY)
		return err
	},
	"iopl":   func([]string) error { return iopl() },
	"ioperm": func([]string) error { return ioperm() },
	"sethostname": func([]string) error {
		return unix.Sethostname([]byte("taken"))
	},
	"setdomainname": func([]string) error { return unix.Setdomainname([]byte("taken")) },
	"chroot":        func([]string) error { return unix.Chroot("/") },
	"setuid":        func(args []string) error { return unix.Setuid(num(args, 0)) },
	"setgid":        func(args []string) error { return unix.Setgid(num(args, 0)) },
	"setgroups":     func([]string) error { return unix.Setgroups([]int{0}) },
	"capset": func([]string) error {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
		return unix.Capset(&head, &data[0])
	},
	"mknod": func(args []string) error {
		kind := map[string]uint32{"char": unix.S_IFCHR, "block": unix.S_IFBLK}[arg(args, 1)]
		return unix.Mknod(arg(args, 0), kind|0o666, int(unix.Mkdev(1, 3)))
	},
	"socket": func(args []string) error {
		fd, err := unix.Socket(num(args, 0), num(args, 1), num(args, 2))
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	},
	"userfaultfd":   func([]string) error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC) },
	"fanotify-init": func([]string) error { _, err := unix.FanotifyInit(0, 0); return err },
	"syslog": func([]string) error {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 4096))
		return err
	},
	"acct":     func(args []string) error { return unix.Acct(arg(args, 0)) },
	"quotactl": func([]string) error { return call(unix.SYS_QUOTACTL, 0x800001<<8, 0, 0, 0) },
	"vhangup":  func([]string) error { return call(unix.SYS_VHANGUP) },
	"nice":     func(args []string) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, num(args, 0)) },
	"realtime": func([]string) error {
		return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0)
	},
	"raise-rlimit": func(args []string) error {
		return unix.Setrlimit(num(args, 0), &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40})
	},
	"tiocsti": func([]string) error {
		c := byte('x')
		tty, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		return call(unix.SYS_IOCTL, uintptr(tty), unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	},
	// whoami-of runs a program (this one, made setuid) and looks who it became.
	"whoami-of": func(args []string) error {
		out, err := exec.Command(arg(args, 0), "whoami").CombinedOutput()
		if err != nil {
			return err
		}
		fmt.Printf("it is %s", out)
		if strings.HasPrefix(string(out), "uid 0 ") {
			return nil
		}
		return errors.New("it has no more rights than before")
	},
	"whoami": func([]string) error {
		fmt.Printf("uid %d gid %d\n", os.Geteuid(), os.Getegid())
		return nil
	},
	"whoami-caps": func([]string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); strings.HasPrefix(line, "Cap") && len(f) == 2 && strings.Trim(f[1], "0") != "" {
				fmt.Print(line)
				return nil
			}
		}
		return errors.New("every capability set is empty")
	},
	"gain-by-exec": func([]string) error {
		n, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		if err != nil {
			return err
		}
		if n == 1 {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil {
				return fmt.Errorf("no_new_privs is set and cannot be taken back: %w", err)
			}
		}
		return nil
	},
}

// dangerousVerbs would harm the host if they got through; they have no control
// on it and refuse to run outside a sandbox.
var dangerousVerbs = map[string]attempt{
	"reboot": func([]string) error { return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) },
	"kexec-load": func([]string) error {
		return call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)
	},
	"kexec-file-load": func([]string) error {
		fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.KexecFileLoad(fd, fd, "", 0)
	},
	"init-module": func([]string) error { return unix.InitModule([]byte("\x7fELF"), "") },
	"finit-module": func([]string) error {
		fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.FinitModule(fd, "", 0)
	},
	"delete-module": func([]string) error { return unix.DeleteModule("loop", 0) },
	"swapon": func(args []string) error {
		path, err := unix.BytePtrFromString(arg(args, 0))
		if err != nil {
			return err
		}
		return call(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0)
	},
	"swapoff": func(args []string) error {
		path, err := unix.BytePtrFromString(arg(args, 0))
		if err != nil {
			return err
		}
		return call(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(path)))
	},
	"settimeofday": func([]string) error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) },
	"clock-settime": func([]string) error {
		return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: 1})
	},
	"adjtimex": func([]string) error {
		_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_FREQUENCY, Freq: 1 << 20})
		return err
	},
}

// someAddress is one that another process has surely mapped.
func someAddress(pid int) (uintptr, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var perm string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); err == nil && perm[0] == 'r' {
			return from, nil
		}
	}
	return 0, syscall.EFAULT
}
