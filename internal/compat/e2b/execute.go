package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/interpreter"
)

// execute runs code in a context, and passes on what happens meanwhile. A client
// that goes away interrupts the code.
func (f *Facade) execute(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Code      string            `json:"code"`
		ContextID string            `json:"context_id"`
		Language  string            `json:"language"`
		EnvVars   map[string]string `json:"env_vars"`
	}
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := checkLanguage(body.Language); err != nil {
		return err
	}
	ctx, x := r.Context(), exchangeOf(r.Context())
	if err := x.gate.Hold(x.caller); err != nil {
		return err
	}
	k, err := x.kernel(ctx, body.ContextID)
	if err != nil {
		return err
	}
	request, err := interpreter.Request(body.Code, body.EnvVars)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot run the code")
	}
	argv, env := k.Relay()
	relay, err := x.handle.Port().Exec(ctx, execenv.ExecSpec{Argv: argv, Stdin: true, Env: env})
	if err != nil {
		return err
	}
	defer endRelay(ctx, relay)
	if _, err := relay.WriteStdin(ctx, request); err != nil && !fault.Is(err, fault.Gone) {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	conn := http.NewResponseController(w)
	_ = conn.Flush() // clients wait for the head of the answer, and not for long
	send := func(e interpreter.Event) error {
		if _, err := w.Write(ascii(e)); err != nil {
			return err
		}
		return conn.Flush()
	}
	if err := passOn(ctx, relay, send); err != nil && ctx.Err() == nil {
		why := x.whyCut(ctx, k, relay, err)
		_ = send(interpreter.Event{Type: interpreter.Error, Name: "KernelError", Value: why, Traceback: why})
		_ = send(interpreter.Event{Type: interpreter.End})
	}
	return nil
}

// endRelay ends a relay that still runs: its client has gone, or its kernel does
// not close the connection.
func endRelay(ctx context.Context, relay execenv.Exec) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = relay.Kill(ctx) // a sandbox that has ended has ended it
}

// passOn sends events up to the last one. Any other end is an error.
func passOn(ctx context.Context, relay execenv.Exec, send func(interpreter.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	go func() {
		err := relay.Output(ctx, 0, func(c execenv.Chunk) error {
			if c.Stream != execenv.Stdout {
				return nil
			}
			_, err := in.Write(c.Data)
			return err
		})
		_ = in.CloseWithError(err)
	}()
	defer out.Close()
	return interpreter.Read(out, send)
}

// whyCut says what ended an execution that did not end by itself.
func (x *exchange) whyCut(ctx context.Context, k interpreter.Kernel, relay execenv.Exec, err error) string {
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if result, waitErr := relay.Wait(soon); waitErr == nil && result.Truncated {
		return fmt.Sprintf("the interpreter wrote more than the %d bytes that are kept of one execution", x.handle.Record.Spec.Limits.OutputBytes)
	}
	if exec, attachErr := x.handle.Attach(soon, k.Name()); attachErr == nil {
		if result, waitErr := exec.Wait(soon); waitErr == nil {
			return text("the interpreter has ended: " + result.Outcome.String() + "; it begins anew with the next code")
		}
	}
	return text("the interpreter was disturbed: " + err.Error())
}

// ascii is an event as a line that has no character above 127: clients decode
// pieces of the answer one by one, wherever they were cut.
func ascii(e interpreter.Event) []byte {
	data, err := json.Marshal(e)
	if err != nil {
		data = []byte(`{"type":"error","name":"KernelError","value":"an event that is no JSON"}`)
	}
	line := make([]byte, 0, len(data)+1)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r < utf8.RuneSelf:
			line = append(line, data[0])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		default:
			line = fmt.Appendf(line, `\u%04x`, r)
		}
		data = data[n:]
	}
	return append(line, '\n')
}
