package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// proxy speaks HTTP with programs. Package http reads every request and writes
// it anew, so that no two readers understand one differently.
type proxy struct {
	server  *http.Server
	forward *httputil.ReverseProxy
	clients chan net.Conn
	closing chan struct{}
	once    sync.Once
	done    chan struct{}
}

type clientKey struct{}

func newProxy(log *slog.Logger, patience, idle time.Duration) *proxy {
	p := &proxy{clients: make(chan net.Conn), closing: make(chan struct{}), done: make(chan struct{})}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // programs can cause any number of lines
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// Its own would be added otherwise.
			if _, ok := r.In.Header["User-Agent"]; !ok {
				r.Out.Header["User-Agent"] = nil
			}
		},
		Transport: &http.Transport{
			DialContext:            dialForRequest,
			DisableKeepAlives:      true, // a connection is one program's and its transcript's
			DisableCompression:     true,
			ResponseHeaderTimeout:  idle,
			MaxResponseHeaderBytes: 2 * maxHeader,
		},
		FlushInterval: -1,
		ErrorLog:      quiet,
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { answerError(w, targetOf(r.Context()), err) },
	}
	p.server = &http.Server{
		Handler:           http.HandlerFunc(p.handle),
		ReadHeaderTimeout: patience,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          quiet,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, conn.(*client))
		},
		DisableGeneralOptionsHandler: true,
	}
	go func() {
		defer close(p.done)
		if err := p.server.Serve(p); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("the proxy ended", "error", err)
		}
	}()
	return p
}

func (p *proxy) close() {
	p.once.Do(func() { close(p.closing) })
	_ = p.server.Close()
	<-p.done
}

// take serves a connection.
func (p *proxy) take(c *client) {
	c.relax()
	select {
	case p.clients <- c:
	case <-p.closing:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (p *proxy) Accept() (net.Conn, error) {
	select {
	case c := <-p.clients:
		return c, nil
	case <-p.closing:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *proxy) Close() error { p.once.Do(func() { close(p.closing) }); return nil }

// Addr implements net.Listener.
func (p *proxy) Addr() net.Addr { return inside{} }

type targetKey struct{}

func targetOf(ctx context.Context) target { t, _ := ctx.Value(targetKey{}).(target); return t }

// dialForRequest connects for a request that was admitted.
func dialForRequest(ctx context.Context, _, _ string) (net.Conn, error) {
	c, t := ctx.Value(clientKey{}).(*client), targetOf(ctx)
	if u := c.takeReady(t); u != nil {
		return u, nil
	}
	u, err := c.session.dial(ctx, t)
	if err != nil {
		return nil, err // not a *upstream that is nil
	}
	return u, nil
}

func (p *proxy) handle(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(clientKey{}).(*client)
	t, err := c.wants(r)
	if err != nil {
		c.session.record.refused(t.host, t.port, err.Error())
		w.Header().Set("Connection", "close")
		answerError(w, t, err)
		return
	}
	if r.Method == http.MethodConnect {
		p.connect(w, c, t)
		return
	}
	// The connection does not become something else after the answer.
	r.Header.Del("Upgrade")
	r.Header.Del("Proxy-Authorization")
	r.URL.Scheme, r.URL.Host, r.URL.User, r.URL.Opaque = "http", t.String(), nil, ""
	r.Host = strings.TrimSuffix(t.String(), ":80")
	p.forward.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), targetKey{}, t)))
}

const httpPort = 80

// wants says which server a request is for. With an error, the target is what is
// known of it.
func (c *client) wants(r *http.Request) (t target, err error) {
	c.mu.Lock()
	tunnelled := c.target
	c.mu.Unlock()
	asked, def := r.Host, uint16(httpPort)
	refused := func(why string) (target, error) {
		if tunnelled != nil {
			return *tunnelled, &denied{why}
		}
		return target{host: strconv.QuoteToASCII(clip(r.Host))}, &denied{why}
	}
	switch {
	case r.ProtoMajor != 1:
		return refused("a request speaks another version than HTTP/1") // package http lets PRI through
	case r.URL.Opaque != "":
		// It would be sent as it is, and may be another server's whole address.
		return refused("a request names no path")
	case tunnelled != nil && r.URL.Scheme != "" && r.URL.Scheme != "http":
		return refused("a request in it is for another protocol")
	case r.Method == http.MethodConnect && tunnelled != nil:
		return *tunnelled, &denied{"a proxy behind the proxy was asked for"}
	case r.Method == http.MethodConnect:
		def = 0
	case tunnelled != nil:
		def = tunnelled.port
	case r.URL.Scheme != "http" || r.URL.Host == "":
		return refused("it is no request for a proxy; use CONNECT for anything but http://")
	}
	t.host, t.port, err = address.HostPort(asked, def)
	switch {
	case err != nil:
		return target{host: strconv.QuoteToASCII(clip(asked))}, &denied{"it " + err.Error()}
	case t.port == 0:
		return t, &denied{"it names no port"}
	case tunnelled != nil && t != *tunnelled:
		return *tunnelled, &denied{fmt.Sprintf("a request in it is for another server, %s", t)}
	}
	return t, nil
}

// connect opens a tunnel.
func (p *proxy) connect(w http.ResponseWriter, c *client, t target) {
	u, err := c.session.dial(c.session.ctx, t)
	conn, buffered, hijackErr := http.NewResponseController(w).Hijack()
	if hijackErr != nil {
		if u != nil {
			_ = u.Close()
		}
		return
	}
	c.hurry()
	if err != nil {
		writeRefusal(conn, t, err)
		_ = c.CloseWrite()
		_ = c.Close()
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = u.Close()
		_ = c.Close()
		return
	}
	c.relax()
	// What package http has read of the tunnel already comes first.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	c.r = bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), c.r))
	c.session.gateway.tunnel(c, u)
}

// status and message are what a program is told.
func status(err error) (code int, message string) {
	var refusal *denied
	if errors.As(err, &refusal) {
		return http.StatusForbidden, refusal.reason
	}
	return http.StatusBadGateway, "it cannot be reached from here"
}

func answerError(w http.ResponseWriter, t target, err error) {
	code, message := status(err)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Proxy-Status", `agentdock; error=`+problem(code))
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, "agentdock: no connection to %s: %s\n", t, message)
}

// problem is the word that RFC 9209 has for it.
func problem(code int) string {
	if code == http.StatusForbidden {
		return "http_request_denied"
	}
	return "destination_unavailable"
}

// writeRefusal answers CONNECT. Most programs show nothing of it but the first
// line, so that has the reason too.
func writeRefusal(w io.Writer, t target, err error) {
	code, message := status(err)
	line := fmt.Sprintf("agentdock: no connection to %s: %s", t, message)
	_, _ = fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nProxy-Status: agentdock; error=%s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		code, printable(line), problem(code), len(line)+1, line)
}

// printable keeps a line a line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

func clip(text string) string { return text[:min(len(text), 260)] }
