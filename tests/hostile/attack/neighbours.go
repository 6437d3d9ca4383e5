package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shmKey is where two programs of one machine would meet.
const shmKey = 0x0a6e7d0c

// neighbourVerbs come in pairs: one program offers, another one looks for it.
var neighbourVerbs = map[string]attempt{
	"offer": func(args []string) error {
		if err := os.WriteFile(filepath.Join(arg(args, 0), "offered"), []byte(arg(args, 1)), 0o666); err != nil {
			return err
		}
		u, err := net.Listen("unix", "@"+arg(args, 1))
		if err != nil {
			return err
		}
		defer u.Close()
		l, err := net.Listen("tcp", "127.0.0.1:"+arg(args, 2))
		if err != nil {
			return err
		}
		defer l.Close()
		id, err := unix.SysvShmGet(shmKey, 4096, unix.IPC_CREAT|0o666)
		if err != nil {
			return fmt.Errorf("shmget: %w", err)
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return fmt.Errorf("shmat: %w", err)
		}
		copy(b, arg(args, 1))
		fmt.Println("ready")
		for {
			time.Sleep(time.Hour)
		}
	},
	"shm-attach": func([]string) error {
		id, err := unix.SysvShmGet(shmKey, 4096, 0)
		if err != nil {
			return err
		}
		_, err = unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
		return err
	},
	// names-like gets through if a name below a directory holds a text.
	"names-like": func(args []string) error {
		found := ""
		_ = filepath.WalkDir(arg(args, 0), func(name string, _ fs.DirEntry, err error) error {
			if err == nil && found == "" && strings.Contains(name, arg(args, 1)) {
				found = name
			}
			return nil
		})
		if found == "" {
			return errors.New("there is no such name")
		}
		fmt.Println("found", found)
		return nil
	},
	"process-like": func(args []string) error {
		pids, _ := filepath.Glob("/proc/[0-9]*")
		for _, p := range pids {
			line, err := os.ReadFile(p + "/cmdline")
			if err == nil && strings.Contains(string(line), "\x00"+arg(args, 0)+"\x00") && p != fmt.Sprintf("/proc/%d", os.Getpid()) {
				fmt.Println("found", p)
				return nil
			}
		}
		return errors.New("there is no such process")
	},
	"futex-storm": func([]string) error {
		var word uint32
		for {
			_ = call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&word)), 1 /* wake */, 1)
		}
	},
}
