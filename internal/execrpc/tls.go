package execrpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
)

// TLSFiles name the PEM files of one side. CA signs the other side.
type TLSFiles struct {
	Cert, Key, CA string
}

// ServerTLS admits clients that have a certificate of the CA, made for client
// use, whose DNS or URI names include one of allowed; with none allowed, every
// certificate of the CA. TLS 1.3 only.
func ServerTLS(files TLSFiles, allowed []string) (*tls.Config, error) {
	cert, pool, err := files.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		// A resumed session would outlive a certificate's end.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return admit(state, allowed)
		},
	}, nil
}

// ClientTLS presents a certificate and trusts only servers of the CA. The name
// it expects is the host of the address dialled, or serverName if given.
func ClientTLS(files TLSFiles, serverName string) (*tls.Config, error) {
	cert, pool, err := files.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   serverName,
	}, nil
}

func admit(state tls.ConnectionState, allowed []string) error {
	if len(state.VerifiedChains) == 0 {
		return errors.New("client has no verified certificate")
	}
	if len(allowed) == 0 {
		return nil
	}
	leaf := state.VerifiedChains[0][0]
	names := slices.Clone(leaf.DNSNames)
	for _, u := range leaf.URIs {
		names = append(names, u.String())
	}
	for _, name := range names {
		if slices.Contains(allowed, name) {
			return nil
		}
	}
	return fmt.Errorf("client certificate is for %q, which is not allowed", names)
}

func (f TLSFiles) load() (tls.Certificate, *x509.CertPool, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("cannot load the TLS certificate: %w", err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("cannot read the certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return tls.Certificate{}, nil, fmt.Errorf("cannot read the certificate authority: %s holds no PEM certificate", f.CA)
	}
	return cert, pool, nil
}
