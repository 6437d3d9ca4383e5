package hostile

import (
	"github.com/agentdock/agentdock/internal/run"
)

// full and crowded are the two ends of a quota.
var (
	full    = want(blocked("ENOSPC"), hit(run.LimitDisk), unhit(run.LimitInodes))
	crowded = want(blocked("ENOSPC"), hit(run.LimitInodes), unhit(run.LimitDisk))
	// What is written through a mapping has no return value.
	mappedFull = want(hit(run.LimitDisk), either(want(signalled("SIGBUS")), want(exited(2), prints("SIGBUS|fatal error"))))
	refused    = want(blocked("EROFS", "EACCES", "EPERM"))
)

var diskCases = []attack{
	{what: "fill_workspace", own: roomy, do: do("fill", "big", more), want: full, bites: onTmpfs},
	{what: "fill_tmp", own: roomy, do: do("fill", "/tmp/big", more), want: full, bites: instead(onTmpfs, "fill", "big", more)},
	{what: "fill_shm", own: roomy, do: do("fill", "/dev/shm/big", more), want: full, bites: instead(onTmpfs, "fill", "big", more)},
	{what: "fill_many_files", own: roomy, do: do("fill-many", ".", "200"), want: full, bites: onTmpfs},
	{what: "extended_attributes", own: roomy, do: do("xattrs", "big", "4000"), want: want(blocked("EOPNOTSUPP"))},
	{what: "fill_deleted_file", own: roomy, do: do("fill-deleted", "big", more), want: full, bites: onTmpfs},
	{what: "fill_unnamed_file", own: roomy, do: do("fill-unnamed", ".", more), want: want(blocked("ENOSPC", "EOPNOTSUPP", "EISDIR", "EINVAL")), bites: onTmpfs},
	{what: "fill_by_mapping", own: roomy, do: do("fill-mapped", "big", more), want: mappedFull, bites: onTmpfs},
	{what: "fill_asynchronously", own: roomy, do: do("fill-async", "big", more), want: full, bites: onTmpfs},
	{what: "full_for_a_moment", own: roomy, do: do("fill-moment", "big", more), want: want(exited(0), hit(run.LimitDisk), unhit(run.LimitInodes))},
	{what: "crowded_for_a_moment", own: same, do: do("inodes-moment", "many", "20000"), want: want(exited(0), hit(run.LimitInodes), unhit(run.LimitDisk))},
	{what: "full_to_its_limit", own: roomy, with: endAt(run.LimitDisk), do: do("fill-moment", "big", more), want: want(ended(run.Disk), hit(run.LimitDisk))},
	{what: "a_device_that_is_always_full", own: same, do: do("write", "/dev/full", "x"), want: want(blocked("ENOSPC"), unhit(run.LimitDisk))},
	{what: "fallocate", own: roomy, do: do("fallocate", "big", more), want: full, bites: onTmpfs},
	{what: "sparse_file", own: roomy, do: do("sparse", "big", more), want: full, bites: onTmpfs},
	{what: "inodes_of_workspace", own: same, do: do("inodes", ".", "20000"), want: crowded, bites: onTmpfs},
	{what: "inodes_of_tmp", own: same, do: do("inodes", "/tmp", "20000"), want: crowded, bites: instead(onTmpfs, "inodes", ".", "20000")},
	{what: "inodes_of_shm", own: same, do: do("inodes", "/dev/shm", "20000"), want: crowded, bites: instead(onTmpfs, "inodes", ".", "20000")},
	{what: "directories", own: same, do: do("inode-dirs", ".", "20000"), want: crowded, bites: onTmpfs},
	{what: "symlinks", own: same, do: do("inode-symlinks", ".", "20000"), want: crowded, bites: onTmpfs},
	{what: "fifos", own: same, do: do("inode-fifos", ".", "20000"), want: crowded, bites: onTmpfs},
	{what: "sockets", own: same, do: do("inode-sockets", "/tmp", "20000"), want: crowded, bites: instead(onTmpfs, "inode-sockets", ".", "20000")},
	{what: "hard_links", own: tiny, do: do("hard-links", ".", "2000000"), want: want(either(want(blocked("ENOSPC", "EMLINK")), bomb)), bites: instead(onTmpfs, "hard-links", ".", "20000")},
	{what: "deep_directories", own: same, do: do("deep", ".", "5000"), want: crowded, bites: onTmpfs},
	{what: "disk_fill_workspace", own: onDisk, do: do("fill", "big", more), want: full, bites: onTmpfs},
	{what: "disk_fill_tmp", own: onDisk, do: do("fill", "/tmp/big", more), want: full, bites: instead(onTmpfs, "fill", "big", more)},
	{what: "disk_fill_both", own: onDisk, do: do("fill-both", "big", "/tmp/big", more), want: full, bites: instead(onTmpfs, "fill-both", "big", "bigger", more)},
	{what: "disk_fill_shm", own: onDisk, do: do("fill", "/dev/shm/big", more), want: want(either(full, bomb)), bites: instead(onTmpfs, "fill", "big", more)},
	{what: "disk_fill_many_files", own: onDisk, do: do("fill-many", ".", "200"), want: full, bites: onTmpfs},
	{what: "disk_fill_deleted_file", own: onDisk, do: do("fill-deleted", "big", more), want: full, bites: onTmpfs},
	{what: "disk_fill_by_mapping", own: onDisk, do: do("fill-mapped", "big", more), want: mappedFull, bites: onTmpfs},
	{what: "disk_fill_by_mapping_with_holes", own: onDisk, do: do("fill-mapped-holes", "big", "400000000"), want: mappedFull, bites: onTmpfs},
	{what: "disk_fill_asynchronously", own: onDisk, do: do("fill-async", "big", more), want: full, bites: onTmpfs},
	{what: "disk_full_for_a_moment", own: onDisk, do: do("fill-moment", "big", more), want: want(exited(0), hit(run.LimitDisk), unhit(run.LimitInodes))},
	{what: "disk_fallocate", own: onDisk, do: do("fallocate", "big", more), want: full, bites: onTmpfs},
	{what: "disk_fallocate_everything", own: onDisk, do: do("fallocate", "big", "9223372036854775807"), want: want(blocked("ENOSPC", "EFBIG"))},
	{what: "disk_sparse_file", own: onDisk, do: do("sparse", "big", more), want: full, bites: onTmpfs},
	{what: "disk_holes", own: onDisk, do: do("holes", "big", "8192", more), want: full, bites: onTmpfs},
	{what: "disk_distant_holes", own: onDisk, do: do("holes", "big", "140737488355328", more), want: full},
	{what: "disk_churn", own: onDisk, do: do("churn-room", "big", "120000000", "8"), want: want(exited(0), unhit(run.LimitDisk))},
	{what: "disk_inodes", own: onDisk, do: do("inodes", ".", "20000"), want: crowded, bites: onTmpfs},
	{what: "write_root", do: do("create", "/taken"), want: refused, bites: instead(asRoot, "create", "taken")},
	{what: "write_usr", do: do("create", "/usr/taken"), want: refused},
	{what: "write_etc", do: do("create", "/etc/taken"), want: refused},
	{what: "write_home", do: do("create", "/home/taken"), want: refused},
	{what: "write_run", do: do("create", "/run/taken"), want: refused},
	{what: "write_dev", do: do("create", "/dev/taken"), want: refused},
	{what: "write_proc", do: do("create", "/proc/taken"), want: want(blocked("EROFS", "EACCES", "EPERM", "ENOENT"))},
	{what: "write_helper_directory", do: do("create", "/.agentdock/taken"), want: refused},
	{what: "write_helper", do: do("open-rw", "/.agentdock/agentdock-guest"), want: want(blocked("EROFS", "EACCES", "EPERM", "ETXTBSY"))},
	{what: "write_helper_by_proc", do: do("open-rw", "/proc/$victim/exe"), want: want(blocked("EROFS", "EACCES", "EPERM", "ETXTBSY"))},
	{what: "remove_helper", do: do("unlink", "/.agentdock/agentdock-guest"), want: refused},
	{what: "rename_workspace", do: do("rename", "/workspace", "/taken"), want: want(blocked("EROFS", "EACCES", "EPERM", "EBUSY", "EXDEV"))},
	{what: "chown_to_root", do: do("chown", ".attack"), want: want(blocked("EPERM")), bites: asRoot},
	{what: "image_by_descriptor", do: do("names-like", "/proc/self/fd", "erofs"), want: want(nothing)},
}
