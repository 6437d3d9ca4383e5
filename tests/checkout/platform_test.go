package checkout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/testenv"
)

// onServers are the places that a platform of separate processes adds.
var onServers = []place{
	{"platform's processes", "environment and arguments of a worker, the API, and an execution service with its sandboxes, during the fetch of a job"},
	{"platform's open files", "contents of every regular file these have open, during the fetch"},
	{"platform's mapped files", "the same for files they have mapped"},
	{"memory beside the worker's", "all that the API and the execution service can write to, during the fetch"},
	{"PostgreSQL", "a dump of the record, and the server's files, its write-ahead log and its log among them"},
	{"Redis", "every command that the server got"},
	{"S3", "the server's files, and artifacts as clients get them"},
	{"logs and answers", "the logs of API, worker and execution service; the job, its output and its receipt as clients get them"},
}

// platform is a private repository, and API, worker and execution service as
// processes of their own over PostgreSQL, Redis and S3, whose operator may use
// the App for it.
type platform struct {
	*canary
	*testenv.Platform
}

func newPlatform(t *testing.T, images string) *platform {
	t.Helper()
	c := newCanary(t)
	p := &platform{c, testenv.StartPlatform(t, testenv.PlatformConfig{
		ImageDir: images, S3: true, Environment: append(c.environment(images), "AGENTDOCK_WORKER_LEASE=3s"),
	})}
	p.cli("admin", "tenant", "set", control.OperatorID, "--grant-repository", "acme/app")
	return p
}

// cli runs the command line against the platform, and wants it to succeed.
func (p *platform) cli(args ...string) string {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, "agentdock"), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "AGENTDOCK_URL=" + p.URL, "AGENTDOCK_API_KEY=" + p.Key}
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		p.t.Fatalf("agentdock %q: %v\n%s%s\nthe worker's log:\n%s", args, err, out.String(), said.String(), p.Worker.Log())
	}
	return out.String()
}

// submit submits a job from the private repository and returns its id.
func (p *platform) submit(args ...string) string {
	p.t.Helper()
	args = append([]string{"jobs", "submit", "--repo", p.github.URL + "/acme/app", "--ref", "main"}, args...)
	return strings.TrimSpace(p.cli(args...))
}

// job is what the API says of one.
type job struct {
	State    string
	Attempt  int
	Outcome  struct{ Kind, Evidence string }
	Resolved struct{ Commit string }
}

func (p *platform) get(id string) (j job) {
	p.t.Helper()
	if err := json.Unmarshal([]byte(p.cli("jobs", "get", "--json", id)), &j); err != nil {
		p.t.Fatal(err)
	}
	return j
}

// ended waits for the end of a job.
func (p *platform) ended(id string) job {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		switch j := p.get(id); {
		case j.State == "succeeded" || j.State == "failed" || j.State == "cancelled":
			return j
		case time.Now().After(deadline):
			p.t.Fatalf("job %s is still %+v\nthe worker's log:\n%s", id, j, p.Worker.Log())
		}
	}
}

// during searches the processes of the platform.
func (f *finds) during(p *platform) {
	for _, pid := range []int{p.Worker.Pid(), p.API.Pid(), p.Execd.Pid()} {
		f.startedWith("platform's processes", pid)
		f.openFiles("platform's open files", pid)
		f.mappedFiles("platform's mapped files", pid)
	}
}

