package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Metrics are what a process counts. No label takes a value that a caller
// chooses, so their number is bounded.
type Metrics struct {
	registry *prometheus.Registry

	claimDelay    prometheus.Histogram
	createSeconds *prometheus.HistogramVec
	execSeconds   *prometheus.HistogramVec
	ranSeconds    *prometheus.HistogramVec
	outcomes      *prometheus.CounterVec
	requeued      prometheus.Counter
	leasesLost    prometheus.Counter
	sweeps        prometheus.Counter
	destroyed     *prometheus.CounterVec
	requests      *prometheus.CounterVec
	requestTime   *prometheus.HistogramVec
}

// quick are buckets for what takes milliseconds, slow for what may take hours.
var (
	quick = prometheus.ExponentialBuckets(0.001, 2, 16)
	slow  = prometheus.ExponentialBuckets(0.01, 3, 14)
)

func newMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(v)
		return v
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	m.claimDelay = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "agentdock_claim_delay_seconds", Help: "From a job on record to a worker that has it, first attempts.", Buckets: slow,
	})
	m.requeued = prometheus.NewCounter(prometheus.CounterOpts{Name: "agentdock_jobs_requeued_total", Help: "Jobs given back by a worker."})
	m.leasesLost = prometheus.NewCounter(prometheus.CounterOpts{Name: "agentdock_leases_lost_total", Help: "Jobs a worker found in another's hands."})
	m.sweeps = prometheus.NewCounter(prometheus.CounterOpts{Name: "agentdock_sweeps_total", Help: "Looks for sandboxes whose attempt is not active."})
	m.registry.MustRegister(m.claimDelay, m.requeued, m.leasesLost, m.sweeps,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.createSeconds = histogram("agentdock_sandbox_create_seconds", "To create a sandbox.", quick, "node", "result")
	m.execSeconds = histogram("agentdock_exec_start_seconds", "To start a command.", quick, "node", "result")
	m.ranSeconds = histogram("agentdock_command_seconds", "How long commands ran, by how they ended.", slow, "node", "outcome")
	m.outcomes = counter("agentdock_job_outcomes_total", "Jobs that ended, by how.", "state", "outcome")
	m.destroyed = counter("agentdock_sandboxes_destroyed_total", "Sandboxes destroyed.", "node", "result")
	m.requests = counter("agentdock_http_requests_total", "Requests, by route and status.", "method", "route", "status")
	m.requestTime = histogram("agentdock_http_request_seconds", "How long requests took; followed logs as long as they were followed.", quick, "method", "route")
	return m
}

// Registry is for what counts by itself.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves them.
func (m *Metrics) Handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	})
}

// lookFor bounds what a scrape waits for the record or an execution service.
const lookFor = 3 * time.Second

// Queue adds what the record says: jobs by state, and how long the oldest
// queued one has waited. It is asked at each scrape.
func (m *Metrics) Queue(s store.Housekeeping) {
	m.registry.MustRegister(&scrape{
		descs: []*prometheus.Desc{jobsDesc, oldestDesc},
		collect: func(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) error {
			stats, err := s.Stats(ctx)
			if err != nil {
				return err
			}
			for _, state := range run.States() {
				gauge(jobsDesc, float64(stats.ByState[state]), string(state))
			}
			gauge(oldestDesc, stats.OldestQueued.Seconds())
			return nil
		},
	})
}

// Sandboxes adds how many an execution service has now, which count asks it.
func (m *Metrics) Sandboxes(node string, count func(context.Context) (int, error)) {
	desc := prometheus.NewDesc("agentdock_live_sandboxes", "Sandboxes of which anything is left.", nil, prometheus.Labels{"node": node})
	m.registry.MustRegister(&scrape{
		descs: []*prometheus.Desc{desc},
		collect: func(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) error {
			n, err := count(ctx)
			if err == nil {
				gauge(desc, float64(n))
			}
			return err
		},
	})
}

var (
	jobsDesc   = prometheus.NewDesc("agentdock_jobs", "Jobs on record, by state; queued is the depth of the queue.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("agentdock_oldest_queued_seconds", "How long the oldest queued job has waited.", nil, nil)
)

// scrape is a collector that looks when it is asked. What it cannot see is not
// reported, and never as 0.
type scrape struct {
	descs   []*prometheus.Desc
	collect func(context.Context, func(*prometheus.Desc, float64, ...string)) error
}

func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		ch <- d
	}
}

func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	err := s.collect(ctx, func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	})
	if err != nil {
		for _, d := range s.descs {
			ch <- prometheus.NewInvalidMetric(d, err)
		}
	}
}
