package service

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// HTTP makes a part that serves on a listener. When it is told to stop it takes
// no new connections, gives open requests until drain is over, and then ends
// them: a client that follows a log must not hold up a stop for ever. The
// contexts of requests end with the part.
func HTTP(name string, l net.Listener, server *http.Server, drain time.Duration) *Part {
	return New(name, func(ctx context.Context, ready func()) error {
		requests, endRequests := context.WithCancel(context.WithoutCancel(ctx))
		defer endRequests()
		server.BaseContext = func(net.Listener) context.Context { return requests }
		served := make(chan error, 1)
		go func() {
			if server.TLSConfig != nil {
				served <- server.ServeTLS(l, "", "")
				return
			}
			served <- server.Serve(l)
		}()
		ready()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		err := server.Shutdown(patience)
		if errors.Is(err, context.DeadlineExceeded) {
			endRequests()
			err = server.Close()
		}
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		return err
	})
}