// kept searches what is on record of a job that succeeded.
func (f *finds) kept(p *platform, id, commands string) {
	out := filepath.Join(p.dir, "kept-"+id)
	f.look("logs and answers", "the log of the job", []byte(p.cli("jobs", "logs", id)))
	f.look("logs and answers", "the job", []byte(p.cli("jobs", "get", "--json", id)))
	f.look("logs and answers", "the list of jobs", []byte(p.cli("jobs", "list", "--json")))
	f.look("logs and answers", "the receipt", []byte(p.cli("jobs", "receipt", id)))
	f.look("logs and answers", "the receipt's statement", statement(f.t, p.cli("jobs", "receipt", id)))
	for name, log := range map[string]string{"API": p.API.Log(), "worker": p.Worker.Log(), "execd": p.Execd.Log()} {
		f.look("logs and answers", "the log of "+name, []byte(log))
	}
	f.look("PostgreSQL", "dump", []byte(p.Postgres.Dump(p.dsn())))
	f.look("PostgreSQL", "log", []byte(p.Postgres.Log()))
	f.tree("PostgreSQL", p.Postgres.Dir())
	f.look("Redis", "commands", []byte(commands))
	f.tree("S3", p.S3.Dir)
	p.cli("jobs", "artifacts", id, "--out", out)
	f.tree("S3", out)
	if data, err := os.ReadFile(filepath.Join(out, "everything.bin")); err != nil || !bytes.Contains(data, []byte("/workspace/.git/config")) {
		f.t.Errorf("the artifact does not hold what is inside (%d bytes, %v), so it shows nothing", len(data), err)
	}
}

// statement is what a receipt signs, which stands in it in base64.
func statement(t *testing.T, receipt string) []byte {
	t.Helper()
	var envelope struct{ Payload []byte }
	if err := json.Unmarshal([]byte(receipt), &envelope); err != nil || len(envelope.Payload) == 0 {
		t.Fatalf("the receipt has no statement: %v\n%s", err, receipt)
	}
	return envelope.Payload
}

func (p *platform) dsn() string {
	for _, e := range p.Environment {
		if dsn, ok := strings.CutPrefix(e, "DATABASE_URL="); ok {
			return dsn
		}
	}
	p.t.Fatal("the platform has no database")
	return ""
}

// TestCanaryOnServers has a worker's process fetch for a job, and looks for the
// secrets in the platform's processes and on its servers. Then it plants tokens
// there, and the same search must find them.
func TestCanaryOnServers(t *testing.T) {
	images := images(t)
	p := newPlatform(t, images)
	commands := p.Redis.Watch()
	g := p.hold(nil)
	args := []string{"--artifact", "**", "--", "python3", "-c", inside}
	id := p.submit(args...)
	g.wait(t, nil)
	f := newFinds(t, p.secrets(), images)
	token := p.github.Tokens()[0]
	if !p.opens(token) || len(p.Execd.Sentries()) != 1 {
		t.Errorf("during the fetch the token does not open the repository, or there are %d sandboxes", len(p.Execd.Sentries()))
	}
	f.during(p)
	f.memory("memory beside the worker's", p.API.Pid())
	f.memory("memory beside the worker's", p.Execd.Pid())
	g.open()
	if j := p.ended(id); j.State != "succeeded" || j.Attempt != 1 || j.Resolved.Commit != p.commit {
		t.Errorf("%+v", j)
	}
	if len(p.github.Tokens()) != 1 || p.opens(token) {
		t.Errorf("%d tokens were made, or the first lives", len(p.github.Tokens()))
	}
	f.kept(p, id, commands())
	f.report(onServers, false)

	t.Run("control", func(t *testing.T) {
		// Of the worker, in the place where it is: what a server sends as a pack
		// is in its open file, and the token that is in use in its memory.
		g := p.hold(func(authorization string) string { return authorization })
		commands := p.Redis.Watch()
		cut := p.submit(args...)
		g.wait(t, nil)
		p.packHolds(images)
		f := newFinds(t, p.secrets(), images)
		f.during(p)
		f.memory("memory beside the worker's", p.Worker.Pid())
		if found := f.found["platform's open files"]; len(found) == 0 || len(f.found["platform's processes"]) > 0 {
			t.Errorf("in the worker's open files is found %q, in what it was started with %q", found, f.found["platform's processes"])
		}
		g.open()
		if j := p.ended(cut); j.State != "failed" || j.Outcome.Kind != "checkout_failed" || !strings.Contains(j.Outcome.Evidence, "malformed_repository") {
			t.Errorf("of a pack that is a token, the job is %+v", j)
		}
		p.github.Lock()
		p.github.Git = nil
		p.github.Unlock()

		another := testenv.StartProgram(t, append(p.Environment, "PLANTED="+token), `"msg":"working"`, filepath.Join(p.bin, "agentdock-worker"))
		f.startedWith("platform's processes", another.Pid())
		another.Stop()
		defer mapNameless(t, p.dir, "a page with "+token)()
		f.mappedFiles("platform's mapped files", os.Getpid())
		p.inSandboxMemory(f, token)
		id := p.submit(append([]string{"--env", "PLANTED=" + token}, args...)...)
		if j := p.ended(id); j.State != "succeeded" {
			t.Errorf("%+v", j)
		}
		p.Redis.Do("PUBLISH", "planted", token)
		f.kept(p, id, commands())
		f.look("logs and answers", "planted", []byte(p.Worker.Log()+token))
		f.report(onServers, true)
	})
}

