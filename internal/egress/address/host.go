package address

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

// Host is the one spelling of a server's name or address: two hosts have the same
// if and only if they are the same. An address of version 6 is in brackets, and
// is expected in them. A host that has no one spelling is refused, because
// something on the way could read it as another.
func Host(host string) (string, error) {
	host = Lower(host)
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return bracketed(inner)
	}
	host = strings.TrimSuffix(host, ".") // the root, which every name ends in
	if host == "" {
		return "", errors.New("names no host")
	}
	if len(host) > 253 {
		return "", errors.New("names a host that is too long")
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if err := checkLabel(label); err != nil {
			return "", err
		}
		last = label
	}
	// 127.1 and 0x7f000001 are addresses to some and names to others.
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			return "", errors.New("names a host that ends in a number and is no address of four")
		}
		return addr.String(), nil
	}
	return host, nil
}

// Lower is a name in small letters. Only those of ASCII have any: the Kelvin sign
// is no k, whatever Unicode says.
func Lower(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func bracketed(host string) (string, error) {
	inner, ok := strings.CutSuffix(host, "]")
	addr, err := netip.ParseAddr(inner)
	switch {
	case !ok || err != nil || addr.Is4() || addr.Zone() != "":
		return "", errors.New("names a host that is no address, or one of this machine's own networks")
	case addr.Is4In6():
		return addr.Unmap().String(), nil
	}
	return "[" + addr.String() + "]", nil
}

func checkLabel(label string) error {
	if label == "" || len(label) > 63 {
		return errors.New("names a host with an empty or an endless part")
	}
	for _, c := range []byte(label) {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case c >= 0x80:
			return errors.New("names a host in letters that are not ASCII; write it as DNS has it (xn--…)")
		default:
			return errors.New("names a host with a character that no name has")
		}
	}
	return nil
}

// HostPort is the one spelling of "host" or "host:port", and the port, which is
// def where none is given.
func HostPort(text string, def uint16) (host string, port uint16, err error) {
	name, digits, given := text, "", false
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ']') {
		name, digits, given = text[:i], text[i+1:], true
	}
	if port = def; given {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits[0] == '+' {
			return "", 0, errors.New("names a port that there cannot be")
		}
		port = uint16(n)
	}
	host, err = Host(name)
	return host, port, err
}

// Literal is the address that a host in its one spelling is, if it is no name.
func Literal(host string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return addr, err == nil
}
