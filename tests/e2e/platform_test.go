package e2e

import (
	"bytes"
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
	lookAt(t, p)
	oneTrace(t, p, collector)
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
	for url, want := range map[string]string{
		p.URL + "/metrics":  `agentdock_jobs{state="succeeded"} 3`,
		worker + "/metrics": `agentdock_job_outcomes_total{outcome="exited",state="succeeded"}`,
	} {
		if _, body := get(t, url, p.Key); !strings.Contains(body, want) {
			t.Errorf("%s has no %s:\n%s", url, want, body)
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
