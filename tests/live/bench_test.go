package live

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
)

// BenchmarkExec is what a command that does nothing takes, from the call to its
// end: through the API with the Go client, and over the bare port to the same
// sandbox. The turns alternate, so that other work of the machine slows both.
func BenchmarkExec(b *testing.B) {
	w := newWorld(b)
	box := w.sandbox(api.SandboxSpec{TTLMS: 2 * 3600_000})
	port, err := execrpc.DialUnix(b.Context(), w.socket)
	w.ok(err)
	defer port.Close()
	sandbox, err := port.Attach(b.Context(), box)
	w.ok(err)
	took := map[string][]time.Duration{}
	ways := map[string]func() error{
		"port": func() error {
			x, err := sandbox.Exec(b.Context(), execenv.ExecSpec{Argv: []string{"true"}})
			if err == nil {
				err = x.Output(b.Context(), 0, func(execenv.Chunk) error { return nil })
			}
			return err
		},
		"api": func() error {
			_, err := client.CopyExec(w.RunExec(b.Context(), box, api.ExecSpec{Argv: []string{"true"}}), io.Discard, io.Discard)
			return err
		},
	}
	for b.Loop() {
		for way, call := range ways {
			begin := time.Now()
			w.ok(call())
			took[way] = append(took[way], time.Since(begin))
		}
	}
	for way, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, way+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, way+"-p99-ms")
	}
}
