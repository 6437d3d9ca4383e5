package execrpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
)

type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t, dir: t.TempDir(), name: name}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write("ca", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue signs a certificate; trust is the authority its holder trusts.
func (a *authority) issue(name string, trust *authority, mod func(*x509.Certificate)) execrpc.TLSFiles {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if mod != nil {
		mod(template)
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, _ := x509.MarshalPKCS8PrivateKey(key)
	id := rand.Text()
	return execrpc.TLSFiles{
		Cert: a.write(id+".crt", "CERTIFICATE", der),
		Key:  a.write(id+".key", "PRIVATE KEY", keyDER),
		CA:   filepath.Join(trust.dir, "ca"),
	}
}

func forServer(c *x509.Certificate) {
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
}

func TestTCPNeedsTheRightClientCertificate(t *testing.T) {
	ca, other := newAuthority(t, "ours"), newAuthority(t, "other")
	serverConf, err := execrpc.ServerTLS(ca.issue("execd", ca, forServer), []string{"worker-1", "spiffe://agentdock/worker"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := execrpc.NewHTTPServer(execrpc.NewServer(newStub(), quiet()), serverConf, quiet())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = srv.Close(); <-done })

	expired := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	byURI := func(c *x509.Certificate) {
		u, _ := url.Parse("spiffe://agentdock/worker")
		c.DNSNames, c.URIs = nil, []*url.URL{u}
	}
	for _, tc := range []struct {
		name  string
		files execrpc.TLSFiles
		mod   func(*tls.Config)
		ok    bool
	}{
		{name: "right one", files: ca.issue("worker-1", ca, nil), ok: true},
		{name: "right URI", files: ca.issue("x", ca, byURI), ok: true},
		{name: "no certificate", files: ca.issue("worker-1", ca, nil), mod: func(c *tls.Config) { c.Certificates = nil }},
		{name: "wrong authority", files: other.issue("worker-1", ca, nil)},
		{name: "wrong name", files: ca.issue("worker-2", ca, nil)},
		{name: "expired", files: ca.issue("worker-1", ca, expired)},
		{name: "a server's", files: ca.issue("worker-1", ca, forServer)},
		{name: "TLS 1.2", files: ca.issue("worker-1", ca, nil), mod: func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }},
		{name: "client does not trust the server", files: ca.issue("worker-1", other, nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conf, err := execrpc.ClientTLS(tc.files, "")
			if err != nil {
				t.Fatal(err)
			}
			if tc.mod != nil {
				tc.mod(conf)
			}
			c, err := execrpc.DialTLS(ctx(t), l.Addr().String(), conf)
			if tc.ok {
				if err != nil {
					t.Fatal(err)
				}
				box(t, c, "a")
				c.Close()
				return
			}
			wantCode(t, "Dial", err, fault.Unavailable)
		})
	}

	t.Run("plain", func(t *testing.T) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		var first [1]byte
		if n, _ := conn.Read(first[:]); n == 1 && first[0] == 0 { // an HTTP/2 frame
			t.Error("the service speaks HTTP/2 in clear over TCP")
		}
	})
	if _, err := execrpc.ServerTLS(execrpc.TLSFiles{}, nil); err == nil {
		t.Error("ServerTLS without files succeeded")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := execrpc.DialUnix(ended, "/nowhere"); err == nil {
		t.Error("DialUnix to nowhere succeeded")
	}
}
