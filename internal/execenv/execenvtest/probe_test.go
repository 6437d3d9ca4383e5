package execenvtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The probe is what the suite measures with, so it is tested where its verbs
// can be checked without an environment: on this host.

func hostProbe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(path, BuildProbe(t), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func runProbe(t *testing.T, cmd *exec.Cmd) (stdout string, status syscall.WaitStatus) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	if errs.Len() > 0 {
		t.Logf("%q: stderr: %s", cmd.Args, clip(errs.String()))
	}
	return out.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
}

func TestProbeEndsAsAsked(t *testing.T) {
	p := hostProbe(t)
	for _, code := range []int{0, 1, 137, 255} {
		if _, st := runProbe(t, exec.Command(p, "exit", strconv.Itoa(code))); !st.Exited() || st.ExitStatus() != code {
			t.Errorf("exit %d: %v", code, st)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGPIPE} {
		if _, st := runProbe(t, exec.Command(p, "raise", strconv.Itoa(int(sig)))); !st.Signaled() || st.Signal() != sig {
			t.Errorf("raise %v: %v", sig, st)
		}
	}
}

func TestProbeFloodsThePattern(t *testing.T) {
	out, st := runProbe(t, exec.Command(hostProbe(t), "flood", "stdout", "1000003"))
	if st != 0 || out != patternOf(1000003) {
		t.Errorf("status %v, %d bytes", st, len(out))
	}
}

func TestProbeSeesWhatWasChanged(t *testing.T) {
	p := hostProbe(t)
	var written []byte
	for offset := uint64(0); offset < 48<<10; offset += 16 << 10 {
		written = append(written, bytes.Repeat([]byte("fill"), 4094)...)
		written = binary.LittleEndian.AppendUint64(written, offset)
	}
	written = written[:40<<10]
	file := filepath.Join(t.TempDir(), "file")
	for _, tc := range []struct {
		flip int
		want string
	}{{-1, "intact 40960\n"}, {3, "changed after 0\n"}, {20 << 10, "changed after 16384\n"}, {40<<10 - 1, "changed after 32768\n"}} {
		contents := bytes.Clone(written)
		if tc.flip >= 0 {
			contents[tc.flip]++
		}
		if err := os.WriteFile(file, contents, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, _ := runProbe(t, exec.Command(p, "intact", file)); out != tc.want {
			t.Errorf("with byte %d changed it prints %q, want %q", tc.flip, out, tc.want)
		}
	}
}

// TestProbeForksToTheLimit uses a limit of the host that holds for an
// unprivileged user, who needs a number of its own for that.
func TestProbeForksToTheLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("missing: root, to become another user")
	}
	p := hostProbe(t)
	for dir := filepath.Dir(p); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || info.Mode()&0o001 == 0 {
			_ = os.Chmod(dir, 0o755)
		}
	}
	const limit = 40
	cmd := exec.Command("prlimit", "--nproc="+strconv.Itoa(limit), p, "forkbomb")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 61234, Gid: 61234},
		// The children end with the probe: it is the first of its namespace.
		Cloneflags: syscall.CLONE_NEWPID,
	}
	out, st := runProbe(t, cmd)
	if !st.Exited() || st.ExitStatus() != int(syscall.EAGAIN) || !strings.Contains(out, "error EAGAIN") {
		t.Errorf("status %v, %q", st, out)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(strings.SplitN(out, "\n", 2)[0], "children "))
	if err != nil || n < limit/2 || n >= limit {
		t.Errorf("with a limit of %d: %q", limit, out)
	}
}

func TestProbeDaemonOutlivesItsParent(t *testing.T) {
	p := hostProbe(t)
	for _, how := range [][]string{nil, {"stop"}} {
		beat := filepath.Join(t.TempDir(), "beat")
		// Not runProbe: the daemon would hold its pipe open.
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(p, append([]string{"daemon", beat}, how...)...)
		cmd.Stdout = out
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid, state := 0, ""
		deadline := time.Now().Add(10 * time.Second)
		for want := map[bool]string{true: "T", false: "S"}[how != nil]; state != want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			pid, state = findDaemon(t, p, beat)
		}
		if pid == 0 {
			t.Fatalf("no daemon %v to be seen", how)
		}
		if how != nil && state != "T" {
			t.Errorf("the stopped daemon is in state %q", state)
		}
		_ = syscall.Kill(pid, syscall.SIGTERM)
		if again, _ := findDaemon(t, p, beat); again != pid {
			t.Errorf("SIGTERM ended the daemon")
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_ = out.Close()
	}
}

// findDaemon reads what the probe's ps prints, and the state from /proc.
func findDaemon(t *testing.T, p, beat string) (pid int, state string) {
	t.Helper()
	out, _ := runProbe(t, exec.Command(p, "ps"))
	for line := range strings.Lines(out) {
		number, cmdline, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.Contains(cmdline, "daemon-child "+beat) {
			pid, _ = strconv.Atoi(number)
			stat, _ := os.ReadFile("/proc/" + number + "/stat")
			if _, after, ok := strings.Cut(string(stat), ") "); ok {
				state = after[:1]
			}
		}
	}
	return pid, state
}

func TestProbeTreeAndFiles(t *testing.T) {
	p, dir := hostProbe(t), t.TempDir()
	for _, args := range [][]string{
		{"mkdir", dir + "/a/b"}, {"write", dir + "/a/f", "text"}, {"symlink", "f", dir + "/a/l"},
		{"mkfifo", dir + "/fifo"}, {"touch", dir + "/a/b", "3"},
	} {
		if out, st := runProbe(t, exec.Command(p, args...)); st != 0 {
			t.Errorf("%q: %v %s", args, st, out)
		}
	}
	t.Chdir(dir) // a socket's path must be short
	if out, st := runProbe(t, exec.Command(p, "mksock", "sock")); st != 0 {
		t.Errorf("mksock: %v %s", st, out)
	}
	out, _ := runProbe(t, exec.Command(p, "tree", dir))
	want := `"a" dir 755 0 ""
"a/b" dir 755 0 ""
"a/b/f0" file 644 0 ""
"a/b/f1" file 644 0 ""
"a/b/f2" file 644 0 ""
"a/f" file 644 4 ""
"a/l" symlink 777 0 "f"
"fifo" other 644 0 ""
"sock" other 755 0 ""
`
	if out != want {
		t.Errorf("tree prints\n%s\nwant\n%s", out, want)
	}
	if out, st := runProbe(t, exec.Command(p, "read", dir+"/missing")); out != "error ENOENT\n" || st.ExitStatus() != int(syscall.ENOENT) {
		t.Errorf("read of a missing file: %v %q", st, out)
	}
}
