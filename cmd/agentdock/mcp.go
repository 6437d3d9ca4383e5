package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/mcpserver"
)

const mcpLong = `Offer sandboxes and jobs of a server to models, over the Model Context Protocol: as the
program that an agent starts (standard input and output), or over HTTP with --listen.
The server is the one that AGENTDOCK_URL names, or the one in the config file (see
agentdock jobs); agentdock up starts one.

Over standard input and output, the key is the one of the configuration. Sandboxes that
the session has made are killed when it ends, unless sandbox_create was told to keep
them.

Over HTTP, at /mcp, each client brings its own key (Authorization: Bearer KEY), which is
passed on; the configured one is not lent to anybody. On a loopback address a request
without a key is passed on without one, which works where the server asks for none. Any
other address needs --tls-cert and --tls-key, and every request a key. Requests of web
pages, and those made to another name than a loopback one or --host, are refused.
Sandboxes stay until their time to live is over.`

type mcpFlags struct {
	listen, cert, key string
	hosts             []string
}

func newMCP() *cobra.Command {
	var f mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Offer sandboxes and jobs of a server to models (MCP)",
		Long:  mcpLong,
		Example: `  agentdock mcp
  agentdock mcp --listen 127.0.0.1:7301
  claude mcp add agentdock -- agentdock mcp`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return f.serve(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.listen, "listen", "", "`address` to serve HTTP on, host:port, instead of standard input and output")
	fl.StringArrayVar(&f.hosts, "host", nil, "`name` by which HTTP clients address it, such as a proxy's; repeatable")
	fl.StringVar(&f.cert, "tls-cert", "", "`file` with the certificate of --listen, in PEM")
	fl.StringVar(&f.key, "tls-key", "", "`file` with its private key")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	return cmd
}

func (f *mcpFlags) serve(cmd *cobra.Command) error {
	url, key, err := server(os.Environ())
	if err != nil {
		return err
	}
	if url == "" {
		return errNoServer
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = 2 * time.Minute
	transport.MaxIdleConnsPerHost = 16 // one for each call at a time
	defer transport.CloseIdleConnections()
	cfg := mcpserver.Config{
		Key: key, Log: logging.New(cmd.ErrOrStderr(), slog.LevelWarn),
		Dial: func(key string) (*client.Client, error) {
			options := []client.Option{client.WithUserAgent("agentdock-mcp"), client.WithHTTPClient(&http.Client{Transport: transport})}
			if key != "" {
				options = append(options, client.WithAPIKey(key))
			}
			return client.New(url, options...)
		},
	}
	if _, err := cfg.Dial(key); err != nil {
		return err
	}
	if f.listen != "" {
		return f.serveHTTP(cmd, cfg)
	}
	if f.cert != "" || len(f.hosts) > 0 {
		return fault.New(fault.Invalid, "cannot use --host or --tls-cert without --listen: standard input and output have neither")
	}
	return mcpserver.Stdio(cmd.Context(), cfg, os.Stdin, os.Stdout)
}

func (f *mcpFlags) serveHTTP(cmd *cobra.Command, cfg mcpserver.Config) error {
	l, err := f.open(cmd.Context())
	if err != nil {
		return err
	}
	scheme := "http"
	if f.cert != "" {
		scheme = "https"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "agentdock mcp serves on %s://%s%s; Ctrl-C stops it.\n", scheme, l.Addr(), mcpserver.Path)
	return mcpserver.Serve(cmd.Context(), mcpserver.HTTPConfig{Config: cfg, Hosts: f.hosts, KeyRequired: !isLoopback(l)}, l)
}

// open opens the address. What is not of this machine alone is encrypted: keys
// come over it.
func (f *mcpFlags) open(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", f.listen, err)
	}
	if f.cert == "" {
		if isLoopback(l) {
			return l, nil
		}
		l.Close()
		return nil, fault.New(fault.Invalid, "cannot listen on %s without encryption: clients send their keys there; give --tls-cert and --tls-key, "+
			"or listen on 127.0.0.1 behind a proxy (--host names it)", f.listen)
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("cannot use --tls-cert and --tls-key: %w", err)
	}
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

func isLoopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