// packHolds waits until the worker has written down what the server has sent.
func (p *platform) packHolds(images string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		f := newFinds(p.t, p.secrets(), images)
		f.openFiles("the worker's", p.Worker.Pid())
		if len(f.found) > 0 {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatal("the worker never writes down the token that the server sends")
		}
	}
}

// inSandboxMemory has a program in a sandbox hold the token, which must be found
// in the memory of the sandbox, a file that its processes have mapped.
func (p *platform) inSandboxMemory(f *finds, token string) {
	f.t.Helper()
	id := strings.TrimSpace(p.cli("jobs", "submit", "--env", "PLANTED="+token, "--", "python3", "-c",
		"import os, time; held = os.environ['PLANTED'] * 2; print('holds it', flush=True); time.sleep(600)"))
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(p.cli("jobs", "logs", id), "holds it"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("the job does not begin: %+v", p.get(id))
		}
	}
	memory := newFinds(f.t, f.needles, f.public)
	memory.mappedFiles("memory", p.Execd.Pid())
	if found := fmt.Sprint(memory.found["memory"]); !strings.Contains(found, "memfd:") {
		f.t.Errorf("in the sandbox's memory the token is not found; it is found in %s", found)
	}
	p.cli("jobs", "cancel", id)
	p.ended(id)
}

// TestWorkerIsKilledDuringAFetch: it leaves no file, and the job comes to one
// end, for which the repository was fetched anew: once in each attempt.
func TestWorkerIsKilledDuringAFetch(t *testing.T) {
	images := images(t)
	p := newPlatform(t, images)
	packs := filepath.Join(p.dir, "packs")
	nothing := func(when string) {
		t.Helper()
		if names, err := os.ReadDir(packs); err != nil || len(names) != 0 {
			t.Errorf("%s there is %v, %v", when, names, err)
		}
	}
	g := p.hold(func(string) string { return "" })
	id := p.submit("--", "cat", "README")
	const kills = 2
	for range kills {
		g.wait(t, nil)
		if open := packsOpen(p.Worker.Pid(), packs); open != 1 {
			t.Errorf("the worker has %d packs open, so this tests nothing", open)
		}
		nothing("during the fetch")
		p.Worker.Kill()
		nothing("after the kill")
		if j := p.get(id); j.State != "starting" || j.Resolved.Commit != "" {
			t.Errorf("after the kill the job is %+v", j)
		}
		p.Worker.Start()
	}
	g.wait(t, nil)
	// The last is let through: what it is sent is no pack, so the truth is that
	// the checkout failed, whoever died before.
	third := p.github.Tokens()
	g.open()
	if j := p.ended(id); j.State != "failed" || j.Outcome.Kind != "checkout_failed" || j.Attempt != kills+1 {
		t.Errorf("%+v", j)
	}
	if g.fetches.Load() != kills+1 || len(third) != kills+1 {
		t.Errorf("%d attempts fetched %d times with %d tokens", kills+1, g.fetches.Load(), len(third))
	}
	p.once(id)

	// The same with a repository that is sound.
	g = p.hold(nil)
	id = p.submit("--artifact", "README", "--", "cat", "README")
	g.wait(t, nil)
	p.Worker.Kill()
	nothing("after the kill")
	p.Worker.Start()
	g.open()
	if j := p.ended(id); j.State != "succeeded" || j.Attempt != 2 || j.Resolved.Commit != p.commit {
		t.Errorf("%+v", j)
	}
	if out := p.cli("jobs", "logs", id); out != "private\n" || g.fetches.Load() != 2 {
		t.Errorf("it says %q, and was fetched %d times", out, g.fetches.Load())
	}
	p.once(id)
	nothing("at the end")
	// A process that is killed revokes nothing: of each kill, one token lives.
	if live := p.github.Live(); live != kills+1 {
		t.Errorf("%d tokens live, and %d workers were killed", live, kills+1)
	}
	for deadline := time.Now().Add(time.Minute); len(p.Execd.Sentries()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("sandboxes are left: %v", p.Execd.Sentries())
		}
	}
}

