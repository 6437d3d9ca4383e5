// Command probe is the program the contract suite runs inside sandboxes: a
// small vocabulary of well-behaved and hostile programs. It is one static
// binary so that it runs in any image, and it prints plain lines so that the
// suite's cases need no parser.
//
// The vocabulary is documented in package execenvtest, which is the only
// caller, and exists a second time for the in-memory environment.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// badUsage is an exit code no case expects.
const badUsage = 120

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: probe VERB [ARG…]")
		os.Exit(badUsage)
	}
	os.Exit(do(os.Args[1], os.Args[2:]))
}

func do(verb string, args []string) int {
	arg := func(i int) string {
		if i >= len(args) {
			fmt.Fprintf(os.Stderr, "probe %s: argument %d is missing\n", verb, i+1)
			os.Exit(badUsage)
		}
		return args[i]
	}
	num := func(i int) int64 {
		n, err := strconv.ParseInt(arg(i), 10, 64)
		if err != nil {
			fmt.Fprintf(os.Stderr, "probe %s: %v\n", verb, err)
			os.Exit(badUsage)
		}
		return n
	}
	switch verb {
	case "exit":
		return int(num(0))
	case "echo":
		fmt.Println(strings.Join(args, " "))
		return 0
	case "args":
		for _, a := range args {
			fmt.Printf("%q\n", a)
		}
		return 0
	case "env":
		for _, kv := range os.Environ() {
			fmt.Printf("%q\n", kv)
		}
		return 0
	case "pwd":
		dir, err := os.Getwd()
		fmt.Println(dir)
		return failed(err)
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		return failed(err)
	case "hold":
		fmt.Println("ready")
		return forever()
	case "streams":
		return streams(num(0))
	case "bytes":
		return allBytes()
	case "flood":
		return flood(arg(0), num(1))
	case "raise":
		return raise(syscall.Signal(num(0)))
	case "trap":
		return trap(args)
	case "ignore-term":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
		fmt.Println("ready")
		return forever()
	case "stop-self":
		fmt.Println("ready")
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		fmt.Println("continued")
		return forever()
	case "forkbomb":
		return forkBomb()
	case "forkstorm":
		return forkStorm()
	case "family":
		return family(arg(0))
	case "daemon":
		return daemon(arg(0), args[1:])
	case "daemon-middle":
		return daemonMiddle(args)
	case "daemon-child":
		return daemonChild(args)
	case "ps":
		return ps()
	case "alloc":
		return alloc(num(0))
	case "fill":
		return fill(arg(0), args[1:])
	case "intact":
		return intact(arg(0))
	case "touch":
		return touch(arg(0), num(1), args[2:])
	case "write":
		return failed(os.WriteFile(arg(0), []byte(arg(1)), 0o644))
	case "read":
		b, err := os.ReadFile(arg(0))
		_, _ = os.Stdout.Write(b)
		return failed(err)
	case "remove":
		return failed(os.RemoveAll(arg(0)))
	case "mkdir":
		return failed(os.MkdirAll(arg(0), 0o755))
	case "symlink":
		return failed(os.Symlink(arg(0), arg(1)))
	case "mkfifo":
		return failed(syscall.Mkfifo(arg(0), 0o644))
	case "mksock":
		return failed(mksock(arg(0)))
	case "tree":
		return tree(arg(0))
	case "writable":
		return writable()
	case "id":
		return id()
	case "net":
		return network(args)
	case "take":
		return take(arg(0))
	case "give":
		return give(arg(0))
	case "listen":
		return listen(arg(0), arg(1))
	case "dial":
		return dial(arg(0), arg(1))
	case "proxy":
		return proxy(arg(0), arg(1))
	case "tty":
		return tty()
	case "winch":
		return winch(num(0))
	}
	fmt.Fprintf(os.Stderr, "probe: unknown verb %q\n", verb)
	return badUsage
}

// forever blocks for longer than any case waits. A timer keeps the runtime
// from calling it a deadlock.
func forever() int {
	time.Sleep(time.Hour)
	return 0
}

// failed prints an error's name and makes it the exit code, so that cases see
// which error the program saw.
func failed(err error) int {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		fmt.Println("error", errName(errno))
		return int(errno) & 0x7f
	}
	fmt.Println("error", err)
	return 1
}

