package e2b

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// TestNoCharacterIsCut: wherever output is cut, pieces are whole characters, and
// no byte is lost, also of what is no text.
func TestNoCharacterIsCut(t *testing.T) {
	for _, whole := range []string{"aé世🚀b", "\xff\xfe", "é\xe4", "\xf0\x9f\x9a", "", strings.Repeat("🚀", 9)} {
		for size := 1; size <= len(whole)+1; size++ {
			var got []byte
			w := &wholeRunes{send: func(e *pb.ProcessEvent) error {
				piece := e.GetData().GetStdout()
				if utf8.ValidString(whole) && !utf8.Valid(piece) {
					t.Errorf("%q by %d: a piece is %q", whole, size, piece)
				}
				got = append(got, piece...)
				return nil
			}}
			for at := 0; at < len(whole); at += size {
				if err := w.chunk(execenv.Chunk{Stream: execenv.Stdout, Data: []byte(whole[at:min(at+size, len(whole))])}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.rest(); err != nil || !bytes.Equal(got, []byte(whole)) {
				t.Errorf("%q by %d: %q, %v", whole, size, got, err)
			}
		}
	}
}

func TestStreamsAreKeptApart(t *testing.T) {
	var got []string
	w := &wholeRunes{send: func(e *pb.ProcessEvent) error {
		got = append(got, "1"+string(e.GetData().GetStdout())+"2"+string(e.GetData().GetStderr()))
		return nil
	}}
	_ = w.chunk(execenv.Chunk{Stream: execenv.Stdout, Data: []byte("\xc3")})
	_ = w.chunk(execenv.Chunk{Stream: execenv.Stderr, Data: []byte("\xa9x")})
	_ = w.chunk(execenv.Chunk{Stream: execenv.Stdout, Data: []byte("\xa9")})
	if strings.Join(got, " ") != "12\xa9x 1é2" {
		t.Errorf("%q", got)
	}
}

// TestEnds: no outcome is said to be an exit status that the program did not have.
func TestEnds(t *testing.T) {
	seven := 7
	for _, c := range []struct {
		result execenv.Result
		code   int32
		exited bool
		err    string
		fails  connect.Code
	}{
		{result: execenv.Result{Outcome: run.ExitedWith(0, "")}, exited: true},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.Exited, ExitCode: &seven}}, code: 7, exited: true, err: "exit status 7"},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.Signalled, Signal: "SIGSEGV"}}, code: -1, err: "signal: SIGSEGV"},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.Cancelled}}, code: -1, err: "signal: killed"},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.OutOfMemory}}, code: -1, err: "out_of_memory"},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.NotStarted, Evidence: "none"}}, code: 127, err: "could not be started: none"},
		{result: execenv.Result{Outcome: run.ExitedWith(0, ""), Truncated: true, StdoutBytes: 9}, exited: true, err: "output was cut"},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.WallClock}}, fails: connect.CodeDeadlineExceeded},
		{result: execenv.Result{Outcome: run.Outcome{Kind: run.InfrastructureLost}}, fails: connect.CodeUnavailable},
	} {
		end, err := endEvent(c.result)
		if c.fails != 0 {
			if connect.CodeOf(asConnect(err)) != c.fails {
				t.Errorf("%v: %v", c.result.Outcome, err)
			}
			continue
		}
		if err != nil || end.ExitCode != c.code || end.Exited != c.exited || !strings.Contains(end.GetError(), c.err) || (c.err == "") != (end.Error == nil) {
			t.Errorf("%v: %v, %v", c.result.Outcome, end, err)
		}
	}
}
