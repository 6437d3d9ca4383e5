package execrpc

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// How HTTP/2 is set up on both sides.
const (
	// maxStreams is how many calls one connection carries at once. A client
	// opens another connection for more.
	maxStreams = 512
	// streamWindow is how much of one stream may be under way unread.
	streamWindow = 512 << 10
	// connWindow holds every stream's window at once, so that streams nobody
	// reads can never use up what the others need.
	connWindow = maxStreams * streamWindow
	// frameSize is above the default of 16 KiB: output comes in larger pieces.
	frameSize = 256 << 10
	// After pingAfter without a frame a ping is sent; a peer that does not
	// answer within pingTimeout is dead, and all its calls end. This is what
	// lets calls have no deadline.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              frameSize,
		MaxReceiveBufferPerStream:     streamWindow,
		MaxReceiveBufferPerConnection: connWindow,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
		WriteByteTimeout:              pingAfter + pingTimeout,
	}
}

// NewHTTPServer serves handler over HTTP/2 only: with mutual TLS if conf is
// given (see ServerTLS; use ServeTLS with empty file names), and in clear
// without, which is for a unix socket from ListenUnix and nothing else.
func NewHTTPServer(handler http.Handler, conf *tls.Config, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(conf != nil)
	protocols.SetUnencryptedHTTP2(conf == nil)
	return &http.Server{
		Handler:           handler,
		TLSConfig:         conf,
		Protocols:         protocols,
		HTTP2:             http2Config(),
		ReadHeaderTimeout: 10 * time.Second, // bounds the TLS handshake
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// DialUnix reaches a service on this host.
func DialUnix(ctx context.Context, socket string) (*Client, error) {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return NewClient(ctx, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		Protocols:          protocols,
		HTTP2:              http2Config(),
		DisableCompression: true,
	}}, "http://execd")
}

// DialTLS reaches a service on another host (host:port) with mutual TLS; see
// ClientTLS.
func DialTLS(ctx context.Context, address string, conf *tls.Config) (*Client, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return NewClient(ctx, &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:     conf,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           protocols,
		HTTP2:               http2Config(),
		DisableCompression:  true,
	}}, "https://"+address)
}
