package execrpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// Whatever bytes a caller sends, a request either is refused or passes the
// port's own Validate and survives the way there and back.
func FuzzRequests(f *testing.F) {
	seed := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	wire, _ := specToWire(execenv.Spec{ID: "a", Image: "i", Env: map[string]string{"A": "\xff"}, Limits: run.DefaultLimits(),
		Labels: map[string]string{"l": "v"}, Lifetime: 1})
	seed(wire)
	seed(execSpecToWire(execenv.ExecSpec{ID: "e", Argv: []string{"a", "b"}, Dir: "d", Env: map[string]string{"K": "v"},
		TTY: &execenv.WindowSize{Cols: 1, Rows: 2}, Timeout: 3, OutputBytes: 4}))
	seed(archiveRequestToWire("s", execenv.ArchiveRequest{Dir: "d", Patterns: []string{"**/*.go"}, MaxBytes: 5}))
	seed(resultToWire(execenv.Result{Outcome: run.ExitedWith(3, "e")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		if m := new(execdv1.Spec); proto.Unmarshal(b, m) == nil {
			if spec, err := specFromWire(m); err == nil {
				full := spec
				full.Limits = full.Limits.Or(run.Floor())
				if err := full.Validate(); err != nil {
					t.Errorf("accepted %+v: %v", spec, err)
				}
				back, err := specToWire(spec)
				if err != nil {
					t.Fatal(err)
				}
				if again, err := specFromWire(back); err != nil || !again.Equal(spec) {
					t.Errorf("%+v came back as %+v, %v", spec, again, err)
				}
			}
		}
		if m := new(execdv1.ExecSpec); proto.Unmarshal(b, m) == nil {
			if spec, err := execSpecFromWire(m); err == nil {
				if err := spec.Validate(); err != nil {
					t.Errorf("accepted %+v: %v", spec, err)
				}
			}
		}
		if m := new(execdv1.GetArchiveRequest); proto.Unmarshal(b, m) == nil {
			if req, err := archiveRequestFromWire(m); err == nil {
				if err := req.Validate(); err != nil {
					t.Errorf("accepted %+v: %v", req, err)
				}
			}
		}
		if m := new(execdv1.Result); proto.Unmarshal(b, m) == nil {
			if r, err := resultFromWire(m); err == nil && (r.Outcome.Kind == "" || (r.Outcome.Kind == run.Exited) != (r.Outcome.ExitCode != nil)) {
				t.Errorf("accepted a made-up outcome %+v", r.Outcome)
			}
		}
		if m := new(execdv1.Info); proto.Unmarshal(b, m) == nil {
			_, _ = infoFromWire(m)
		}
	})
}

// Whatever a service answers, what is believed of it can be true.
func FuzzAnswers(f *testing.F) {
	for _, m := range []proto.Message{
		resultToWire(execenv.Result{Outcome: run.ExitedWith(255, "e")}),
		resultToWire(execenv.Result{Outcome: run.Outcome{Kind: run.WallClock, LimitsHit: []run.Limit{run.LimitWallClock}}}),
		&execdv1.Result{Outcome: &execdv1.Outcome{Kind: execdv1.OutcomeKind(1), ExitCode: proto.Int32(70000)}},
		capabilitiesToWire(execenv.Capabilities{Name: "n", Isolation: execenv.IsolationKernel}),
		faultToWire(errCut),
		infoToWire(execenv.Info{ID: "a", State: execenv.StateEnded, Outcome: &run.Outcome{Kind: run.OutOfMemory}}),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(o run.Outcome) {
			t.Helper()
			if o.Kind == "" || (o.Kind == run.Exited) != (o.ExitCode != nil) || o.ExitCode != nil && (*o.ExitCode < 0 || *o.ExitCode > 255) {
				t.Fatalf("a made-up outcome was believed: %+v", o)
			}
		}
		if m := new(execdv1.Result); proto.Unmarshal(b, m) == nil {
			if r, err := resultFromWire(m); err == nil {
				check(r.Outcome)
			}
		}
		if m := new(execdv1.Info); proto.Unmarshal(b, m) == nil {
			if i, err := infoFromWire(m); err == nil && i.Outcome != nil {
				check(*i.Outcome)
			}
		}
		if m := new(execdv1.Capabilities); proto.Unmarshal(b, m) == nil {
			_, _ = capabilitiesFromWire(m)
		}
		if m := new(execdv1.Fault); proto.Unmarshal(b, m) == nil {
			if e := faultFromWire(m); e == nil || e.Code == "" {
				t.Fatalf("%v became the error %v", m, e)
			}
		}
	})
}
