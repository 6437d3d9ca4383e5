// Package bench measures what a caller waits for, through the real execution
// service, in the default image. "make bench" runs it.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// images is the image store of this machine, which must have the default image.
func images(b *testing.B) string {
	b.Helper()
	testenv.RequireRoot(b)
	dir := os.Getenv(image.DirEnv)
	if dir == "" {
		dir = image.DefaultDir
	}
	store, err := image.Open(dir)
	if err == nil {
		_, err = store.Resolve(image.Default)
	}
	if err != nil {
		b.Skipf("the default image is missing: %v", err)
	}
	return dir
}

// service starts the service on the image store of this machine.
func service(b *testing.B) execenv.Environment {
	b.Helper()
	return testenv.StartExecd(b, images(b)).Dial()
}

var created int

func create(b *testing.B, env execenv.Environment) execenv.Sandbox {
	b.Helper()
	created++
	sb, err := env.Create(b.Context(), execenv.Spec{
		ID: fmt.Sprintf("bench-%d", created), Image: image.Default, Limits: run.DefaultLimits(),
	})
	if err != nil {
		b.Fatal(err)
	}
	return sb
}

var errSeen = errors.New("seen")

// firstOutput runs a program and returns when its first byte is here.
func firstOutput(b *testing.B, sb execenv.Sandbox, argv ...string) execenv.Exec {
	b.Helper()
	c, err := sb.Exec(b.Context(), execenv.ExecSpec{Argv: argv})
	if err != nil {
		b.Fatal(err)
	}
	err = c.Output(b.Context(), 0, func(execenv.Chunk) error { return errSeen })
	if !errors.Is(err, errSeen) {
		b.Fatalf("%s printed nothing: %v", argv, err)
	}
	return c
}

func succeed(b *testing.B, c execenv.Exec) {
	b.Helper()
	r, err := c.Wait(b.Context())
	if err != nil || !r.Outcome.Success() {
		b.Fatalf("%s, %v", r.Outcome, err)
	}
}

// samples are durations of one operation.
type samples []time.Duration

func (s *samples) time(f func()) {
	begin := time.Now()
	f()
	*s = append(*s, time.Since(begin))
}

// at is the quantile in milliseconds.
func (s samples) at(q float64) float64 {
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	i := min(int(q*float64(len(s))), len(s)-1)
	return float64(s[i].Microseconds()) / 1000
}

func (s samples) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // a mean of a skewed distribution says little
	b.ReportMetric(s.at(0.50), "p50-ms")
	b.ReportMetric(s.at(0.99), "p99-ms")
}

// BenchmarkColdCreateToFirstOutput is a sandbox that does not exist yet, to the
// first byte of /bin/echo.
func BenchmarkColdCreateToFirstOutput(b *testing.B) {
	env := service(b)
	var s samples
	for b.Loop() {
		var sb execenv.Sandbox
		var c execenv.Exec
		s.time(func() {
			sb = create(b, env)
			c = firstOutput(b, sb, "/bin/echo", "hello")
		})
		succeed(b, c)
		if err := env.Destroy(context.Background(), sb.ID()); err != nil {
			b.Fatal(err)
		}
	}
	s.report(b)
}

// BenchmarkExec is /bin/true on a live sandbox, from the call to its Result.
func BenchmarkExec(b *testing.B) {
	env := service(b)
	sb := create(b, env)
	var s samples
	for b.Loop() {
		s.time(func() {
			c, err := sb.Exec(b.Context(), execenv.ExecSpec{Argv: []string{"/bin/true"}})
			if err != nil {
				b.Fatal(err)
			}
			succeed(b, c)
		})
	}
	s.report(b)
}

// BenchmarkDestroy is the end of a sandbox in which a program is running.
func BenchmarkDestroy(b *testing.B) {
	env := service(b)
	var s samples
	for b.Loop() {
		sb := create(b, env)
		if _, err := sb.Exec(b.Context(), execenv.ExecSpec{Argv: []string{"/bin/sleep", "1000"}}); err != nil {
			b.Fatal(err)
		}
		s.time(func() {
			if err := env.Destroy(context.Background(), sb.ID()); err != nil {
				b.Fatal(err)
			}
		})
	}
	s.report(b)
}
