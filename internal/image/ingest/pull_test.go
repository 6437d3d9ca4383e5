package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// testRegistry is a real registry on the loopback interface; wrap, if set,
// gets between it and its clients once push is done.
type testRegistry struct {
	host string
	wrap func(http.Handler, http.ResponseWriter, *http.Request)
}

func startRegistry(t testing.TB) *testRegistry {
	t.Helper()
	r := &testRegistry{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.wrap != nil {
			r.wrap(inner, w, req)
			return
		}
		inner.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

func (r *testRegistry) push(t testing.TB, repo string, img v1.Image) string {
	t.Helper()
	ref := r.host + "/" + repo
	parsed, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(parsed, img); err != nil {
		t.Fatal(err)
	}
	return ref
}

func pull(t testing.TB, w *image.Writer, ref string) (image.Image, error) {
	t.Helper()
	return Pull(t.Context(), w, ref, PullOptions{Options: Options{Name: "test"}, Platform: "linux/amd64"})
}

func TestPull(t *testing.T) {
	requireReal(t)
	r := startRegistry(t)
	one := layered(t, "amd64")
	digest, err := one.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := r.push(t, "team/app:1", one)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: layered(t, "arm64"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}},
		mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	many, err := name.ParseReference(r.host + "/team/app:many")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(many, index); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{ref, many.String(), r.host + "/team/app@" + digest.String()} {
		t.Run(strings.TrimPrefix(ref, r.host), func(t *testing.T) {
			w := testWriter(t)
			img, err := pull(t, w, ref)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(img.Source, r.host+"/team/app@sha256:") {
				t.Errorf("source %q", img.Source)
			}
			root := mounted(t, img)
			if content(t, filepath.Join(root, "arch")) != "amd64" || content(t, filepath.Join(root, "new")) != "y" {
				t.Error("wrong contents")
			}
		})
	}
}

func TestPullFailures(t *testing.T) {
	requireReal(t)
	layers, err := layered(t, "amd64").Layers()
	if err != nil {
		t.Fatal(err)
	}
	first, _ := layers[0].Digest()
	second, _ := layers[1].Digest()
	blob := func(req *http.Request, digest v1.Hash) bool {
		return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/blobs/"+digest.String())
	}
	type wrap = func(http.Handler, http.ResponseWriter, *http.Request)
	for name, c := range map[string]struct {
		ref  string
		wrap wrap
		code fault.Code
		says string
	}{
		"unknown tag":        {ref: "team/app:2", code: fault.NotFound, says: "no such repository, tag or digest"},
		"unknown repository": {ref: "team/other:1", code: fault.NotFound, says: "no such"},
		"unknown digest":     {ref: "team/app@sha256:" + strings.Repeat("0", 64), code: fault.NotFound, says: "no such"},
		"malformed":          {ref: "team/app:1:2:3", code: fault.Invalid, says: "cannot pull"},
		"authentication": {ref: "team/app:1", code: fault.Denied, says: "docker login",
			wrap: func(_ http.Handler, w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
			}},
		"another blob served": {ref: "team/app:1", code: fault.Invalid, says: "replaced",
			wrap: func(h http.Handler, w http.ResponseWriter, req *http.Request) {
				if blob(req, first) {
					req.URL.Path = strings.Replace(req.URL.Path, first.Hex, second.Hex, 1)
				}
				h.ServeHTTP(w, req)
			}},
		"another manifest served": {ref: "team/app@", code: fault.Unavailable, says: "digest",
			wrap: func(h http.Handler, w http.ResponseWriter, req *http.Request) {
				if strings.Contains(req.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
					fmt.Fprint(w, `{"schemaVersion":2}`)
					return
				}
				h.ServeHTTP(w, req)
			}},
		"layer truncated": {ref: "team/app:1", code: fault.Invalid, says: "truncated",
			wrap: func(h http.Handler, w http.ResponseWriter, req *http.Request) {
				if !blob(req, first) {
					h.ServeHTTP(w, req)
					return
				}
				whole := httptest.NewRecorder()
				h.ServeHTTP(whole, req)
				_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
			}},
		"broken server": {ref: "team/app:1", code: fault.Unavailable, says: "500",
			wrap: func(h http.Handler, w http.ResponseWriter, req *http.Request) {
				if blob(req, second) {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				h.ServeHTTP(w, req)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRegistry(t)
			img := layered(t, "amd64")
			r.push(t, "team/app:1", img)
			r.wrap = c.wrap
			if strings.HasSuffix(c.ref, "@") {
				digest, _ := img.Digest()
				c.ref += digest.String()
			}
			w := testWriter(t)
			_, err := pull(t, w, r.host+"/"+c.ref)
			if !fault.Is(err, c.code) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("code %q, error: %v", fault.CodeOf(err), err)
			}
			assertEmpty(t, w)
		})
	}
	t.Run("no server", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		w := testWriter(t)
		if _, err := pull(t, w, strings.TrimPrefix(server.URL, "http://")+"/app"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("error: %v", err)
		}
		assertEmpty(t, w)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := startRegistry(t)
		ref := r.push(t, "team/app:1", layered(t, "amd64"))
		r.wrap = func(h http.Handler, w http.ResponseWriter, req *http.Request) {
			if blob(req, second) {
				cancel()
				<-req.Context().Done()
				return
			}
			h.ServeHTTP(w, req)
		}
		w := testWriter(t)
		if _, err := Pull(ctx, w, ref, PullOptions{Options: Options{Name: "x"}, Platform: "linux/amd64"}); !errors.Is(err, context.Canceled) {
			t.Errorf("error: %v", err)
		}
		assertEmpty(t, w)
	})
}
