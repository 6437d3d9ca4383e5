package cgroup2

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// initramfs writes the archive from which the kernel fills the machine's root:
// cpio in its "new" ASCII form, see the kernel's initramfs buffer format.
type initramfs struct {
	w    io.Writer
	err  error
	ino  int
	dirs map[string]bool
}

func newInitramfs(w io.Writer) *initramfs { return &initramfs{w: w, dirs: map[string]bool{}} }

const (
	cpioDir  = 0o040755
	cpioFile = 0o100755
	// cpioEnd ends the archive, which says nothing of its length.
	cpioEnd = "TRAILER!!!"
)

// file adds a program or other file, and the directories it is in.
func (r *initramfs) file(name string, data []byte) {
	r.dir(path.Dir(name))
	r.entry(name, cpioFile, data)
}

// fileFrom adds a file of this machine.
func (r *initramfs) fileFrom(name, source string) {
	data, err := os.ReadFile(source)
	if r.err == nil {
		r.err = err
	}
	r.file(name, data)
}

func (r *initramfs) dir(name string) {
	if name == "/" || r.dirs[name] {
		return
	}
	r.dir(path.Dir(name))
	r.dirs[name] = true
	r.entry(name, cpioDir, nil)
}

// end finishes the archive and returns the first thing that went wrong.
func (r *initramfs) end() error {
	r.entry(cpioEnd, 0, nil)
	return r.err
}

func (r *initramfs) entry(name string, mode int, data []byte) {
	if r.err != nil {
		return
	}
	r.ino++
	name = strings.TrimPrefix(name, "/")
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		r.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	for _, part := range []string{header + name + "\x00" + padding(len(header)+len(name)+1), string(data) + padding(len(data))} {
		if _, err := io.WriteString(r.w, part); err != nil {
			r.err = err
			return
		}
	}
}

// padding fills up to a multiple of four.
func padding(n int) string { return strings.Repeat("\x00", (4-n%4)%4) }
