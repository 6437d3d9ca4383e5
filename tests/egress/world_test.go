package egress

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/nameserver"
)

// world is servers with names, and the command line.
type world struct {
	t         *testing.T
	dns       *nameserver.Server
	authority tls.Certificate
	dir       string // what goes into each sandbox: the authority's certificate
	environ   []string
	bin       string
	visits    atomic.Int64 // of servers that nobody may reach
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.RequireRoot(t)
	w := &world{t: t, dns: nameserver.Start(t), dir: t.TempDir(), bin: testenv.Binaries(t)}
	w.authority = w.certificate("the tests' authority", nil)
	w.write(filepath.Join(w.dir, "ca.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.authority.Certificate[0]})))
	conf := filepath.Join(t.TempDir(), "network.conf")
	w.write(conf, "mirror index.test 127.0.0.0/8\nmirror files.index.test 127.0.0.0/8\nmirror git.test 127.0.0.0/8\nmirror forbidden.test 127.0.0.0/8\n")
	runtime, err := os.MkdirTemp("", "ad") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob(runtime + "/*"); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
		_ = os.RemoveAll(runtime)
	})
	w.environ = append(os.Environ(), "AGENTDOCK_NETWORK_FILE="+conf, "AGENTDOCK_EGRESS_DNS="+w.dns.Address(), "AGENTDOCK_RUNTIME_DIR="+runtime)
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// certificate makes one for a name, signed by parent or by itself.
func (w *world) certificate(name string, parent *tls.Certificate) tls.Certificate {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	issuer, signer := template, key
	if parent != nil {
		template.DNSNames = []string{name}
		signer = parent.PrivateKey.(*ecdsa.PrivateKey)
		if issuer, err = x509.ParseCertificate(parent.Certificate[0]); err != nil {
			w.t.Fatal(err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve serves a name with TLS at an address of its own, and returns name:port.
func (w *world) serve(name, addr string, handler http.Handler) string {
	w.t.Helper()
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, TLS: &tls.Config{Certificates: []tls.Certificate{w.certificate(name, &w.authority)}}, Config: &http.Server{Handler: handler}}
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.dns.Set(name, addr)
	return fmt.Sprintf("%s:%d", name, l.Addr().(*net.TCPAddr).Port)
}

// index is a package index, and where its files are: another server.
func (w *world) index() (index, files string) {
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	record := ""
	for name, text := range map[string]string{
		"greeting.py":                     "print('hello from a wheel')\n",
		"greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
		"greeting-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	} {
		f, _ := z.Create(name)
		_, _ = f.Write([]byte(text))
		record += name + ",,\n"
	}
	f, _ := z.Create("greeting-1.0.dist-info/RECORD")
	_, _ = f.Write([]byte(record + "greeting-1.0.dist-info/RECORD,,\n"))
	_ = z.Close()
	files = w.serve("files.index.test", "127.0.0.22", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write(wheel.Bytes())
	}))
	index = w.serve("index.test", "127.0.0.21", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/simple/greeting/" {
			http.NotFound(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(rw, "<a href='https://%s/greeting-1.0-py3-none-any.whl'>greeting-1.0-py3-none-any.whl</a>", files)
	}))
	return index, files
}

// git serves a repository with git's own program for that.
func (w *world) git() string {
	w.t.Helper()
	root := w.t.TempDir()
	repo := filepath.Join(root, "repo")
	for _, args := range [][]string{
		{"init", "-q", repo}, {"-C", repo, "-c", "user.name=t", "-c", "user.email=t@t.test", "commit", "-q", "--allow-empty", "-m", "first"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			w.t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return w.serve("git.test", "127.0.0.23", &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
}

// forbidden is a server that no sandbox may reach.
func (w *world) forbidden() string {
	return w.serve("forbidden.test", "127.0.0.24", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { w.visits.Add(1) }))
}

// report is what run says at its end, as far as it matters here.
type report struct {
	Outcome struct {
		Kind     string `json:"kind"`
		ExitCode *int   `json:"exit_code"`
	} `json:"outcome"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Network *struct {
		Connections []struct {
			Name          string `json:"name"`
			Address       string `json:"address"`
			Decision      string `json:"decision"`
			Rule          string `json:"rule"`
			Reason        string `json:"reason"`
			SentBytes     int64  `json:"sent_bytes"`
			ReceivedBytes int64  `json:"received_bytes"`
		} `json:"connections"`
		Denied []struct {
			Name  string `json:"name"`
			Count int64  `json:"count"`
		} `json:"denied"`
	} `json:"network"`
}

// run runs a shell script in a sandbox that may reach some servers.
func (w *world) run(script string, allow ...string) report {
	w.t.Helper()
	args := []string{"run", "--local", "--json", "--dir", w.dir, "--memory", "1g", "--disk", "256m", "--timeout", "60s"}
	for _, a := range allow {
		args = append(args, "--allow", a)
	}
	for _, name := range []string{"SSL_CERT_FILE", "PIP_CERT", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		args = append(args, "--env", name+"=/workspace/ca.pem")
	}
	cmd := exec.Command(filepath.Join(w.bin, "agentdock"), append(args, "--", "bash", "-c", script)...)
	cmd.Env = w.environ
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	var r report
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil {
		w.t.Fatalf("the run ended with %v and said %q %q", err, out.String(), said.String())
	}
	if r.Error != nil {
		w.t.Fatalf("the run failed: %s", r.Error.Message)
	}
	return r
}

// exit is the program's status.
func (r report) exit() int {
	if r.Outcome.ExitCode == nil {
		return -1
	}
	return *r.Outcome.ExitCode
}

func (r report) output() string { return strings.TrimSpace(r.Stdout + "\n" + r.Stderr) }
