package gvisor

import (
	"cmp"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest"
	"github.com/agentdock/agentdock/internal/run"
)

// memoryType is the file system type of places whose contents are memory of the
// sandbox; diskType is the one of places whose contents are in a file.
const (
	memoryType = "tmpfs"
	diskType   = "agentdock-disk"
)

// shmBytes bounds /dev/shm as container engines do by default.
const shmBytes = 64 * run.MiB

// tmpBytes bounds /tmp: as the workspace, but for a large workspace no more than
// the memory limit, because all of it has to be set aside on the host's disk.
func tmpBytes(l run.Limits) int64 { return min(l.DiskBytes, l.MemoryBytes) }

// writable are the places of a sandbox that can be written. The workspace and
// /tmp are of the same type; /dev/shm is memory by its name.
func writable(l run.Limits, fileType string) []guest.Mount {
	return []guest.Mount{
		{Path: execenv.Workspace, Type: fileType, Bytes: l.DiskBytes, Inodes: l.Inodes, Mode: 0o755, UID: execenv.UID},
		{Path: "/tmp", Type: fileType, Bytes: tmpBytes(l), Inodes: l.Inodes, Mode: 0o1777},
		{Path: "/dev/shm", Type: memoryType, Bytes: min(shmBytes, l.DiskBytes), Inodes: min(4096, l.Inodes), Mode: 0o1777},
	}
}

// openBacking looks whether workspaces can be kept on disk. If not, those that
// fit into memory still work.
func (e *Environment) openBacking() {
	cfg := e.cfg.Disk
	cfg.Dir = cmp.Or(cfg.Dir, e.cfg.StateDir)
	if e.disk, e.noDisk = backing.Open(cfg); e.noDisk != nil {
		e.log.Warn("workspaces larger than memory are refused", "reason", e.noDisk)
	}
}

// onDisk decides where a sandbox's files are: in memory, which is faster, if
// that leaves at least as much to its programs; else on disk. Without a disk,
// a workspace that fits into memory at all is kept there.
func (e *Environment) onDisk(l run.Limits) (bool, error) {
	switch {
	case l.DiskBytes <= l.MemoryBytes/2:
		return false, nil
	case e.disk != nil:
		return true, nil
	case l.DiskBytes <= l.MemoryBytes:
		return false, nil
	}
	return false, fault.Wrap(fault.Unsupported, e.noDisk,
		"a disk limit of %d bytes is above the memory limit of %d, and workspaces cannot be kept on disk here; lower the disk limit, raise the memory limit, or name a directory on a disk with AGENTDOCK_EXECD_DISK_DIR (for agentdock run: AGENTDOCK_DISK_DIR)",
		l.DiskBytes, l.MemoryBytes)
}

// takeDisk gives the sandbox a file for its contents if it is to have one.
func (b *box) takeDisk() (fileType string, err error) {
	l := b.Spec.Limits
	onDisk, err := b.env.onDisk(l)
	if err != nil || !onDisk {
		return memoryType, err
	}
	b.onDisk = true
	b.disk, err = b.env.disk.Take(l.DiskBytes + tmpBytes(l))
	return diskType, err
}

// holdDisk sets the room for the sandbox's files aside, and watches from then on
// that they do not take more. The sandbox's kernel empties the file when init
// mounts it, so this comes after that.
func (b *box) holdDisk() error {
	if b.disk == nil {
		return nil
	}
	if err := b.disk.Hold(); err != nil {
		return err
	}
	b.watching.Go(func() { b.watchDisk(b.disk) })
	return nil
}

// diskPause is how often a sandbox's file is looked at.
const diskPause = 100 * time.Millisecond

// watchDisk ends the sandbox if its file takes what others need. Its kernel keeps
// the quota, but nothing outside of it does: one that a program has taken over
// could fill the host's disk, until this sees it.
func (b *box) watchDisk(file *backing.File) {
	tick := time.NewTicker(diskPause)
	defer tick.Stop()
	for {
		select {
		case <-b.Ended():
			return
		case <-tick.C:
		}
		if reason := file.Overdrawn(); reason != "" {
			b.abandon(reason)
			return
		}
		if stats, err := b.group.Stats(); err == nil {
			b.usageOf(stats)
		}
	}
}

// giveDisk gives the room back. The sandbox's kernel must be gone.
func (b *box) giveDisk() error {
	if b.disk == nil {
		return nil
	}
	b.watching.Wait()
	err := b.disk.Close()
	b.disk = nil
	return err
}
