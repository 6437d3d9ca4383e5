package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Benchmark measures what a worker asks of a record with jobs of ten tenants:
// how many it can claim in a second, and how many can go all the way.
func Benchmark(b *testing.B, s store.Store) {
	const tenants, workers = 10, 8
	ctx := context.Background()
	for i := range tenants {
		if err := s.CreateTenant(ctx, tenant.Tenant{ID: fmt.Sprint("bench-", i)}); err != nil {
			b.Fatal(err)
		}
	}
	var names atomic.Int64
	create := func(b *testing.B, n int) {
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(n))
		for i := range tenants {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					j := store.NewJob{ID: fmt.Sprint("job-", names.Add(1)), TenantID: fmt.Sprint("bench-", i), Spec: spec()}
					if _, _, err := s.CreateJob(ctx, j); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	// each has a number of workers claim every job there is.
	each := func(b *testing.B, workers int, then func(store.Claimed) error) {
		create(b, b.N)
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		for range workers {
			wg.Go(func() {
				for left.Load() > 0 && !b.Failed() {
					got, ok, err := s.Claim(ctx, worker, time.Hour)
					if err == nil && ok {
						left.Add(-1)
						err = then(got)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	}
	nothing := func(store.Claimed) error { return nil }
	whole := func(got store.Claimed) error {
		if err := s.StartStep(ctx, got.Lease, run.Step{}); err != nil {
			return err
		}
		if _, err := s.AppendLog(ctx, got.Lease, []run.LogEntry{{Attempt: 1, Stream: "stdout", Data: []byte("hello\n")}}); err != nil {
			return err
		}
		return s.Finish(ctx, got.Lease, succeeded())
	}
	b.Run("create", func(b *testing.B) {
		create(b, b.N)
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		b.StopTimer()
		drain(b, s)
	})
	b.Run("claim/1 worker", func(b *testing.B) { each(b, 1, nothing) })
	b.Run(fmt.Sprintf("claim/%d workers", workers), func(b *testing.B) { each(b, workers, nothing) })
	b.Run(fmt.Sprintf("claim to finish/%d workers", workers), func(b *testing.B) { each(b, workers, whole) })
}

// drain claims what is queued, so that the next measurement begins with nothing.
func drain(b *testing.B, s store.Store) {
	for {
		_, ok, err := s.Claim(context.Background(), worker, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		if !ok {
			return
		}
	}
}
