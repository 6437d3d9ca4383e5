package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// searchMost bounds what is read of one file.
const searchMost = 4 << 20

// searchVerbs look for what should not be there. What they look for is given
// in hexadecimal digits, so that they do not find their own arguments.
var searchVerbs = map[string]attempt{
	// search looks in names and contents of everything below directories.
	"search": func(args []string) error {
		want, err := hex.DecodeString(arg(args, 0))
		if err != nil {
			return usageError(err.Error())
		}
		read, found := 0, ""
		for _, top := range args[1:] {
			_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
				switch {
				case err != nil || found != "":
					return nil
				case strings.Contains(name, string(want)):
					found = name
				case d.Type()&fs.ModeSymlink != 0:
					if target, _ := os.Readlink(name); strings.Contains(target, string(want)) {
						found = name + " → " + target
					}
				case d.Type().IsRegular() && readable(name):
					read++
					if holds(name, want) {
						found = name
					}
				}
				return nil
			})
		}
		fmt.Println("files read:", read)
		if found == "" {
			return errors.New("it is nowhere")
		}
		fmt.Println("found in", found)
		return nil
	},
	// search-memory looks in the memory of every process it may read.
	"search-memory": func(args []string) error {
		want, err := hex.DecodeString(arg(args, 0))
		if err != nil {
			return usageError(err.Error())
		}
		want[0] ^= 0xff // the copy of this process must not match
		procs, _ := filepath.Glob("/proc/[0-9]*")
		if len(args) > 1 {
			procs = []string{"/proc/" + args[1]}
		}
		var last error
		for _, p := range procs {
			if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
				continue
			}
			ok, err := memoryHolds(p, want)
			if ok {
				fmt.Println("found in", p)
				return nil
			}
			last = errors.Join(last, err)
		}
		return fmt.Errorf("it is in no memory: %w", last)
	},
	// sees prints a file and gets through if a pattern matches it.
	"sees": func(args []string) error {
		data, err := os.ReadFile(arg(args, 0))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
		if regexp.MustCompile(arg(args, 1)).Match(data) {
			return nil
		}
		return errors.New("it shows nothing of that")
	},
	"environment": func([]string) error {
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
		return nil
	},
	"uname": func([]string) error {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return err
		}
		fmt.Println(unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]))
		return nil
	},
	"processors": func([]string) error {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			return err
		}
		fmt.Println("processors", set.Count())
		return nil
	},
	"memory-total": func([]string) error {
		var s unix.Sysinfo_t
		if err := unix.Sysinfo(&s); err != nil {
			return err
		}
		fmt.Println("memory", s.Totalram*uint64(s.Unit))
		return nil
	},
	"disk-total": func(args []string) error {
		var s unix.Statfs_t
		if err := unix.Statfs(arg(args, 0), &s); err != nil {
			return err
		}
		fmt.Println("disk", s.Blocks*uint64(s.Bsize), "inodes", s.Files)
		return nil
	},
}

// readable leaves out what blocks or is the memory of others.
func readable(name string) bool {
	base := filepath.Base(name)
	return base != "kmsg" && base != "mem" && base != "kcore" && base != "pagemap" && base != "clear_refs" && !strings.HasPrefix(name, "/proc/self/") && !strings.HasPrefix(name, "/proc/thread-self/") && !strings.HasSuffix(name, "trace_pipe")
}

func holds(name string, want []byte) bool {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, searchMost))
	return bytes.Contains(data, want)
}

func memoryHolds(proc string, want []byte) (bool, error) {
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return false, err
	}
	mem, err := os.Open(proc + "/mem")
	if err != nil {
		return false, err
	}
	defer mem.Close()
	real := append([]byte{want[0] ^ 0xff}, want[1:]...)
	buf := make([]byte, 1<<20)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var perm string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perm); err != nil || perm[0] != 'r' {
			continue
		}
		for ; from < to && to-from < 1<<30; from += int64(len(buf)) {
			n, _ := mem.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
			if bytes.Contains(buf[:n], real) {
				return true, nil
			}
		}
	}
	return false, nil
}