func errName(errno syscall.Errno) string {
	names := map[syscall.Errno]string{
		syscall.ENOSPC: "ENOSPC", syscall.EDQUOT: "EDQUOT", syscall.EAGAIN: "EAGAIN",
		syscall.ENOMEM: "ENOMEM", syscall.EROFS: "EROFS", syscall.EACCES: "EACCES",
		syscall.EPERM: "EPERM", syscall.ENOENT: "ENOENT", syscall.EEXIST: "EEXIST",
		syscall.ENETUNREACH: "ENETUNREACH", syscall.EHOSTUNREACH: "EHOSTUNREACH",
		syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ETIMEDOUT: "ETIMEDOUT",
		syscall.EPIPE: "EPIPE", syscall.EIO: "EIO",
	}
	if name, ok := names[errno]; ok {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// streams writes n numbered lines to each stream, in turn.
func streams(n int64) int {
	for i := range n {
		fmt.Fprintf(os.Stdout, "o%d\n", i)
		fmt.Fprintf(os.Stderr, "e%d\n", i)
	}
	return 0
}

// allBytes writes every byte value to stdout, and what no UTF-8 decoder likes
// to stderr, one byte at a time so that characters are split.
func allBytes() int {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	_, _ = os.Stdout.Write(all)
	for _, b := range []byte("\xff\xfe\x00\xc3\xe2\x82é€\xf0\x9f") {
		_, _ = os.Stderr.Write([]byte{b})
	}
	return 0
}

// flood writes n bytes of the pattern i%251 to a stream.
func flood(stream string, n int64) int {
	w := os.Stdout
	if stream == "stderr" {
		w = os.Stderr
	}
	const period = 251
	block := bytes.Repeat(pattern(period), 256)
	for written := int64(0); written < n; {
		p := block
		if left := n - written; left < int64(len(p)) {
			p = p[:left]
		}
		k, err := w.Write(p)
		if err != nil {
			return failed(err)
		}
		written += int64(k)
	}
	return 0
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

// fill writes to a file until that fails, and says how far it came.
func fill(path string, then []string) int {
	f, err := os.Create(path)
	if err != nil {
		return failed(err)
	}
	written := 0
	for {
		n, err := f.Write(fillBlock(written))
		written += n
		if err != nil {
			fmt.Println("written", written)
			return refused(then, path, err)
		}
	}
}

// fillBlock is the block that fill writes at an offset: no two are the same.
func fillBlock(offset int) []byte {
	const size = 16 << 10
	return binary.LittleEndian.AppendUint64(bytes.Repeat([]byte("fill"), size/4)[:size-8], uint64(offset))
}

// intact reads what fill wrote, and says how far it is what was written.
func intact(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return failed(err)
	}
	read := 0
	for {
		want := fillBlock(read)
		got := make([]byte, len(want))
		n, err := io.ReadFull(f, got)
		if !bytes.Equal(got[:n], want[:n]) {
			fmt.Println("changed after", read)
			return 1
		}
		read += n
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			fmt.Println("intact", read)
			return 0
		case err != nil:
			return failed(err)
		}
	}
}

// touch makes n empty files, or fewer, and says how many.
func touch(dir string, n int64, then []string) int {
	for i := range n {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("f%d", i)))
		if err != nil {
			fmt.Println("created", i)
			return refused(then, dir, err)
		}
		_ = f.Close()
	}
	fmt.Println("created", n)
	return 0
}

// refused ends as err says. If it is told to cope, it makes room and ends well;
// if it is told to hold, it goes on.
func refused(then []string, path string, err error) int {
	switch strings.Join(then, " ") {
	case "cope":
		return failed(os.RemoveAll(path))
	case "hold":
		return forever()
	}
	return failed(err)
}

// tree prints everything below dir, sorted: quoted path, kind, mode, size,
// quoted target.
func tree(dir string) int {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		kind, size, target := "other", int64(0), ""
		switch info.Mode().Type() {
		case 0:
			kind, size = "file", info.Size()
		case fs.ModeDir:
			kind = "dir"
		case fs.ModeSymlink:
			kind = "symlink"
			target, _ = os.Readlink(path)
		}
		fmt.Printf("%q %s %o %d %q\n", rel, kind, info.Mode().Perm(), size, target)
		return nil
	})
	return failed(err)
}
