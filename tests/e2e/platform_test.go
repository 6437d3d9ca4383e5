package e2e

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/testenv"
)

// The platform as a team runs it: API, worker and execution service as processes
// of their own, over PostgreSQL, Redis and an S3 store.
func TestPlatformOfSeparateProcesses(t *testing.T) {
	bin := binaries(t)
	images := os.Getenv("AGENTDOCK_IMAGE_DIR")
	if images == "" {
		images = "/var/lib/agentdock/images"
	}
	collector := testenv.StartCollector(t)
	p := testenv.StartPlatform(t, testenv.PlatformConfig{ImageDir: images, S3: true,
		Environment: append(sendsTraces(collector), "AGENTDOCK_WORKER_LEASE=3s")})
	dir := t.TempDir()
	agentdock := func(args ...string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "agentdock"), args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "AGENTDOCK_URL=" + p.URL, "AGENTDOCK_API_KEY=" + p.Key}
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			if _, ok := err.(*exec.ExitError); !ok {
				t.Fatal(err)
			}
		}
		return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
	}
	out, said, status := agentdock("jobs", "submit", "--fixture", "--artifact", "dist/**", "--out", "build", "--wait", "--", "python3", "tools/check.py")
	if status != 0 || !strings.Contains(out, "52 passed") {
		t.Fatalf("status %d\n%s\n%s", status, out, said)
	}
	if _, err := os.Stat(filepath.Join(dir, "build/dist/report.json")); err != nil {
		t.Error(err)
	}
	id, _, _ := agentdock("jobs", "submit", "--", "true")
	id = strings.TrimSpace(id)
	if _, said, status := agentdock("jobs", "receipt", id, "--out", "receipt.json"); status == 0 {
		t.Logf("the receipt was there at once")
	} else if !strings.Contains(said, "receipt when it has ended") {
		t.Errorf("status %d: %s", status, said)
	}
	if _, said, status := agentdock("jobs", "logs", "-f", id); status != 0 {
		t.Errorf("%d: %s", status, said)
	}
	if _, said, status := agentdock("jobs", "receipt", id, "--out", "receipt.json"); status != 0 {
		t.Errorf("%d: %s", status, said)
	}
	keys, _, _ := agentdock("receipt", "keys")
	if err := os.WriteFile(filepath.Join(dir, "keys.pem"), []byte(keys), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, said, status := agentdock("receipt", "verify", "receipt.json", "--key", "keys.pem"); status != 0 || !strings.Contains(out, id) {
		t.Errorf("%d: %s%s", status, out, said)
	}
	// A worker that is killed under a job loses nothing: the next goes on.
	id, _, _ = agentdock("jobs", "submit", "--", "python3", "-c", "import time\nfor i in range(4): print(i, flush=True); time.sleep(1)")
	id = strings.TrimSpace(id)
	for {
		if out, _, _ := agentdock("jobs", "logs", id); strings.HasPrefix(out, "0\n") {
			break
		}
	}
	p.Worker.Kill()
	p.Worker.Start()
	if out, said, status := agentdock("jobs", "logs", "-f", id); status != 0 || out != "0\n1\n2\n3\n" {
		t.Errorf("%d: %q, %s", status, out, said)
	}
	if out, _, _ := agentdock("jobs", "get", "--json", id); !strings.Contains(out, `"state":"succeeded"`) || !strings.Contains(out, `"attempt":1`) {
		t.Errorf("got %s", out)
	}
	oneTrace(t, p, collector)
	lookAt(t, p)
}

// lookAt looks at what operators look at: health, metrics, and logs without
// secrets.
func lookAt(t *testing.T, p *testenv.Platform) {
	t.Helper()
	worker := "http://" + p.Worker.Find(`"metrics":"([^"]+)"`)
	for _, url := range []string{p.URL + "/healthz", p.URL + "/readyz", worker + "/healthz", worker + "/readyz"} {
		if status, body := get(t, url, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	for url, lines := range map[string][]string{
		p.URL + "/metrics": {`agentdock_jobs{state="succeeded"} 4`, `agentdock_jobs{state="queued"} 0`, `agentdock_oldest_queued_seconds 0`,
			`agentdock_http_requests_total{method="POST",route="/v1/jobs",status="201"} 4`},
		// This one has been killed and started again since: it has had two jobs.
		worker + "/metrics": {`agentdock_job_outcomes_total{outcome="exited",state="succeeded"} 2`, `agentdock_claim_delay_seconds_count 1`,
			`agentdock_sandbox_create_seconds_count{node="one",result="ok"} 1`, `agentdock_exec_start_seconds_count{node="one",result="ok"} `,
			`agentdock_command_seconds_count{node="one",outcome="exited"} `, `agentdock_live_sandboxes{node="one"} 0`, `agentdock_sweeps_total `, `agentdock_leases_lost_total 0`},
	} {
		_, body := get(t, url, p.Key)
		for _, line := range lines {
			if !strings.Contains(body, "\n"+line) {
				t.Errorf("%s has no %s:\n%s", url, line, body)
			}
		}
	}
	if log := p.Worker.Log(); !logged(log, `"msg":"job ended"`, `"job":"`, `"tenant":"`, `"attempt":1`) {
		t.Errorf("the worker's log does not name its jobs:\n%s", log)
	}
	for line := range strings.Lines(p.API.Log() + p.Worker.Log() + p.Execd.Log()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of a log is not JSON: %s", line)
		}
	}
	for _, secret := range []string{p.Key, p.S3.SecretKey} {
		if strings.Contains(p.API.Log()+p.Worker.Log()+p.Execd.Log(), secret) {
			t.Errorf("a secret is in a log")
		}
	}
}

func get(t *testing.T, url, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body.String()
}

// Neither starts where it could open a container engine's socket (A2).
func TestAPIAndWorkerRefuseAContainerEngine(t *testing.T) {
	bin := binaries(t)
	for _, program := range []string{"agentdock-api", "agentdock-worker"} {
		cmd := exec.Command(filepath.Join(bin, program))
		cmd.Env = []string{"DATABASE_URL=postgres://nobody@127.0.0.1:1/x", "REDIS_URL=redis://127.0.0.1:1/0", "ARTIFACT_DIR=" + t.TempDir(),
			"AGENTDOCK_SIGNING_KEY_FILE=" + t.TempDir() + "/key.pem", "DOCKER_HOST=unix:///var/run/docker.sock"}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "DOCKER_HOST") || !strings.Contains(string(out), "cannot start") {
			t.Errorf("%s: %v: %s", program, err, out)
		}
	}
}
