package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// httpsPort is the one that a URL need not name.
const httpsPort = 443

// Authority is the one spelling of the server that an HTTPS URL names: two URLs
// have the same if and only if they name the same one. A host that has no one
// spelling is refused, because something on the way could read it as another.
func Authority(u *url.URL) (string, error) {
	host, err := canonicalHost(strings.ToLower(u.Hostname()), strings.HasPrefix(u.Host, "["))
	if err != nil {
		return "", err
	}
	if u.Port() == "" {
		return host, nil
	}
	switch port, err := strconv.ParseUint(u.Port(), 10, 16); {
	case err != nil || port == 0:
		return "", errors.New("names a port that there cannot be")
	case port == httpsPort:
		return host, nil
	default:
		return host + ":" + strconv.FormatUint(port, 10), nil
	}
}

func canonicalHost(host string, bracketed bool) (string, error) {
	if bracketed {
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil || addr.Zone() != "":
			return "", errors.New("names a host that is no address, or one of this machine's own networks")
		case addr.Is4In6():
			return addr.Unmap().String(), nil
		}
		return "[" + addr.String() + "]", nil
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
		if label == "" || len(label) > 63 {
			return "", errors.New("names a host with an empty or an endless part")
		}
		for _, c := range []byte(label) {
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			case c >= 0x80:
				return "", errors.New("names a host in letters that are not ASCII; write it as DNS has it (xn--…)")
			default:
				return "", errors.New("names a host with a character that no name has")
			}
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
