package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strconv"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// SOCKS5, RFC 1928.
const (
	socksVersion  = 5
	socksNoAuth   = 0
	socksNoMethod = 0xff
	socksConnect  = 1

	socksIPv4, socksName, socksIPv6 = 1, 3, 4

	socksGranted, socksNotAllowed, socksUnreachable = 0, 2, 4
	socksBadCommand, socksBadAddress                = 7, 8
)

func (g *Gateway) serveSOCKS(c *client) {
	c.hurry()
	t, code, err := readSOCKS(c)
	if err != nil {
		c.session.record.refused(t.host, t.port, err.Error())
		if code != 0 {
			answerSOCKS(c, code)
		}
		_ = c.Close()
		return
	}
	u, err := c.session.dial(c.session.ctx, t)
	c.hurry()
	if err != nil {
		code = socksUnreachable
		var refusal *denied
		if errors.As(err, &refusal) {
			code = socksNotAllowed
		}
		answerSOCKS(c, code)
		_ = c.Close()
		return
	}
	if !answerSOCKS(c, socksGranted) {
		_ = u.Close()
		_ = c.Close()
		return
	}
	c.relax()
	g.tunnel(c, u)
}

// answerSOCKS tells the client, and ends its reading if that was a refusal. The
// address in the answer says nothing.
func answerSOCKS(c *client, code byte) bool {
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	if code != socksGranted {
		_ = c.CloseWrite()
	}
	return err == nil
}

// readSOCKS reads what the client wants. With an error, code is what to tell it,
// and 0 nothing.
func readSOCKS(c *client) (t target, code byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return t, 0, errors.New("its SOCKS greeting is cut")
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return t, 0, errors.New("its SOCKS greeting is cut")
	}
	method := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoAuth {
			method = m
		}
	}
	if _, err := c.Write([]byte{socksVersion, method}); err != nil || method != socksNoAuth {
		return t, 0, errors.New("its SOCKS greeting offers no method that there is")
	}
	request := make([]byte, 4)
	if _, err := io.ReadFull(c, request); err != nil || request[0] != socksVersion {
		return t, 0, errors.New("its SOCKS request is cut")
	}
	host, err := readSOCKSHost(c, request[3])
	if err != nil {
		return t, socksBadAddress, err
	}
	port := make([]byte, 2)
	if _, err := io.ReadFull(c, port); err != nil {
		return t, 0, errors.New("its SOCKS request is cut")
	}
	t = target{host: host, port: binary.BigEndian.Uint16(port)}
	one, err := address.Host(host)
	if err != nil {
		t.host = strconv.QuoteToASCII(host)
		return t, socksNotAllowed, errors.New("it " + err.Error())
	}
	t.host = one
	if request[1] != socksConnect {
		return t, socksBadCommand, errors.New("SOCKS may connect and nothing else; there is no UDP")
	}
	return t, 0, nil
}

func readSOCKSHost(c *client, kind byte) (string, error) {
	size := 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n, err := c.r.ReadByte()
		if err != nil {
			return "", errors.New("its SOCKS request is cut")
		}
		size = int(n)
	default:
		return "", errors.New("its SOCKS request has an address of a kind that there is not")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(c, b); err != nil {
		return "", errors.New("its SOCKS request is cut")
	}
	if kind == socksName {
		return string(b), nil
	}
	addr, _ := netip.AddrFromSlice(b)
	if addr = addr.Unmap(); addr.Is6() {
		return "[" + addr.String() + "]", nil
	}
	return addr.String(), nil
}
