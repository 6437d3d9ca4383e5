package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/oneshot"
	"github.com/agentdock/agentdock/internal/run"
)

// parsed gives what the flags ask for, without running it.
func parsed(t *testing.T, args ...string) (oneshot.Request, string, error) {
	t.Helper()
	var f runFlags
	cmd := newRun()
	cmd.ResetFlags()
	f.define(cmd)
	if err := cmd.Flags().Parse(args); err != nil {
		return oneshot.Request{}, "", err
	}
	var said bytes.Buffer
	req, cleanup, err := f.request(t.Context(), cmd.Flags().Args(), strings.NewReader("ours"), newConsole(&said))
	t.Cleanup(cleanup)
	return req, said.String(), err
}

func TestRunDefaults(t *testing.T) {
	req, said, err := parsed(t, "--", "true")
	if err != nil || said != "" {
		t.Fatal(err, said)
	}
	if req.Limits != run.DefaultLimits() || req.Image != "default" || req.Files != nil || req.Stdin != nil || len(req.Env) > 0 {
		t.Errorf("got %+v", req)
	}
}

func TestRunFlags(t *testing.T) {
	req, _, err := parsed(t, "--fixture", "--image", "other", "--cpus", "0.5", "--memory", "1g", "--pids", "20", "--disk", "300MB",
		"--inodes", "1000", "--timeout", "90", "--max-output", "1k", "--env", "A=1", "--env", "B=x=y", "--cwd", "sub", "--stdin", "-",
		"--artifact", "dist/**", "--artifact", "*.log", "--out", t.TempDir(), "--artifact-bytes", "5m", "--json",
		"prog", "--json", "-x")
	if err != nil {
		t.Fatal(err)
	}
	want := run.Limits{MilliCPU: 500, MemoryBytes: run.GiB, PIDs: 20, DiskBytes: 300e6, Inodes: 1000, OutputBytes: 1024, WallClock: 90 * time.Second}
	if req.Limits != want || req.Image != "other" || req.Dir != "sub" || req.Env["A"] != "1" || req.Env["B"] != "x=y" ||
		req.Files == nil || req.Stdin == nil || len(req.Artifacts) != 2 || req.ArtifactLimits.TotalBytes != 5*run.MiB {
		t.Errorf("got %+v", req)
	}
	if got := strings.Join(req.Argv, " "); got != "prog --json -x" {
		t.Errorf("the program's own flags are %q", got)
	}
}

// A smaller memory must not make the default disk an error.
func TestDiskFollowsMemory(t *testing.T) {
	for memory, want := range map[string]int64{"128m": 64 * run.MiB, "2g": 256 * run.MiB} {
		if req, _, err := parsed(t, "--memory", memory, "true"); err != nil || req.Limits.DiskBytes != want {
			t.Errorf("--memory %s gives a disk of %d, %v; want %d", memory, req.Limits.DiskBytes, err, want)
		}
	}
	if req, _, err := parsed(t, "--memory", "128m", "--disk", "1g", "true"); err != nil || req.Limits.DiskBytes != run.GiB {
		t.Errorf("a disk that was asked for became %d, %v", req.Limits.DiskBytes, err)
	}
}

func TestRunRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		says string
	}{
		{nil, "no program"},
		{[]string{"--"}, "no program"},
		{[]string{"--", ""}, "empty"},
		{[]string{"--", "a\x00b"}, "NUL"},
		{[]string{"--cwd", "..", "true"}, ".."},
		{[]string{"--cwd", "/etc", "true"}, "absolute"},
		{[]string{"--memory", "-1", "true"}, "--memory"},
		{[]string{"--memory", "", "true"}, "--memory: size is empty"},
		{[]string{"--memory", "12parsecs", "true"}, "parsecs"},
		{[]string{"--memory", "1m", "true"}, "below"},
		{[]string{"--memory", "1t", "true"}, "--memory: more than 64.0 GiB is never given"},
		{[]string{"--cpus", "65", "true"}, "--cpus"},
		{[]string{"--timeout", "48h", "true"}, "--timeout: more than 24h0m0s is never given"},
		{[]string{"--timeout", "0", "true"}, "--timeout"},
		{[]string{"--env", "HOME", "true"}, "never taken from your own environment"},
		{[]string{"--env", "=secret", "true"}, "no name before the ="},
		{[]string{"--end-at-limit", "", "true"}, "it is empty; name some of [pids disk inodes output]"},
		{[]string{"--fixture", "--dir", ".", "true"}, "exclude"},
		{[]string{"--dir", "", "true"}, "does not exist"},
		{[]string{"--dir", file, "true"}, "not a directory"},
		{[]string{"--stdin", "missing", "true"}, "missing"},
		{[]string{"--stdin", ".", "true"}, "directory"},
		{[]string{"--artifact", "../x", "true"}, ".."},
		{[]string{"--artifact", "a[", "true"}, "malformed"},
		{[]string{"--artifact", "", "true"}, "empty"},
		{[]string{"--artifact", "x", "--out", file, "true"}, "not a directory"},
		{[]string{"--artifact", "x", "--out", "", "true"}, "--out"},
		{[]string{"--artifact", "x", "--artifact-bytes", "0", "true"}, "--artifact-bytes"},
		{[]string{"--out", "x", "true"}, "--artifact"},
		{[]string{"--image", "", "true"}, "image"},
	} {
		if _, _, err := parsed(t, tc.args...); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: %v, want it to say %q", tc.args, err, tc.says)
		}
	}
}

func TestDirectoryThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), make([]byte, 10_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range [][]string{{"--disk", "200k", "--dir", dir, "true"}, {"--inodes", "20", "--dir", dir, "true"}} {
		if _, _, err := parsed(t, tc...); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "raise "+tc[0]) {
			t.Errorf("%q: %v", tc, err)
		}
	}
	req, said, err := parsed(t, "--dir", dir, "true")
	if err != nil || req.FilesNote != "copying 30 files (293.0 KiB)" || said != "agentdock: warning: not copied: \"fifo\" is a fifo\n" {
		t.Errorf("%v, %q, said %q", err, req.FilesNote, said)
	}
}

// Errors of ours have the shape of every other answer.
func TestJSONOfAnError(t *testing.T) {
	for says, args := range map[string][]string{
		"lots": {"run", "--json", "--memory", "lots", "true"},
		"tty":  {"run", "--json", "--tty", "true"},
	} {
		var out, errOut bytes.Buffer
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(&out)
		root.SetErr(&errOut)
		err := root.ExecuteContext(t.Context())
		if status, ok := err.(exitStatus); !ok || status != 125 {
			t.Errorf("%q: %v", args, err)
		}
		var got struct {
			State string
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.State != "failed" || got.Error.Code != "invalid" || !strings.Contains(got.Error.Message, says) {
			t.Errorf("%q: %v: %s", args, err, out.String())
		}
		if strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%q: stderr is %q, want one line", args, errOut.String())
		}
	}
}

func TestSignalsEndTheRunOnce(t *testing.T) {
	ctx, caught, stop := catchSignals(context.Background())
	defer stop()
	if caught() != nil || ctx.Err() != nil {
		t.Fatal("ended before a signal")
	}
	// A signal that arrives after the test has stopped catching would end the
	// test: see each one arrive.
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(seen)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGINT} {
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		<-seen
		<-ctx.Done() // the first ends it, the others change nothing
	}
	if caught() != syscall.SIGTERM {
		t.Errorf("caught %v", caught())
	}
}

func TestConsole(t *testing.T) {
	var b bytes.Buffer
	c := newConsole(&b)
	_, _ = c.Write([]byte("no newline"))
	c.line("ours")
	_, _ = c.Write([]byte("with one\n"))
	c.line("ours")
	ended := c.phase("quick")
	ended()
	if want := "no newline\nagentdock: ours\nwith one\nagentdock: ours\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// People write a directory and mean what is in it.
func TestArtifactPatternsAreRead(t *testing.T) {
	req, _, err := parsed(t, "--artifact", "./a", "--artifact", "b/", "--artifact", "c//d/*", "--out", t.TempDir(), "--", "true")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(req.Artifacts, " "); got != "a b/** c/d/*" {
		t.Errorf("got %s", got)
	}
}

func TestGroupsOfCommandsRefuseUnknownOnes(t *testing.T) {
	root := newRoot()
	root.SetArgs([]string{"image", "bogus"})
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "bogus") {
		t.Errorf("got %v", err)
	}
}
