package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// outputVerbs write too much, or what a reader might trip over.
var outputVerbs = map[string]attempt{
	"yes": func(args []string) error {
		f := stream(arg(args, 0))
		line := bytes.Repeat([]byte("y\n"), 32<<10)
		for {
			if _, err := f.Write(line); err != nil {
				return err
			}
		}
	},
	"flood": func(args []string) error {
		f, block := stream(arg(args, 0)), make([]byte, 64<<10)
		for n := num(args, 1); n > 0; n -= len(block) {
			if _, err := f.Write(block[:min(n, len(block))]); err != nil {
				return err
			}
		}
		return nil
	},
	"flood-both": func(args []string) error {
		var wg sync.WaitGroup
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			wg.Go(func() {
				for range num(args, 0) {
					_, _ = f.WriteString("x")
				}
			})
		}
		wg.Wait()
		return nil
	},
	"one-write": func(args []string) error {
		_, err := os.Stdout.Write(make([]byte, num(args, 0)))
		return err
	},
	// bytes prints all 256 of them, control sequences and invalid UTF-8 included.
	"bytes": func([]string) error {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		_, err := os.Stdout.Write(append(all, "\x1b]0;title\x07\x1b[2J\xff\xfe\xc3"...))
		return err
	},
	"flood-reopened": func(args []string) error {
		f, err := os.OpenFile("/proc/self/fd/1", os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, num(args, 0)))
		return err
	},
	"close-output": func([]string) error {
		_ = unix.Close(1)
		_ = unix.Close(2)
		return nil
	},
	// shut makes the writing end of stdout unusable for the reader.
	"meddle-output": func([]string) error {
		_ = unix.SetNonblock(1, true)
		_, _ = unix.FcntlInt(1, unix.F_SETPIPE_SZ, 4096)
		_ = unix.Ftruncate(1, 0)
		_, _ = unix.Seek(1, 1<<40, 0)
		fmt.Println("still here")
		return nil
	},
	"read-own-output": func([]string) error {
		f, err := os.OpenFile("/proc/self/fd/1", os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_ = unix.SetNonblock(int(f.Fd()), true)
		_, err = unix.Read(int(f.Fd()), make([]byte, 10))
		return err
	},
	// descriptors-left gets through if it was given more than three.
	"inherited": func([]string) error {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		for _, n := range names {
			fd, _ := strconv.Atoi(n.Name())
			target, err := os.Readlink(filepath.Join("/proc/self/fd", n.Name()))
			if fd < 3 || err != nil || strings.HasPrefix(target, "anon_inode:[event") || strings.HasPrefix(target, "/proc/") {
				continue // those are this program's own
			}
			fmt.Printf("descriptor %d is %s\n", fd, target)
			return nil
		}
		return errors.New("stdin, stdout and stderr only")
	},
	"read-stdin": func([]string) error {
		n, err := io.Copy(io.Discard, os.Stdin)
		fmt.Println("read", n)
		return err
	},
	"child-outlives": func([]string) error {
		c := child("yes", "stdout")
		c.Stdout = os.Stdout
		return c.Start()
	},
	"print": func(args []string) error { fmt.Println(strings.Join(args, " ")); return nil },
}

func stream(name string) *os.File {
	if name == "stderr" {
		return os.Stderr
	}
	return os.Stdout
}
