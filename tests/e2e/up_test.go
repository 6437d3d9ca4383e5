package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// platform is an agentdock up that a script has started.
type platform struct {
	cmd   *exec.Cmd
	out   *watched
	ended chan struct{}
}

type platformKeyType struct{}

var platformKey = platformKeyType{}

// serveWithin is long enough to make the default image, on a machine that is
// busy.
const serveWithin = 10 * time.Minute

var (
	servesOn = regexp.MustCompile(`AgentDock serves on (\S+);`)
	firstKey = regexp.MustCompile(`AGENTDOCK_API_KEY=(\S+)`)
)

// cmdUp starts agentdock up on a port of its own and waits until it serves. Then
// AGENTDOCK_URL is its address, and AGENTDOCK_API_KEY its first key, if it has
// made one: up [NAME=VALUE…] [flags]
func cmdUp(ts *testscript.TestScript, neg bool, args []string) {
	if neg || ts.Value(platformKey).(*platform).cmd != nil {
		ts.Fatalf("usage: up [NAME=VALUE…] [flags], once before down")
	}
	var environ []string
	for len(args) > 0 && strings.Contains(args[0], "=") && !strings.HasPrefix(args[0], "-") {
		environ, args = append(environ, args[0]), args[1:]
	}
	for _, name := range []string{"PATH", "AGENTDOCK_RUNTIME_DIR", "AGENTDOCK_IMAGE_DIR", "HOME"} {
		environ = append(environ, name+"="+ts.Getenv(name))
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} { // to a mirror of packages
		if value := os.Getenv(name); value != "" {
			environ = append(environ, name+"="+value)
		}
	}
	p := ts.Value(platformKey).(*platform)
	p.cmd = exec.Command(filepath.Join(strings.Split(ts.Getenv("PATH"), ":")[0], "agentdock"),
		append([]string{"up", "--listen", "127.0.0.1:0", "--data", ts.MkAbs("data")}, args...)...)
	p.cmd.Env = environ
	p.out = &watched{word: []byte("Ctrl-C stops it."), seen: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.WaitDelay = time.Second
	// A test that is killed must leave no platform.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	ts.Check(p.cmd.Start())
	p.ended = make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // how it ended is in its ProcessState
		close(p.ended)
	}()
	select {
	case <-p.out.seen:
	case <-p.ended:
		ts.Fatalf("it ended before it served: %s: %s", p.cmd.ProcessState, p.out)
	case <-time.After(serveWithin):
		ts.Fatalf("it does not serve: %s", p.out)
	}
	ts.Setenv("AGENTDOCK_URL", servesOn.FindStringSubmatch(p.out.String())[1])
	key := ""
	if m := firstKey.FindStringSubmatch(p.out.String()); m != nil {
		key = m[1]
	}
	ts.Setenv("AGENTDOCK_API_KEY", key)
}

// cmdDown sends a signal to what up has started, and wants it to end with a
// status, or by the signal: down INT 0, down KILL signal
func cmdDown(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value(platformKey).(*platform)
	if neg || len(args) != 2 || p.cmd == nil {
		ts.Fatalf("usage: down INT|TERM|KILL STATUS, after up")
	}
	sig := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[0]]
	look(ts)
	ts.Check(p.cmd.Process.Signal(sig))
	got := p.await(ts)
	if got != args[1] {
		ts.Fatalf("it ended with %s, want %s: %s", got, args[1], p.out)
	}
	ts.Logf("%s", p.out)
	p.cmd = nil
}

func (p *platform) await(ts *testscript.TestScript) string {
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		ts.Fatalf("it did not end: %s", p.out)
	}
	if st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return "signal"
	}
	return strconv.Itoa(p.cmd.ProcessState.ExitCode())
}

// stop is for a script that failed half-way.
func (p *platform) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// cmdAwait runs a command again until its output matches: await PATTERN command…
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN command [args…]")
	}
	pattern := regexp.MustCompile(args[0])
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		last = ts.ReadFile("stdout")
		if err == nil && pattern.MatchString(last) {
			return
		}
	}
	ts.Fatalf("%q never says %s; the last was: %s", args[1:], args[0], last)
}

// cmdKeep puts the first line of the output of the last command, or what matches
// a pattern in it, into a variable: keep NAME [PATTERN]
func cmdKeep(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile("stdout")
	if len(args) > 1 {
		text = regexp.MustCompile(args[1]).FindString(text)
	}
	line, _, _ := strings.Cut(text, "\n")
	if line == "" {
		ts.Fatalf("there is nothing to keep")
	}
	ts.Setenv(args[0], line)
}

// cmdKillExecd kills the execution service of what up has started.
func cmdKillExecd(ts *testscript.TestScript, _ bool, _ []string) {
	note(ts)
	pid, err := find(ts.Getenv("AGENTDOCK_RUNTIME_DIR"), "agentdock-execd")
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
}

// cmdConfigFile writes the user's config file, config.json, with a key.
func cmdConfigFile(ts *testscript.TestScript, _ bool, args []string) {
	text := fmt.Sprintf(`{"url": %q, "api_key": %q}`, ts.Getenv("AGENTDOCK_URL"), args[0])
	ts.Check(os.WriteFile(ts.MkAbs("config.json"), []byte(text), 0o600))
}

// cmdNoKey wants that what up has started showed no key.
func cmdNoKey(ts *testscript.TestScript, _ bool, _ []string) {
	if out := ts.Value(platformKey).(*platform).out.String(); strings.Contains(out, "adk_") {
		ts.Fatalf("it shows a key: %s", out)
	}
}

// cmdSaid wants that what up has started has said something: said PATTERN
func cmdSaid(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value(platformKey).(*platform)
	if len(args) != 1 {
		ts.Fatalf("usage: [!] said PATTERN, after up")
	}
	if regexp.MustCompile(args[0]).MatchString(p.out.String()) == neg {
		ts.Fatalf("it said: %s", p.out)
	}
}
