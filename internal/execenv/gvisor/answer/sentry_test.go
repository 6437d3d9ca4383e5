package answer

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostileSentry answers every call with what answer does.
func hostileSentry(t *testing.T, answer func(*net.UnixConn)) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), strings.Repeat("long", 20)+".sock")
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	// Longer than an address can hold, as a state directory may be.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: short}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if answer == nil {
		return path // it never accepts
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				answer(c.(*net.UnixConn))
			}()
		}
	}()
	return path
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestHostileSentryIsHeldWithinBounds(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		path := hostileSentry(t, func(*net.UnixConn) { time.Sleep(5 * time.Second) })
		if err := Call(path, "m", 100*time.Millisecond, nil, nil, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("never accepts", func(t *testing.T) {
		path := hostileSentry(t, nil)
		begun := time.Now()
		for range 5 {
			if err := Call(path, "m", 100*time.Millisecond, nil, nil, nil); err == nil {
				t.Error("it worked")
			}
		}
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("endless answer", func(t *testing.T) {
		path := hostileSentry(t, func(c *net.UnixConn) {
			_, err := c.Write([]byte(`{"success":true,"result":"`))
			for block := bytes.Repeat([]byte("a"), 64<<10); err == nil; _, err = c.Write(block) {
			}
		})
		var out string
		if err := Call(path, "m", 30*time.Second, nil, nil, &out); !errors.Is(err, errAnswerTooLong) {
			t.Error(err)
		}
	})
	t.Run("descriptors", func(t *testing.T) {
		sent := make(chan error, 1)
		path := hostileSentry(t, func(c *net.UnixConn) {
			null, err := os.Open(os.DevNull)
			if err == nil {
				fds := make([]int, 200)
				for i := range fds {
					fds[i] = int(null.Fd())
				}
				_, _, err = c.WriteMsgUnix([]byte(`{"success":true,"result":7}`), unix.UnixRights(fds...), nil)
				null.Close()
			}
			sent <- err
			time.Sleep(time.Second)
		})
		before := openFiles(t)
		var out int
		if err := Call(path, "m", 30*time.Second, nil, nil, &out); err != nil || out != 7 {
			t.Errorf("%d, %v", out, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		// The other end of the connection is still open in this process.
		if after := openFiles(t); after > before+3 {
			t.Errorf("%d descriptors before, %d after", before, after)
		}
	})
	t.Run("refusal", func(t *testing.T) {
		path := hostileSentry(t, func(c *net.UnixConn) { _, _ = c.Write([]byte(`{"success":false,"err":"no such file"}`)) })
		var refused *Refused
		if err := Call(path, "m", time.Minute, nil, nil, nil); !errors.As(err, &refused) || refused.Reason != "no such file" {
			t.Error(err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		path := hostileSentry(t, func(c *net.UnixConn) { _, _ = c.Write([]byte(`{"success":true`)) })
		if err := Call(path, "m", time.Minute, nil, nil, nil); err == nil {
			t.Error("it worked")
		}
	})
}

func TestImpossibleWaitStatusesAreRefused(t *testing.T) {
	for status, ok := range map[unix.WaitStatus]bool{
		0: true, 0x100: true, 0xff00: true, 9: true, 0x8b: true, 64: true,
		0x137f: false, 0xffff: false, 0x80: false, 0x10000: false, 0x7f: false, 65: false, 0x109: false,
	} {
		if err := CheckStatus(status); (err == nil) != ok {
			t.Errorf("0x%x: %v", uint32(status), err)
		}
	}
}
