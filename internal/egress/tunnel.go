package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// In TLS.
const (
	recordHandshake = 0x16
	// extensions that hide the name from whoever is on the way.
	extensionECH  = 0xfe0d
	extensionESNI = 0xffce
)

// unrecognizedName is TLS's fatal alert for a name that is not served.
var unrecognizedName = []byte{0x15, 3, 1, 0, 2, 2, 112}

// tunnel carries a connection on which the client was told that it is connected
// to u. What it says first decides.
func (g *Gateway) tunnel(c *client, u *upstream) {
	u.belongsTo(c)
	first, err := c.first()
	switch {
	case err != nil:
		u.refuse("nothing was said in it")
	case first == recordHandshake:
		g.tunnelTLS(c, u)
		return
	case isHTTP(first):
		c.mu.Lock()
		c.target, c.ready = &u.target, u
		c.mu.Unlock()
		g.proxy.take(c)
		return
	default:
		u.refuse("it is neither TLS nor HTTP")
	}
	_ = c.Close()
}

func (g *Gateway) tunnelTLS(c *client, u *upstream) {
	defer c.Close()
	defer u.Close()
	hello, name, err := readHello(c)
	if err == nil {
		err = checkName(name, u.target.host)
	}
	if err != nil {
		u.refuse(err.Error())
		c.hurry()
		_, _ = c.Write(unrecognizedName)
		_ = c.CloseWrite()
		return
	}
	c.relax()
	if _, err := u.Write(hello); err != nil {
		return
	}
	carry(c, u)
}

// carry copies both ways until both have ended or one has failed.
func carry(c *client, u *upstream) {
	from := &saying{client: c}
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(u, from)
		if err != nil {
			_ = u.Close()
			return
		}
		_ = u.CloseWrite()
	})
	_, err := io.Copy(c, u)
	if err == nil {
		err = c.CloseWrite()
	}
	if err != nil {
		_ = c.Close()
	} else {
		from.last()
	}
	both.Wait()
}

// saying is what a client says. While its server can answer, reading from that
// bounds how long nothing moves; afterwards this does.
type saying struct {
	*client
	alone atomic.Bool
}

// last says that the server has said its last.
func (s *saying) last() {
	s.alone.Store(true)
	_ = s.SetReadDeadline(time.Now().Add(s.session.gateway.idle))
}

func (s *saying) Read(p []byte) (int, error) {
	if s.alone.Load() {
		s.last()
	}
	return s.client.Read(p)
}

// checkName compares the name in a hello with the server that was asked for.
func checkName(name, host string) error {
	if _, literal := address.Literal(host); literal {
		if name != "" {
			return fmt.Errorf("TLS asks for %.80q on an address", name)
		}
		return nil
	}
	switch {
	case name == "":
		return errors.New("TLS names no server")
	case address.Lower(name) != host:
		return fmt.Errorf("TLS asks for another server, %.80q", name)
	}
	return nil
}

// errHello ends the reading of a hello.
var errHello = errors.New("that was the hello")

// readHello reads a TLS hello with Go's own parser. It returns the bytes that it
// took and the name of the server.
func readHello(c *client) (hello []byte, name string, err error) {
	c.hurry()
	tap := &tap{Conn: c}
	seen := false
	var hidden bool
	err = tls.Server(tap, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			seen, name = true, info.ServerName
			hidden = slices.Contains(info.Extensions, extensionECH) || slices.Contains(info.Extensions, extensionESNI)
			return nil, errHello
		},
	}).HandshakeContext(context.Background())
	switch {
	case !seen:
		return nil, "", fmt.Errorf("its TLS hello cannot be read: %w", err)
	case hidden:
		return nil, "", errors.New("its TLS hello hides the name of the server")
	}
	return tap.taken.Bytes(), name, nil
}

// tap keeps what is read and lets nothing be written.
type tap struct {
	net.Conn
	taken bytes.Buffer
}

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.taken.Write(p[:n])
	return n, err
}

func (t *tap) Write(p []byte) (int, error) { return len(p), nil }
