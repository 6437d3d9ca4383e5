package execrpc

import (
	"context"
	"fmt"
)

// Dialer says how to reach a service: by a unix socket or, without one, by an
// address with mutual TLS.
func Dialer(socket, address string, files TLSFiles) (func(context.Context) (*Client, error), error) {
	if socket != "" {
		return func(ctx context.Context) (*Client, error) { return DialUnix(ctx, socket) }, nil
	}
	conf, err := ClientTLS(files, "")
	if err != nil {
		return nil, fmt.Errorf("cannot reach the execution service at %s: %w", address, err)
	}
	return func(ctx context.Context) (*Client, error) { return DialTLS(ctx, address, conf) }, nil
}
