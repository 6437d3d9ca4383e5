package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/testenv"
)

const tenants = 10

// jobs is how many are submitted; JOBS says another number.
func jobs(b *testing.B) int {
	b.Helper()
	if n, err := strconv.Atoi(os.Getenv("JOBS")); err == nil {
		return n
	}
	return 1000
}

// BenchmarkPlatformEmbedded is a load of jobs on agentdock up.
func BenchmarkPlatformEmbedded(b *testing.B) {
	dir := images(b)
	cmd := exec.Command(filepath.Join(testenv.Binaries(b), "agentdock"), "up", "--listen", "127.0.0.1:0", "--data", b.TempDir())
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "AUTH_MODE=api_key", image.DirEnv + "=" + dir}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.Errorf("agentdock up: %v", err)
		}
	})
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said += lines.Text() + "\n"; strings.HasPrefix(lines.Text(), "Ctrl-C") {
			break
		}
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(said)
		if m == nil {
			b.Fatalf("agentdock up does not say %s: %s", pattern, said)
		}
		return m[1]
	}
	load(b, find(`serves on (\S+);`), find(`AGENTDOCK_API_KEY=(\S+)`))
}

// BenchmarkPlatformServers is the same load on one API, one worker and one
// execution service over PostgreSQL and Redis, with a directory of artifacts.
func BenchmarkPlatformServers(b *testing.B) {
	p := testenv.StartPlatform(b, testenv.PlatformConfig{ImageDir: images(b)})
	load(b, p.URL, p.Key)
}

// load submits jobs of true, as fast as they are taken and for all tenants at
// once, and waits until all have ended. It is done once: b.N is not used.
func load(b *testing.B, url, key string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Minute)
	defer cancel()
	var clients []*client.Client
	for i := range tenants {
		clients = append(clients, newTenant(b, ctx, url, key, i))
	}
	alone(b, ctx, clients[0])
	n := jobs(b)
	var all sync.WaitGroup
	begin := time.Now()
	submitted := make([]time.Duration, tenants)
	for i, c := range clients {
		all.Go(func() {
			for j := range n / tenants {
				_, err := c.CreateJob(ctx, nothing("load"), "")
				if err != nil {
					b.Errorf("tenant %d, job %d: %v", i, j, err)
					return
				}
			}
			submitted[i] = time.Since(begin)
		})
	}
	all.Wait()
	if b.Failed() {
		return
	}
	for i, c := range clients {
		for ; open(b, ctx, c); time.Sleep(100 * time.Millisecond) {
			if ctx.Err() != nil {
				b.Fatalf("tenant %d still has jobs", i)
			}
		}
	}
	measure(b, ctx, clients, begin, submitted)
}

// alone runs jobs one after another, while nothing else is to be done: what a
// caller waits for on a platform with room.
func alone(b *testing.B, ctx context.Context, c *client.Client) {
	b.Helper()
	var claimed, whole samples
	for range 100 {
		begin := time.Now()
		job, err := c.CreateJob(ctx, nothing(), "")
		if err == nil {
			job, err = c.Wait(ctx, job.ID)
		}
		if err != nil {
			b.Fatal(err)
		}
		whole = append(whole, time.Since(begin))
		claimed = append(claimed, job.StartedAt.Sub(job.CreatedAt))
	}
	for name, s := range map[string]samples{"alone-queue-to-claim": claimed, "alone-submit-to-end": whole} {
		b.ReportMetric(s.at(0.50), name+"-p50-ms")
		b.ReportMetric(s.at(0.99), name+"-p99-ms")
	}
}

// nothing is a job of true. Its label tells it from those that ran alone.
func nothing(labels ...string) api.JobSpec {
	spec := api.JobSpec{Source: api.Source{Kind: "none"}, Commands: []api.Command{{Argv: []string{"true"}}}}
	for _, l := range labels {
		spec.Labels = map[string]string{"of": l}
	}
	return spec
}

func newTenant(b *testing.B, ctx context.Context, url, key string, i int) *client.Client {
	b.Helper()
	admin, err := client.New(url, client.WithAPIKey(key))
	if err != nil {
		b.Fatal(err)
	}
	none := 0
	t, err := admin.CreateTenant(ctx, api.TenantSpec{Name: fmt.Sprintf("tenant-%d", i), Quota: api.QuotaChange{RequestsPerMinute: &none}})
	if err != nil {
		b.Fatal(err)
	}
	k, err := admin.CreateKey(ctx, t.ID, api.KeySpec{Name: "load", Scopes: []api.Scope{"jobs:read", "jobs:write"}})
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(url, client.WithAPIKey(k.Secret))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// open says whether a tenant has a job that has not ended.
func open(b *testing.B, ctx context.Context, c *client.Client) bool {
	b.Helper()
	page, err := c.JobPage(ctx, client.JobQuery{States: []api.JobState{"queued", "starting", "running"}, PageSize: 1})
	if err != nil {
		b.Fatal(err)
	}
	return len(page.Jobs) > 0
}

// measure takes all numbers from the record: when each job was made, claimed,
// and had its command started, and when the last had ended.
func measure(b *testing.B, ctx context.Context, clients []*client.Client, begin time.Time, submitted []time.Duration) {
	b.Helper()
	var claimed, ran, firsts samples
	var last time.Time
	count := 0
	for _, c := range clients {
		first := time.Hour
		for listed, err := range c.Jobs(ctx, client.JobQuery{Labels: map[string]string{"of": "load"}}) {
			if err != nil {
				b.Fatal(err)
			}
			job, err := c.Job(ctx, listed.ID) // a list has no steps
			if err != nil {
				b.Fatal(err)
			}
			if job.State != "succeeded" || job.Attempt != 1 || len(job.Steps) != 1 {
				b.Fatalf("job %s is %s, attempt %d, %d steps", job.ID, job.State, job.Attempt, len(job.Steps))
			}
			count++
			delay := job.StartedAt.Sub(job.CreatedAt)
			claimed, ran = append(claimed, delay), append(ran, job.Steps[0].StartedAt.Sub(job.StartedAt))
			first = min(first, delay)
			if job.FinishedAt.After(last) {
				last = job.FinishedAt
			}
		}
		firsts = append(firsts, first)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(count), "jobs")
	b.ReportMetric(float64(count)/last.Sub(begin).Seconds(), "jobs/s")
	b.ReportMetric(float64(count)/longest(submitted).Seconds(), "submitted/s")
	for name, s := range map[string]samples{"queue-to-claim": claimed, "claim-to-command": ran} {
		b.ReportMetric(s.at(0.50), name+"-p50-ms")
		b.ReportMetric(s.at(0.99), name+"-p99-ms")
	}
	b.ReportMetric(firsts.at(1), "slowest-first-claim-ms")
}

func longest(all []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range all {
		most = max(most, d)
	}
	return most
}
