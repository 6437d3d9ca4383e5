package gitwire_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/checkout/gitwire"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// answers is a transport that answers with these bytes, one for each request.
type answers []string

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if len(*a) > 0 {
		body, *a = (*a)[0], (*a)[1:]
	}
	kind := "result"
	if r.Method == http.MethodGet {
		kind = "advertisement"
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/x-git-upload-pack-" + kind}},
	}, nil
}

// FuzzAnswers: no answer does more than fail for a reason, and what is taken
// from one is a hash or a name that git allows.
func FuzzAnswers(f *testing.F) {
	caps := line("version 2\n") + line("ls-refs=unborn\n") + line("fetch=shallow\n") + "0000"
	f.Add(caps, line(hash+" refs/heads/main peeled:"+hash+"\n")+"0000", line("shallow-info\n")+line("shallow "+hash+"\n")+"0001"+line("packfile\n")+line("\x01PACK")+"0000")
	f.Add(line("# service=git-upload-pack\n")+"0000"+caps, line(hash+" HEAD symref-target:refs/heads/x\n")+"0000", line("ERR no\n"))
	f.Fuzz(func(t *testing.T, caps, refs, pack string) {
		u, err := url.Parse("https://git.example/a/b")
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []string{"main", ""} {
			var b bytes.Buffer
			target, got, err := fetch(context.Background(), gitwire.Remote{URL: u, Transport: &answers{caps, refs, pack}, Agent: "x"}, ref, 1, &b)
			if err != nil {
				if reason.Of(err) == "" {
					t.Fatalf("an error without a reason: %v", err)
				}
				continue
			}
			for _, h := range append(got.Shallow, target.Object, target.Commit) {
				if strings.Trim(h, "0123456789abcdef") != "" || len(h) != 40 && len(h) != 64 {
					t.Errorf("a hash %q", h)
				}
			}
			if target.Ref != "" && !strings.HasPrefix(target.Ref, "refs/") || gitwire.ValidRef(target.Ref) != nil {
				t.Errorf("a ref %q", target.Ref)
			}
			if b.Len() > len(pack) {
				t.Error("more came out than went in")
			}
		}
	})
}
