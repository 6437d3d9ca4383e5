package livefiles_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// impostor is a world whose helper is a program that lies.
func impostor(t *testing.T, helper fake.Program) *livefiles.Files {
	t.Helper()
	env := fake.New(fake.Config{Programs: map[string]fake.Program{filewire.Program: helper}})
	t.Cleanup(env.Close)
	l := limits()
	sandbox, err := env.Create(t.Context(), execenv.Spec{ID: "lies", Image: "any", Limits: l})
	if err != nil {
		t.Fatal(err)
	}
	files, err := livefiles.Open(sandbox, l.OutputBytes)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestLies: what a helper says that cannot be true, or is not what was asked,
// is an error and nothing else.
func TestLies(t *testing.T) {
	const (
		end   = `{"end":{}}` + "\n"
		more  = `{"end":{"more":true}}` + "\n"
		entry = `{"entry":{"kind":"file","size":3,"mode":420,"mtime":"2026-01-01T00:00:00Z","inode":7}}` + "\n"
		named = `{"entry":{"name":"%s","kind":"file","mtime":"2026-01-01T00:00:00Z"}}` + "\n"
		ready = `{"ready":true}` + "\n"
	)
	b64 := func(names ...string) string { // base64 of names, as records
		var b strings.Builder
		for _, n := range names {
			fmt.Fprintf(&b, named, encode(n))
		}
		return b.String()
	}
	for name, says := range map[string]string{
		"nothing":              "",
		"no end":               entry,
		"no entry":             end,
		"not JSON":             "hello\n",
		"half a line":          `{"end":{`,
		"two entries":          entry + entry + end,
		"a name too many":      b64("x") + end,
		"a name that leaves":   b64("../../etc/passwd") + end,
		"an absolute name":     b64("/etc/passwd") + end,
		"a NUL in a name":      b64("a\x00b") + end,
		"out of order":         b64("b", "a") + end,
		"the same twice":       b64("a", "a") + end,
		"deeper than asked":    b64("a", "a/b", "a/b/c", "a/b/c/d") + end,
		"no progress":          more,
		"two things":           `{"ready":true,"end":{}}` + "\n",
		"no thing":             `{}` + "\n",
		"a negative size":      `{"entry":{"kind":"file","size":-1,"mtime":"2026-01-01T00:00:00Z"}}` + "\n" + end,
		"a kind of its own":    `{"entry":{"kind":"door","mtime":"2026-01-01T00:00:00Z"}}` + "\n" + end,
		"a mode of its own":    `{"entry":{"kind":"file","mode":65536,"mtime":"2026-01-01T00:00:00Z"}}` + "\n" + end,
		"a time of its own":    `{"entry":{"kind":"file","mtime":"0000-01-01T00:00:00Z"}}` + "\n" + end,
		"data before a file":   `{"data":3}` + "\nabc" + end,
		"less data than said":  entry + `{"data":30}` + "\nabc",
		"too much data":        entry + `{"data":1000000000}` + "\n",
		"negative data":        entry + `{"data":-5}` + "\n" + end,
		"an event before time": `{"event":{"kind":"created","name":"YQ=="}}` + "\n" + ready + end,
		"an endless line":      strings.Repeat("x", 200<<10),
		"an endless answer":    strings.Repeat(entry, 2000),
	} {
		t.Run(name, func(t *testing.T) {
			files := impostor(t, func(p *fake.Proc) int { _, _ = io.WriteString(p.Stdout, says); return 0 })
			check := func(op string, err error) {
				t.Helper()
				if !fault.Is(err, fault.Unavailable) {
					t.Errorf("%s: %v", op, err)
				}
			}
			ctx := t.Context()
			_, err := files.Stat(ctx, "x")
			check("Stat", err)
			if name != "no entry" && name != "a name too many" { // directories that may be
				_, err = files.List(ctx, "x", 3)
				check("List", err)
			}
			check("Read", files.Read(ctx, "x", livefiles.Part{}, func(livefiles.Entry) (io.Writer, error) { return io.Discard, nil }))
			err = files.Watch(ctx, "x", true, func() error { return nil }, func(livefiles.Event) error { return nil })
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("Watch: %v", err)
			}
			_, err = files.Write(ctx, "x", 0, strings.NewReader("abc"))
			check("Write", err)
		})
	}
}

// TestMoreThanItsSize: a file that grows is read as far as its size went:
// more is not passed on.
func TestMoreThanItsSize(t *testing.T) {
	files := impostor(t, func(p *fake.Proc) int {
		_, _ = io.WriteString(p.Stdout, `{"entry":{"kind":"file","size":3,"mtime":"2026-01-01T00:00:00Z"}}`+"\n"+`{"data":5}`+"\nabcde"+`{"end":{"more":true}}`+"\n")
		return 0
	})
	var out strings.Builder
	err := files.Read(t.Context(), "x", livefiles.Part{}, func(livefiles.Entry) (io.Writer, error) { return &out, nil })
	if err != nil || out.String() != "abc" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestHeldUp: a helper that says nothing, or does not end, holds up its caller
// for as long as that wants, and is gone then.
func TestHeldUp(t *testing.T) {
	for name, says := range map[string]string{"silent": "", "after its end": `{"end":{"code":"not_found","message":"no"}}` + "\n"} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			files := impostor(t, func(p *fake.Proc) int {
				defer close(gone)
				_, _ = io.WriteString(p.Stdout, says)
				p.Sleep(time.Hour)
				return 0
			})
			ctx, cancel := context.WithCancel(t.Context())
			if says == "" {
				time.AfterFunc(10*time.Millisecond, cancel)
			}
			defer cancel()
			_, err := files.Stat(ctx, "x")
			if want := map[bool]fault.Code{true: fault.Unavailable, false: fault.NotFound}[says == ""]; !fault.Is(err, want) {
				t.Errorf("%v", err)
			}
			select {
			case <-gone:
			case <-time.After(patience):
				t.Error("the helper goes on")
			}
		})
	}
}

// TestMessages: what a sandbox says is made fit for a message.
func TestMessages(t *testing.T) {
	files := impostor(t, func(p *fake.Proc) int {
		_, _ = io.WriteString(p.Stdout, `{"end":{"code":"denied","message":"a\u001b[31mb\n`+strings.Repeat("x", 5000)+`"}}`+"\n")
		return 0
	})
	_, err := files.Stat(t.Context(), "x")
	if !fault.Is(err, fault.Denied) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 1200 {
		t.Errorf("%d bytes: %.60q", len(err.Error()), err)
	}
}

// TestWithoutAHelper: other environments may have none.
func TestWithoutAHelper(t *testing.T) {
	env := fake.New(fake.Config{})
	t.Cleanup(env.Close)
	sandbox, err := env.Create(t.Context(), execenv.Spec{ID: "none", Image: "any", Limits: limits()})
	if err != nil {
		t.Fatal(err)
	}
	files, err := livefiles.Open(sandbox, limits().OutputBytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Stat(t.Context(), "x"); !fault.Is(err, fault.Unsupported) {
		t.Errorf("%v", err)
	}
	if _, err := livefiles.Open(sandbox, 1000); !fault.Is(err, fault.Exhausted) {
		t.Errorf("%v", err)
	}
}

func encode(name string) string { return base64.StdEncoding.EncodeToString([]byte(name)) }