// once holds a job to one end: in the record, in the receipt, and in the log of
// whoever ended it.
func (p *platform) once(id string) {
	p.t.Helper()
	if n := len(regexp.MustCompile(`"msg":"job ended"[^\n]*"job":"`+id+`"`).FindAllString(p.Worker.Log(), -1)); n != 1 {
		p.t.Errorf("the job ended %d times\n%s", n, p.Worker.Log())
	}
	var st struct {
		Predicate struct {
			State    string
			Resolved struct{ Commit string }
			Job      struct {
				ID       string
				Attempts int
			}
		}
	}
	if err := json.Unmarshal(statement(p.t, p.cli("jobs", "receipt", id)), &st); err != nil {
		p.t.Fatal(err)
	}
	if j, r := p.get(id), st.Predicate; r.Job.ID != id || r.State != j.State || r.Job.Attempts != j.Attempt || r.Resolved.Commit != j.Resolved.Commit {
		p.t.Errorf("the receipt says %+v, and the record %+v", r, j)
	}
}

// packsOpen counts the files of a directory that a process has open.
func packsOpen(pid int, dir string) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if target, _ := os.Readlink(f); strings.HasPrefix(target, dir) {
			n++
		}
	}
	return n
}

// TestATokenThatLivesOnIsInTheLog: also when a job was cancelled, and nobody
// reads why its checkout ended.
func TestATokenThatLivesOnIsInTheLog(t *testing.T) {
	p := newPlatform(t, images(t))
	p.github.Lock()
	before := p.github.API
	p.github.API = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return before(rw, r)
		}
		rw.WriteHeader(http.StatusInternalServerError)
		return true
	}
	p.github.Unlock()
	g := p.hold(nil)
	id := p.submit("--", "true")
	g.wait(t, nil)
	p.cli("jobs", "cancel", id)
	if j := p.ended(id); j.State != "cancelled" || j.Outcome.Kind != "cancelled" {
		t.Errorf("%+v", j)
	}
	if log := p.Worker.Log(); !strings.Contains(log, "a token lives on") || !strings.Contains(log, `"until":"`+time.Now().UTC().Format("2006-")) {
		t.Errorf("the log does not say that a token lives on:\n%s", log)
	}
	if secret := p.github.Tokens()[0]; !p.opens(secret) || strings.Contains(p.Worker.Log(), secret) ||
		strings.Contains(p.Worker.Log(), base64.StdEncoding.EncodeToString([]byte("x-access-token:"+secret))) {
		t.Error("the token does not live, so this tests nothing; or the log holds it")
	}
	g.open()
}
