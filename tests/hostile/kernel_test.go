package hostile

import (
	"archive/tar"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
)

// sock is a socket attempt.
func sock(domain, kind, proto string) []string { return do("socket", domain, kind, proto) }

var kernelCases = []attack{
	{what: "ptrace_init", do: do("ptrace", "$victim"), want: want(blocked("EPERM", "EACCES")), bites: asOwner},
	{what: "read_memory_of_init", do: do("process-vm-read", "$victim"), want: want(blocked("EPERM", "EACCES")), bites: asOwner},
	{what: "steal_descriptor_of_init", do: do("pidfd-getfd", "$victim", "1"), want: want(blocked("EPERM", "ENOSYS")), bites: asOwner},
	{what: "root_of_init", do: do("read", "/proc/$victim/environ"), want: want(blocked("EACCES", "EPERM")), bites: asUser},
	{what: "memory_file_of_init", do: do("open-rw", "/proc/$victim/mem"), want: want(blocked("EACCES", "EPERM", "ENOENT")), bites: asOwner},

	{what: "userns_then_mount", do: do("in-namespaces", "mount", "tmpfs", "/workspace"), want: want(blocked("EPERM"))},
	{what: "userns_then_write_cgroup", do: do("in-namespaces", "write", "$group/pids.max", "max"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_remount_root", do: do("in-namespaces", "remount-writable", "/"), want: want(blocked("EPERM", "EINVAL"))},
	{what: "userns_then_mknod", do: do("in-namespaces", "mknod", "userns-null", "char"), want: want(blocked("EPERM"))},
	{what: "userns_then_raw_socket", do: do("in-namespaces", "socket", "2", "3", "1"), want: want(blocked("EPERM"))},
	{what: "userns_then_open_mem", do: do("in-namespaces", "open-rw", "/dev/mem"), want: want(blocked("ENOENT", "EACCES", "EPERM"))},
	{what: "userns_then_mount_proc", do: do("in-namespaces", "mount", "proc", "/tmp"), want: want(blocked("EPERM"))},
	{what: "userns_then_mount_cgroup", do: do("in-namespaces", "mount", "cgroup2", "/tmp"), want: want(blocked("EPERM"))},
	{what: "userns_then_cgroup_raise_limit", do: do("in-namespaces", "cgroup-then", "cgroup2", "", "$id/x/pids.max", "max"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_cgroup_leave", do: do("in-namespaces", "cgroup-then", "cgroup2", "", "$id/init/cgroup.procs", "0"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_cgroup_top", do: do("in-namespaces", "cgroup-then", "cgroup2", "", "cgroup.procs", "0"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_cgroup_new", do: do("in-namespaces", "cgroup-then", "cgroup2", "", "mkdir", "taken"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_cgroup_v1_pids", do: do("in-namespaces", "cgroup-then", "cgroup", "pids", "mkdir", "taken"), want: want(blocked("EACCES", "EPERM", "EROFS", "EBUSY", "EINVAL"))},
	{what: "userns_then_cgroup_v1_memory", do: do("in-namespaces", "cgroup-then", "cgroup", "memory", "mkdir", "taken"), want: want(blocked("EACCES", "EPERM", "EROFS", "EBUSY", "EINVAL"))},
	{what: "userns_then_cgroup_v1_all", do: do("in-namespaces", "cgroup-then", "cgroup", "all", "mkdir", "taken"), want: want(blocked("EACCES", "EPERM", "EROFS", "EBUSY", "EINVAL"))},
	{what: "userns_then_cgroup_v1_devices", do: do("in-namespaces", "cgroup-then", "cgroup", "devices", "mkdir", "taken"), want: want(blocked("EPERM"))},
	{what: "userns_then_new_cgroup", do: do("in-namespaces", "mkdir", "$group/new"), want: want(blocked("EACCES", "EPERM", "EROFS"))},
	{what: "userns_then_umount_workspace", do: do("in-namespaces", "umount", "/workspace"), want: want(blocked("EINVAL", "EPERM"))},
	{what: "userns_then_umount_proc", do: do("in-namespaces", "umount", "/proc"), want: want(blocked("EINVAL", "EPERM"))},
	{what: "userns_then_chown", do: do("in-namespaces", "chown", "/usr"), want: want(blocked("EPERM", "EROFS"))},
	{what: "userns_then_setuid_of_another", do: do("in-namespaces", "setuid", "1"), want: want(blocked("EINVAL", "EPERM"))},
	{what: "userns_then_init_root", do: do("in-namespaces", "ptrace", "$victim"), want: want(blocked("EPERM", "EACCES"))},
	{what: "userns_then_host_name", do: do("in-namespaces", "write", "/proc/sys/kernel/hostname", "taken"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM"))},
	{what: "unshare_mount", do: do("unshare", "mount"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "unshare_pid", do: do("unshare", "pid"), want: want(blocked("EPERM", "EINVAL")), bites: asRoot},
	{what: "unshare_net", do: do("unshare", "net"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "unshare_ipc", do: do("unshare", "ipc"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "unshare_uts", do: do("unshare", "uts"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "unshare_cgroup", do: do("unshare", "cgroup"), want: want(blocked("EPERM", "EINVAL")), bites: asRoot},
	{what: "setns_of_init", do: do("setns", "/proc/$victim/ns/mnt"), want: want(blocked("EPERM", "EACCES", "EINVAL", "ENOENT"))},
	{what: "setns_own_network", do: do("setns", "/proc/self/ns/net"), want: want(blocked("EPERM", "EINVAL")), bites: asRoot},
	{what: "mount_tmpfs", do: do("mount", "tmpfs", "/tmp"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "mount_proc", do: do("mount", "proc", "/tmp"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "mount_sysfs", do: do("mount", "sysfs", "/tmp"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "mount_devtmpfs", do: do("mount", "devtmpfs", "/tmp"), want: want(blocked("EPERM"))},
	{what: "bind_mount", do: do("bind", "/proc", "/tmp"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "remount_root_writable", do: do("remount-writable", "/"), want: want(blocked("EPERM"))},
	{what: "umount_workspace", do: do("umount", "/workspace"), want: want(blocked("EPERM")), bites: instead(asRoot, "umount", "/proc")},
	{what: "fsopen", do: do("new-mount", "tmpfs"), want: want(blocked("EPERM", "ENOSYS")), bites: asRoot},
	{what: "open_tree", do: do("open-tree"), want: want(blocked("EPERM", "ENOSYS")), bites: asRoot},
	{what: "pivot_root", do: do("pivot-root", "/tmp"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "chroot", do: do("chroot"), want: want(blocked("EPERM")), bites: asRoot},

	{what: "bpf_map", do: do("bpf-map"), want: want(blocked("EPERM", "ENOSYS")), bites: asRoot},
	{what: "bpf_program", do: do("bpf-program"), want: want(blocked("EPERM", "ENOSYS")), bites: asRoot},
	{what: "perf_event_open", do: do("perf-event-open"), want: want(blocked("EPERM", "EACCES", "ENOSYS", "ENODEV")), bites: asRoot},
	{what: "io_uring", do: do("io-uring-setup"), want: want(blocked("ENOSYS", "EPERM")), bites: asRoot},
	{what: "add_key", do: do("add-key"), want: want(blocked("EACCES", "EPERM", "ENOSYS")), bites: asRoot},
	{what: "userfaultfd", do: do("userfaultfd"), want: want(blocked("ENOSYS", "EPERM")), bites: asRoot},
	{what: "fanotify", do: do("fanotify-init"), want: want(blocked("ENOSYS", "EPERM")), bites: asRoot},
	{what: "kernel_log", do: do("syslog"), want: want(either(want(blocked("EPERM")), want(exited(0)))), bites: asRoot},
	{what: "open_by_handle", do: do("open-by-handle", "/"), want: want(blocked("EPERM", "ENOSYS", "EOPNOTSUPP")), bites: instead(asRoot, "open-by-handle", ".")},
	{what: "iopl", do: do("iopl"), want: want(blocked("EPERM", "ENOSYS"))},
	{what: "ioperm", do: do("ioperm"), want: want(blocked("EPERM", "ENOSYS"))},
	{what: "sethostname", do: do("sethostname"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "setdomainname", do: do("setdomainname"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "acct", do: do("acct", "acct-file"), want: want(blocked("EPERM", "ENOSYS"))},
	{what: "quotactl", do: do("quotactl"), want: want(blocked("EPERM", "ENOSYS", "ENODEV"))},
	{what: "reboot", do: do("reboot"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "kexec_load", do: do("kexec-load"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "kexec_file_load", do: do("kexec-file-load"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "init_module", do: do("init-module"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "finit_module", do: do("finit-module"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "delete_module", do: do("delete-module"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "swapon", do: do("swapon", "/workspace/.attack"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "swapoff", do: do("swapoff", "/workspace/.attack"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},

	{what: "dev_mem", do: do("open-rw", "/dev/mem"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "dev_kmsg", do: do("open-rw", "/dev/kmsg"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "dev_port", do: do("open-rw", "/dev/port"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "dev_kvm", do: do("open-rw", "/dev/kvm"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "dev_loop_control", do: do("open-rw", "/dev/loop-control"), want: want(blocked("ENOENT", "EACCES"))},
	{what: "kcore", do: do("read", "/proc/kcore"), want: want(blocked("ENOENT", "EACCES", "EPERM"))},
	{what: "mknod_char", do: do("mknod", "null-device", "char"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "mknod_block", do: do("mknod", "block-device", "block"), want: want(blocked("EPERM")), bites: asRoot},

	{what: "write_core_pattern", do: do("write", "/proc/sys/kernel/core_pattern", "|/workspace/.attack"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), dangerous: true},
	{what: "write_modprobe", do: do("write", "/proc/sys/kernel/modprobe", "/workspace/.attack"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), dangerous: true},
	{what: "write_sysrq", do: do("write", "/proc/sysrq-trigger", "b"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), dangerous: true},
	{what: "write_hostname", do: do("write", "/proc/sys/kernel/hostname", "taken"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), bites: asRoot},
	{what: "write_ip_forward", do: do("write", "/proc/sys/net/ipv4/ip_forward", "1"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM"))},
	{what: "write_uevent_helper", do: do("write", "/sys/kernel/uevent_helper", "/workspace/.attack"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), dangerous: true},
	{what: "create_in_sys", do: do("create", "/sys/taken"), want: want(blocked("EACCES", "EROFS", "EPERM", "ENOENT"))},
	{what: "cgroup_raise_limit", do: do("write", "$group/pids.max", "max"), want: want(blocked("EACCES", "EROFS", "EPERM")), bites: asRoot},
	{what: "cgroup_new", do: do("mkdir", "$group/new"), want: want(blocked("EACCES", "EROFS", "EPERM")), bites: asRoot},
	{what: "cgroup_leave", do: do("write", "/sys/fs/cgroup/cgroup.procs", "0"), want: want(blocked("EACCES", "EROFS", "EPERM")), bites: instead(asOwner, "write", "$group/cgroup.procs", "0")},
	{what: "release_agent", do: do("write", "/sys/fs/cgroup/release_agent", "/workspace/.attack"), want: want(blocked("EACCES", "EROFS", "ENOENT", "EPERM")), dangerous: true},

	{what: "setuid_root", do: do("setuid", "0"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "setgid_root", do: do("setgid", "0"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "setgroups", do: do("setgroups"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "capset", do: do("capset"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "capabilities", do: do("whoami-caps"), want: want(nothing), bites: asRoot},
	{what: "no_new_privs", do: do("gain-by-exec"), want: want(blocked("EINVAL")), bites: asRoot},
	{what: "setuid_from_archive", run: setuidFromArchive, bites: shown("a setuid copy run by an ordinary user of the host", setuidOnHost)},
	{what: "setuid_by_chmod", do: do("chmod", "/proc/self/exe"), want: want(either(want(blocked("EPERM", "EROFS")), want(exited(0))))},

	{what: "packet_socket", do: sock("17", "3", "768"), want: want(blocked("EPERM", "EAFNOSUPPORT")), bites: asRoot},
	{what: "raw_socket", do: sock("2", "3", "1"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "raw_socket_6", do: sock("10", "3", "58"), want: want(blocked("EPERM", "EAFNOSUPPORT"))},
	{what: "netlink_audit", do: sock("16", "3", "9"), want: want(blocked("EPERM", "EPROTONOSUPPORT"))},
	{what: "netlink_netfilter", do: sock("16", "3", "12"), want: want(blocked("EPERM", "EPROTONOSUPPORT"))},
	{what: "vsock", do: sock("40", "1", "0"), want: want(blocked("EAFNOSUPPORT", "EPERM"))},
	{what: "crypto_socket", do: sock("38", "5", "0"), want: want(blocked("EAFNOSUPPORT", "EPERM"))},
	{what: "xdp_socket", do: sock("44", "3", "0"), want: want(blocked("EAFNOSUPPORT", "EPERM"))},
	{what: "bluetooth_socket", do: sock("31", "3", "1"), want: want(blocked("EAFNOSUPPORT", "EPERM"))},
	{what: "type_into_terminal", do: do("tiocsti"), want: want(blocked("EPERM", "EIO", "ENXIO", "ENOTTY", "EINVAL")), with: func(e *execenv.ExecSpec) { e.TTY = &execenv.WindowSize{Cols: 80, Rows: 24} }},
}

// setuidFromArchive brings a setuid copy of the attacker in.
func setuidFromArchive(w *world) {
	program, err := attackProgram()
	if err != nil {
		w.Fatal(err)
	}
	e := regular("setuid", 0o6755, string(program))
	e.Uid, e.Gid, e.Format = 0, 0, tar.FormatUSTAR
	if err := w.put(w.box, "", e); err != nil {
		w.Fatalf("PutArchive: %v", err)
	}
	w.holds("a setuid program", w.try(w.box, "whoami-of", "./setuid"), nothing, prints("uid 10001 "))
}

func setuidOnHost(b *bench) {
	if err := unix.Chown(b.program, 0, 0); err != nil {
		b.Fatal(err)
	}
	if err := unix.Chmod(b.program, 0o4755); err != nil {
		b.Fatal(err)
	}
	b.through(b.user(), do("whoami-of", "./.attack"))
}
