package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// canaries are secrets of each kind. None may be found in any log.
var canaries = map[string]string{
	"given":    "c4n4ry-gïven\"<&>\\value",
	"url":      "c4n4ry-url-password",
	"bearer":   "c4n4ryBearerTokenValue123",
	"github":   "ghs_c4n4ry0123456789abcdefABCDEF",
	"jwt":      "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJjNG40cnkifQ.c4n4rysignature",
	"pem":      "-----BEGIN PRIVATE KEY-----\nc4n4ryMC4CAQAwBQYDK2VwBCIEIA\nabcd\n-----END PRIVATE KEY-----",
	"ours":     "adk_c4n4ry0123456789abcdef",
	"aws":      "AKIAC4N4RYC4N4RYC4N4",
	"signed":   "c4n4rysignature0123",
	"shortkey": "c4n4",
}

type holder struct {
	Name  string
	Inner map[string]any
}

// ways are how a secret can get into a call.
func ways(l *slog.Logger, text string) {
	l.Info(text)
	l.Info("m", "note", text)
	l.Error("m", "error", fmt.Errorf("cannot reach it: %w", errors.New(text)))
	l.Warn("m", slog.Group("g", slog.Group("h", "note", text)))
	l.Info("m", "any", holder{Inner: map[string]any{"deep": []string{text}}})
	l.Info("m", "bytes", json.RawMessage(`{"a":`+string(must(json.Marshal(text)))+`}`))
	l.With("note", text).WithGroup("g").Info("m", "x", 1)
	l.InfoContext(With(context.Background(), slog.String("note", text)), "m")
}

func TestNoSecretIsEverLogged(t *testing.T) {
	inText := map[string]string{
		"given":  canaries["given"],
		"url":    "postgres://user:" + canaries["url"] + "@db:5432/x?sslmode=require",
		"bearer": "Authorization: Bearer " + canaries["bearer"],
		"github": "https://x-access-token:" + canaries["github"] + "@github.com/o/r and " + canaries["github"],
		"jwt":    "token is " + canaries["jwt"],
		"pem":    canaries["pem"],
		"ours":   "key " + canaries["ours"] + " was used",
		"aws":    canaries["aws"],
		"signed": "GET https://s3/b/k?X-Amz-Signature=" + canaries["signed"] + "&x=1",
	}
	for name, text := range inText {
		var out bytes.Buffer
		ways(New(&out, slog.LevelDebug, canaries["given"]), text)
		if n := strings.Count(out.String(), "\n"); n != 8 {
			t.Errorf("%s: %d lines", name, n)
		}
		for line := range strings.Lines(out.String()) {
			var got map[string]any
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Errorf("%s: not JSON any more: %v: %s", name, err, line)
			}
			flat := strings.ToLower(fmt.Sprint(got))
			if strings.Contains(flat, "c4n4ry") || strings.Contains(flat, strings.ToLower(canaries[name])) {
				t.Errorf("%s: a secret is in %s", name, line)
			}
			if !strings.Contains(line, redacted) {
				t.Errorf("%s: nothing was redacted in %s: the test does not reach it", name, line)
			}
		}
	}
}

// Names say that a value is a secret, whatever it looks like.
func TestSecretsByName(t *testing.T) {
	for _, key := range []string{"password", "db_password", "Authorization", "api-key", "github_token", "SESSION_SECRET", "Set-Cookie"} {
		var out bytes.Buffer
		New(&out, slog.LevelInfo).Info("m", slog.Group("headers", key, canaries["shortkey"]))
		if strings.Contains(out.String(), canaries["shortkey"]) {
			t.Errorf("%s: %s", key, out.String())
		}
	}
}

// What is no secret stays as it is: a log that hides everything is no log.
func TestTheRestIsLeftAlone(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, slog.LevelInfo, "", "abc")
	l.Info("claimed abc", "job", "0b9f", "url", "https://host:8080/path@x", "image", "sha256:"+strings.Repeat("ab", 32), "basic", "basic training")
	if got := out.String(); strings.Contains(got, redacted) || !strings.Contains(got, "https://host:8080/path@x") {
		t.Errorf("got %s", got)
	}
	out.Reset()
	l.Info("x", "url", "postgres://u:pw@db/name")
	if !strings.Contains(out.String(), "postgres://[redacted]@db/name") {
		t.Errorf("got %s", out.String())
	}
}

func TestLinesCarryWhatTheContextKnows(t *testing.T) {
	var out bytes.Buffer
	ctx := With(context.Background(), slog.String("job", "j1"), slog.String("tenant", "t1"))
	one, two := With(ctx, slog.Int("attempt", 1)), With(ctx, slog.Int("attempt", 2)) // neither sees the other's
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	l := New(&out, slog.LevelInfo)
	l.InfoContext(trace.ContextWithSpanContext(one, span), "m")
	l.InfoContext(two, "m")
	var got []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if got[0]["job"] != "j1" || got[0]["tenant"] != "t1" || got[0]["attempt"] != 1.0 || got[0]["trace_id"] != span.TraceID().String() ||
		got[1]["attempt"] != 2.0 || got[1]["trace_id"] != nil {
		t.Errorf("got %v", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
