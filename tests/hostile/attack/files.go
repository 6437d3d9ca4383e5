package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fileVerbs write where, and more than, they should.
var fileVerbs = map[string]attempt{
	// write writes to a file that may be one of the kernel's.
	"write": func(args []string) error {
		f, err := os.OpenFile(arg(args, 0), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(arg(args, 1))
		return errors.Join(err, f.Close())
	},
	"create": func(args []string) error {
		f, err := os.OpenFile(arg(args, 0), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return err
		}
		return f.Close()
	},
	"mkdir": func(args []string) error { return os.Mkdir(arg(args, 0), 0o777) },
	"read": func(args []string) error {
		f, err := os.Open(arg(args, 0))
		if err != nil {
			return err
		}
		b := make([]byte, 4096)
		n, err := f.Read(b)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		fmt.Printf("%s\n", b[:n])
		return nil
	},
	"open-rw": func(args []string) error {
		f, err := os.OpenFile(arg(args, 0), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return f.Close()
	},
	"unlink": func(args []string) error { return os.Remove(arg(args, 0)) },
	"chmod":  func(args []string) error { return os.Chmod(arg(args, 0), 0o6777) },
	"chown":  func(args []string) error { return os.Chown(arg(args, 0), 0, 0) },
	"rename": func(args []string) error { return os.Rename(arg(args, 0), arg(args, 1)) },
	"fill":   fillFile,
	// fill-deleted fills a file that has no name any more.
	"fill-deleted": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		_ = os.Remove(args[0])
		return pour(fd, num(args, 1))
	},
	// fill-moment and inodes-moment meet a limit and leave no trace of it.
	"fill-moment": func(args []string) error {
		return moment(args[0], func() error { return fillFile(args) })
	},
	"inodes-moment": func(args []string) error {
		if err := os.Mkdir(arg(args, 0), 0o700); err != nil {
			return err
		}
		return moment(args[0], func() error { return fillInodes(args) })
	},
	"fill-unnamed": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_TMPFILE, 0o600)
		if err != nil {
			return err
		}
		return pour(fd, num(args, 1))
	},
	"fill-many": func(args []string) error {
		for i := range num(args, 1) {
			if err := os.WriteFile(fmt.Sprintf("%s/part-%d", arg(args, 0), i), make([]byte, 1<<20), 0o600); err != nil {
				return fmt.Errorf("file %d: %w", i, err)
			}
		}
		return nil
	},
	"fallocate": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		return unix.Fallocate(fd, 0, 0, int64(num(args, 1)))
	},
	// fill-mapped writes through a mapping, where an error has no return value.
	"fill-mapped": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		n := num(args, 1)
		if err := unix.Ftruncate(fd, int64(n)); err != nil {
			return err
		}
		b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for i := 0; i < n; i += page {
			b[i] = 1
		}
		return nil
	},
	"sparse": func(args []string) error {
		fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err != nil {
			return err
		}
		if err := unix.Ftruncate(fd, 1<<42); err != nil {
			return err
		}
		return pour(fd, num(args, 1))
	},
	"inodes": fillInodes,
	"inode-dirs": func(args []string) error {
		return many(args, func(name string) error { return os.Mkdir(name, 0o700) })
	},
	"inode-symlinks": func(args []string) error {
		return many(args, func(name string) error { return os.Symlink("nowhere", name) })
	},
	"inode-fifos": func(args []string) error {
		return many(args, func(name string) error { return unix.Mkfifo(name, 0o600) })
	},
	"inode-sockets": func(args []string) error {
		return many(args, func(name string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Bind(fd, &unix.SockaddrUnix{Name: name})
		})
	},
	"hard-links": func(args []string) error {
		first := filepath.Join(arg(args, 0), "first")
		if err := os.WriteFile(first, nil, 0o600); err != nil {
			return err
		}
		return many(args, func(name string) error { return os.Link(first, name) })
	},
	"deep": func(args []string) error {
		if err := os.Chdir(arg(args, 0)); err != nil {
			return err
		}
		name := strings.Repeat("d", 200)
		for i := range num(args, 1) {
			if err := os.Mkdir(name, 0o700); err != nil {
				return fmt.Errorf("depth %d: %w", i, err)
			}
			if err := os.Chdir(name); err != nil {
				return fmt.Errorf("depth %d: %w", i, err)
			}
		}
		return nil
	},
	"symlink":  func(args []string) error { return os.Symlink(arg(args, 0), arg(args, 1)) },
	"fifo":     func(args []string) error { return unix.Mkfifo(arg(args, 0), 0o666) },
	"truncate": func(args []string) error { return trunc(arg(args, 0), num(args, 1)) },
	// xattrs stores bytes that are in no file.
	"xattrs": func(args []string) error {
		if err := os.WriteFile(arg(args, 0), nil, 0o600); err != nil {
			return err
		}
		for i := range num(args, 1) {
			if err := unix.Setxattr(args[0], fmt.Sprintf("user.a%d", i), make([]byte, 60<<10), 0); err != nil {
				return fmt.Errorf("attribute %d: %w", i, err)
			}
		}
		return nil
	},
	// swap replaces a directory by a link to another place, and back, for ever.
	"swap": func(args []string) error {
		d, to := arg(args, 0), arg(args, 1)
		fmt.Println("ready")
		for {
			_ = os.RemoveAll(d)
			_ = os.Mkdir(d, 0o755)
			_ = os.WriteFile(d+"/file", []byte("inside"), 0o644)
			_ = os.RemoveAll(d)
			_ = os.Symlink(to, d)
		}
	},
	// churn changes a file while others read it.
	"churn": func(args []string) error {
		fmt.Println("ready")
		for i := 0; ; i++ {
			_ = os.WriteFile(arg(args, 0), make([]byte, 1+i%(1<<20)), 0o644)
		}
	},
	// forge finds the helper that packs an archive and writes into its output.
	"forge": func(args []string) error {
		fmt.Println("ready")
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			pids, _ := filepath.Glob("/proc/[0-9]*")
			for _, p := range pids {
				line, err := os.ReadFile(p + "/cmdline")
				if err != nil || !strings.Contains(string(line), "agentdock-guest\x00pack") {
					continue
				}
				fd, err := os.OpenFile(p+"/fd/1", os.O_WRONLY, 0)
				if err != nil {
					return fmt.Errorf("the helper's output: %w", err)
				}
				w := tar.NewWriter(fd)
				_ = w.WriteHeader(&tar.Header{Name: arg(args, 0), Typeflag: tar.TypeReg, Size: 6, Mode: 0o644})
				_, _ = w.Write([]byte("forged"))
				return w.Flush()
			}
		}
		return errors.New("no helper was seen")
	},
	"kill-helpers": func([]string) error {
		fmt.Println("ready")
		for {
			pids, _ := filepath.Glob("/proc/[0-9]*")
			for _, p := range pids {
				var pid int
				if _, err := fmt.Sscanf(filepath.Base(p), "%d", &pid); err == nil && pid != 1 && pid != os.Getpid() {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
	},
	// unpack is what a careless program does with an archive: it believes it.
	"unpack": func(args []string) error {
		f, err := os.Open(arg(args, 0))
		if err != nil {
			return err
		}
		defer f.Close()
		for r := tar.NewReader(f); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := believe(arg(args, 1), h, r); err != nil {
				return err
			}
		}
	},
}

// believe puts an entry where it asks to be.
func believe(dir string, h *tar.Header, r io.Reader) error {
	name := h.Name
	if !filepath.IsAbs(name) {
		name = dir + "/" + name
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, name)
	case tar.TypeLink:
		target := h.Linkname
		if !filepath.IsAbs(target) {
			target = dir + "/" + target
		}
		return os.Link(target, name)
	case tar.TypeChar:
		return unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	case tar.TypeFifo:
		return unix.Mkfifo(name, 0o666)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return errors.Join(f.Close(), unix.Chmod(name, uint32(h.Mode)))
}

func fillFile(args []string) error {
	fd, err := unix.Open(arg(args, 0), unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		return err
	}
	return pour(fd, num(args, 1))
}

func fillInodes(args []string) error {
	return many(args, func(name string) error { return os.WriteFile(name, nil, 0o600) })
}

// moment makes room again after a refusal.
func moment(name string, fill func() error) error {
	if err := fill(); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("it was never full: %w", err)
	}
	return os.RemoveAll(name)
}

func many(args []string, make func(name string) error) error {
	for i := range num(args, 1) {
		if err := make(fmt.Sprintf("%s/%d", arg(args, 0), i)); err != nil {
			return fmt.Errorf("number %d: %w", i, err)
		}
	}
	return nil
}

func trunc(name string, n int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(n)), f.Close())
}
