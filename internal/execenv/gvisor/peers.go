package gvisor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv/stdio"
)

// peers are the programs' ends of all pipes and terminals of commands, by key. A
// file that has ever been named to the sandbox's kernel is among them: its command
// may have passed it on before it ended, and the kernel does not start without it.
// Nobody reads there any more.
func (b *box) peers() map[int]*os.File {
	peers := map[int]*os.File{}
	for _, one := range b.Running() {
		p := one.(*program)
		for i, key := range p.keys {
			if peers[int(key)] != nil {
				continue // a terminal is all three
			}
			if f, err := p.peer(i); err == nil {
				peers[int(key)] = f
			}
		}
	}
	for key := range b.named {
		if peers[key] != nil {
			continue
		}
		if f, err := reopenOr(nil); err == nil {
			peers[key] = f
		}
	}
	return peers
}

// peer opens the program's end of a standard file again.
func (p *program) peer(i int) (*os.File, error) {
	if p.cmd.Spec.TTY != nil {
		return stdio.OpenPeer(p.files.In)
	}
	switch i {
	case 0:
		if f, err := reopen(p.files.In, os.O_RDONLY); err == nil {
			return f, nil
		}
		return emptyFile()
	case 1:
		return reopenOr(p.files.Out)
	default:
		return reopenOr(p.files.Err)
	}
}

// reopenOr opens a pipe's writing end, or one that nobody reads if nobody does.
func reopenOr(f *os.File) (*os.File, error) {
	if w, err := reopen(f, os.O_WRONLY); err == nil {
		return w, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.Close()
	return w, nil
}

// reopen opens the other end of a pipe.
func reopen(f *os.File, mode int) (other *os.File, err error) {
	if f == nil {
		return nil, os.ErrClosed
	}
	err = stdio.WithFD(f, func(fd int) error {
		other, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), mode, 0)
		return err
	})
	return other, err
}

// fileKeys are the names of files by which they are found again: see survival.
func fileKeys(files []*os.File) []uint64 {
	keys := make([]uint64, 0, len(files))
	for _, f := range files {
		var st unix.Stat_t
		if err := stdio.WithFD(f, func(fd int) error { return unix.Fstat(fd, &st) }); err == nil {
			keys = append(keys, hostFileKey(&st))
		}
	}
	return keys
}
