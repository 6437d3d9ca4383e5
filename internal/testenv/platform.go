package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// Platform is API, worker and execution service as separate processes over real
// servers: PostgreSQL, Redis, and an S3 store or a directory.
type Platform struct {
	// URL is the API's, and Key opens everything there.
	URL, Key string

	Postgres *Postgres
	Redis    *Redis
	S3       *S3 // nil: a directory
	Execd    *Execd
	API      *Program
	Worker   *Program
	// Environment is what API and worker are given, for more of them.
	Environment []string
}

// PlatformConfig says what a platform is made of.
type PlatformConfig struct {
	ImageDir string
	// S3 keeps artifacts in an S3 store instead of a directory.
	S3 bool
	// Environment is added to that of API and worker ("NAME=value").
	Environment []string
}

// StartPlatform starts all of it; the test's clean-up stops it, in the opposite
// order, and fails the test if anything is left.
func StartPlatform(t testing.TB, cfg PlatformConfig) *Platform {
	t.Helper()
	bin := Binaries(t)
	p := &Platform{Postgres: StartPostgres(t), Redis: StartRedis(t), Execd: StartExecd(t, cfg.ImageDir)}
	dir := t.TempDir()
	p.Environment = []string{"PATH=" + os.Getenv("PATH"),
		"DATABASE_URL=" + p.Postgres.Database(), "REDIS_URL=" + p.Redis.URL,
		"AGENTDOCK_API_LISTEN=127.0.0.1:0", "AGENTDOCK_WORKER_LISTEN=127.0.0.1:0",
		"AGENTDOCK_WORKER_EXECDS=one=unix:" + p.Execd.Socket, "AGENTDOCK_API_EXECDS=one=unix:" + p.Execd.Socket,
		"AGENTDOCK_SIGNING_KEY_FILE=" + filepath.Join(dir, "signing-key.pem"),
		"AGENTDOCK_RECEIPT_KEYS_FILE=" + filepath.Join(dir, "receipt-keys.pem"),
		"SANDBOX_CHECKOUT_DIR=" + filepath.Join(dir, "checkout"),
	}
	if cfg.S3 {
		p.S3 = StartS3(t, t.TempDir())
		p.Environment = append(p.Environment, "S3_ENDPOINT="+p.S3.Endpoint, "S3_REGION="+p.S3.Region, "S3_BUCKET="+p.S3.Bucket,
			"S3_ACCESS_KEY_ID="+p.S3.AccessKey, "S3_SECRET_ACCESS_KEY="+p.S3.SecretKey)
	} else {
		p.Environment = append(p.Environment, "ARTIFACT_DIR="+filepath.Join(dir, "artifacts"))
	}
	p.Environment = append(p.Environment, cfg.Environment...)
	output := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, program), args...)
		cmd.Env = p.Environment
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", program, args, err, stderrOf(err))
		}
		return string(out)
	}
	if err := os.WriteFile(filepath.Join(dir, "receipt-keys.pem"), []byte(output("agentdock-worker", "public-key")), 0o644); err != nil {
		t.Fatal(err)
	}
	output("agentdock-api", "migrate")
	p.Key = strings.TrimSpace(output("agentdock-api", "bootstrap-admin-key"))
	p.API = StartProgram(t, p.Environment, `"msg":"serving"`, filepath.Join(bin, "agentdock-api"))
	p.URL = "http://" + p.API.Find(`"listen":"([^"]+)"`)
	p.Worker = p.StartWorker(t, "worker-1")
	return p
}

// Setting is what API and worker have been given for a variable.
func (p *Platform) Setting(name string) string {
	for _, kv := range slices.Backward(p.Environment) { // the last one counts
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}

// StartWorker starts another worker, which has a name in the record.
func (p *Platform) StartWorker(t testing.TB, name string) *Program {
	t.Helper()
	return StartProgram(t, append(slices.Clone(p.Environment), "AGENTDOCK_WORKER_NAME="+name), `"msg":"working"`,
		filepath.Join(Binaries(t), "agentdock-worker"))
}

func stderrOf(err error) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.Stderr
	}
	return nil
}

// Program is a process of ours that logs to standard error.
type Program struct {
	t       testing.TB
	environ []string
	argv    []string
	ready   string
	cmd     *exec.Cmd
	gone    chan struct{}
	log     capture.Buffer
}

// StartProgram starts a program and waits until its log has a line with ready.
// The test's clean-up stops it, and fails the test if it does not end well.
func StartProgram(t testing.TB, environ []string, ready string, argv ...string) *Program {
	t.Helper()
	p := &Program{t: t, environ: slices.Clone(environ), argv: argv, ready: ready}
	p.Start()
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", filepath.Base(argv[0]), p.log.Tail(256<<10))
		}
	})
	return p
}

// Start starts it again after Kill or Stop.
func (p *Program) Start() {
	p.t.Helper()
	before := len(p.log.String())
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env = p.environ
	cmd.Stderr = &p.log
	// A test that is killed must leave no process, not even one that it has
	// stopped, which takes no other signal.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	gone := make(chan struct{})
	p.cmd, p.gone = cmd, gone
	go func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(gone)
	}()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.log.String()[before:], p.ready); time.Sleep(5 * time.Millisecond) {
		select {
		case <-gone:
			p.t.Fatalf("%s did not start: %s\n%s", filepath.Base(p.argv[0]), cmd.ProcessState, p.log.String())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s is not ready\n%s", filepath.Base(p.argv[0]), p.log.String())
		}
	}
}

// Find is what the log says last that matches the group of a pattern.
func (p *Program) Find(pattern string) string {
	p.t.Helper()
	all := regexp.MustCompile(pattern).FindAllStringSubmatch(p.log.String(), -1)
	if len(all) == 0 {
		p.t.Fatalf("the log has no %s\n%s", pattern, p.log.String())
	}
	return all[len(all)-1][1]
}

// Log is what it has logged.
func (p *Program) Log() string { return p.log.String() }

// Pid is its process.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Signal sends it a signal that does not end it.
func (p *Program) Signal(signal unix.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Errorf("%v to %s: %v", signal, filepath.Base(p.argv[0]), err)
	}
}

// Kill ends it with SIGKILL.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// Stop ends it with SIGTERM and wants it to end well. It may be called again.
func (p *Program) Stop() {
	p.t.Helper()
	select {
	case <-p.gone:
		return
	default:
	}
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(2 * time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.gone
		p.t.Errorf("%s did not end after SIGTERM", filepath.Base(p.argv[0]))
		return
	}
	if status := p.cmd.ProcessState.ExitCode(); status != 0 {
		p.t.Errorf("%s ended with %s", filepath.Base(p.argv[0]), fmt.Sprint(p.cmd.ProcessState))
	}
}
