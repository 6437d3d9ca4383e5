package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// page is the step in which memory is touched.
const page = 4096

// memoryVerbs take memory in every way that might not be counted.
var memoryVerbs = map[string]attempt{
	"alloc": func(args []string) error { return touch(num(args, 0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) },
	"alloc-shared": func(args []string) error {
		return touch(num(args, 0), unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	},
	"alloc-populate": func(args []string) error {
		_, err := unix.Mmap(-1, 0, num(args, 0), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		return err
	},
	"alloc-children": func(args []string) error {
		// Each is modest; all together are not.
		n, each := num(args, 0), arg(args, 1)
		for range n {
			if err := child("alloc-hold", each).Start(); err != nil {
				return err
			}
		}
		time.Sleep(5 * time.Second)
		return nil
	},
	"alloc-hold": func(args []string) error {
		if err := touch(num(args, 0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return err
		}
		time.Sleep(time.Hour)
		return nil
	},
	"alloc-unkillable": func(args []string) error {
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
			fmt.Println("cannot lower the score:", err)
		}
		return touch(num(args, 0), unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	},
	"memfd": func(args []string) error {
		fd, err := unix.MemfdCreate("hostile", 0)
		if err != nil {
			return err
		}
		return pour(fd, num(args, 0))
	},
	"mlock": func(args []string) error {
		b, err := unix.Mmap(-1, 0, num(args, 0), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return err
		}
		return unix.Mlock(b)
	},
	"hugepages": func(args []string) error {
		b, err := unix.Mmap(-1, 0, num(args, 0), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
		if err != nil {
			return err
		}
		b[0] = 1
		return nil
	},
	// pipes fills buffers that belong to the kernel and to no process.
	"pipes": func(args []string) error {
		block := make([]byte, 64<<10)
		for i := range num(args, 0) {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_NONBLOCK); err != nil {
				return fmt.Errorf("pipe %d: %w", i, err)
			}
			_, _ = unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20)
			for {
				if _, err := unix.Write(p[1], block); err != nil {
					break
				}
			}
		}
		return nil
	},
	"sockets": func(args []string) error {
		block := make([]byte, 64<<10)
		for i := range num(args, 0) {
			p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return fmt.Errorf("pair %d: %w", i, err)
			}
			_ = unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
			for {
				if _, err := unix.Write(p[0], block); err != nil {
					break
				}
			}
		}
		return nil
	},
	"descriptors": func(args []string) error {
		for i := range num(args, 0) {
			if _, err := unix.Eventfd(0, 0); err != nil {
				return fmt.Errorf("descriptor %d: %w", i, err)
			}
		}
		return nil
	},
	// mappings makes many small areas that cannot be merged.
	"mappings": func(args []string) error {
		for i := range num(args, 0) {
			prot := unix.PROT_READ
			if i%2 == 0 {
				prot |= unix.PROT_WRITE
			}
			if _, err := unix.Mmap(-1, 0, page, prot, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
				return fmt.Errorf("mapping %d: %w", i, err)
			}
		}
		return nil
	},
	"stack": func([]string) error { fmt.Println(deep(1)); return nil },
}

// deep uses the stack up.
func deep(n int) int {
	var big [1024]int
	big[n%1024] = n
	return deep(n+1) + big[0] //nolint:staticcheck // the stack has to run out
}

func touch(n, flags int) error {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += page {
		b[i] = 1
	}
	return nil
}

func pour(fd, n int) error {
	block := make([]byte, 1<<20)
	for done := 0; done < n; {
		k, err := unix.Write(fd, block[:min(len(block), n-done)])
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", done, err)
		}
		done += k
	}
	return nil
}
