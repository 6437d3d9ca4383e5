package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/agentdock/agentdock/api"
)

const (
	healthy   = "ok"
	unhealthy = "unavailable"
)

// readyTime bounds the look at the parts.
const readyTime = 5 * time.Second

func (h *handlers) GetHealth(context.Context, GetHealthRequestObject) (GetHealthResponseObject, error) {
	return GetHealth200JSONResponse(api.Health{Status: healthy, Checks: map[string]string{}}), nil
}

func (h *handlers) GetReadiness(ctx context.Context, _ GetReadinessRequestObject) (GetReadinessResponseObject, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	health := api.Health{Status: healthy, Checks: map[string]string{"service": healthy}}
	select {
	case <-h.draining:
		health.Status, health.Checks["service"] = unhealthy, unhealthy
	default:
	}
	for _, c := range h.control.Ready(ctx) {
		health.Checks[c.Name] = healthy
		if c.Err != nil {
			health.Status, health.Checks[c.Name] = unhealthy, unhealthy
			h.log.WarnContext(ctx, "a part is away", slog.String("part", c.Name), slog.Any("error", c.Err))
		}
	}
	if health.Status != healthy {
		return GetReadiness503JSONResponse(health), nil
	}
	return GetReadiness200JSONResponse(health), nil
}

func (h *handlers) GetMetrics(ctx context.Context, _ GetMetricsRequestObject) (GetMetricsResponseObject, error) {
	return scrape{h.API, exchangeOf(ctx).r}, nil
}

// scrape is all the metrics there are.
type scrape struct {
	*API
	r *http.Request
}

func (s scrape) VisitGetMetricsResponse(w http.ResponseWriter) error {
	s.cfg.Metrics.ServeHTTP(w, s.r)
	return nil
}
