package httpapi

import "github.com/prometheus/client_golang/prometheus"

// metrics are what only this package knows. Requests are counted and timed
// around it (Config.Around). No label is one that a caller chooses.
type metrics struct {
	refused *prometheus.CounterVec
	streams prometheus.Gauge
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "agentdock_api_refusals_total", Help: "Requests that were not let in, by reason.",
		}, []string{"reason"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "agentdock_api_log_streams", Help: "Log streams that are open.",
		}),
	}
	for _, c := range []prometheus.Collector{m.refused, m.streams} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
