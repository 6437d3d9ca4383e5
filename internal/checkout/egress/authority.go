package egress

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// httpsPort is the one that a URL need not name.
const httpsPort = 443

// Authority is the one spelling of the server that an HTTPS URL names: two URLs
// have the same if and only if they name the same one (address.Host).
func Authority(u *url.URL) (string, error) {
	host := u.Hostname()
	if len(u.Host) > 0 && u.Host[0] == '[' {
		host = "[" + host + "]"
	}
	host, err := address.Host(host)
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
