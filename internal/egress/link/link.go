// Package link is how an execution service and the gateway speak: over a unix
// socket, one line of JSON and one answer for each connection. After "attach" the
// connection is the sandbox's stream (package tunnel), and no line follows.
package link

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Op is what is asked for.
type Op string

const (
	// OpAttach begins a stream of the sandbox, and makes its policy known.
	OpAttach Op = "attach"
	// OpSet changes the policy, for open connections too.
	OpSet Op = "set"
	// OpUse asks what was done.
	OpUse Op = "use"
	// OpForget ends everything of the sandbox.
	OpForget Op = "forget"
)

// Request is the line.
type Request struct {
	Op Op `json:"op"`
	// Sandbox is unique among all services that use the gateway.
	Sandbox string      `json:"sandbox"`
	Network run.Network `json:"network,omitzero"`
}

// Answer is what comes back.
type Answer struct {
	Code  fault.Code      `json:"code,omitempty"`
	Error string          `json:"error,omitempty"`
	Use   *run.NetworkUse `json:"use,omitempty"`
}

const (
	// MaxRequest and MaxAnswer bound a line.
	MaxRequest = 256 << 10
	MaxAnswer  = 4 << 20
	// Timeout bounds an exchange; a gateway that does not answer is none.
	Timeout = 10 * time.Second
)

// Client speaks to a gateway.
type Client struct {
	// Socket is where it listens.
	Socket string
	// Service tells sandboxes of this service from those of others.
	Service string
}

// Attach returns the sandbox's stream.
func (c *Client) Attach(ctx context.Context, sandbox string, n run.Network) (*os.File, error) {
	conn, _, err := c.ask(ctx, Request{Op: OpAttach, Sandbox: sandbox, Network: n})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot open the network of sandbox %s", sandbox)
	}
	return file, nil
}

// Set changes what a sandbox may reach.
func (c *Client) Set(ctx context.Context, sandbox string, n run.Network) error {
	_, err := c.tell(ctx, Request{Op: OpSet, Sandbox: sandbox, Network: n})
	return err
}

// Use says what a sandbox did.
func (c *Client) Use(ctx context.Context, sandbox string) (run.NetworkUse, error) {
	answer, err := c.tell(ctx, Request{Op: OpUse, Sandbox: sandbox})
	if err != nil || answer.Use == nil {
		return run.NetworkUse{}, err
	}
	return *answer.Use, nil
}

// Forget ends what is left of a sandbox. One that is not known is no error.
func (c *Client) Forget(ctx context.Context, sandbox string) error {
	_, err := c.tell(ctx, Request{Op: OpForget, Sandbox: sandbox})
	return err
}

func (c *Client) tell(ctx context.Context, r Request) (Answer, error) {
	conn, answer, err := c.ask(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	conn.Close()
	return answer, nil
}

// ask makes the exchange. The caller closes the connection.
func (c *Client) ask(ctx context.Context, r Request) (*net.UnixConn, Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r.Sandbox = c.Service + "/" + r.Sandbox
	absent := func(err error) (*net.UnixConn, Answer, error) {
		return nil, Answer{}, fault.Wrap(fault.Unavailable, err, "the network gateway cannot be reached; nothing gets out until agentdock-egress runs")
	}
	var d net.Dialer
	dialed, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return absent(err)
	}
	conn := dialed.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	answer, err := exchange(conn, r)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return absent(err)
	}
	if answer.Error != "" {
		conn.Close()
		return nil, Answer{}, fault.New(answer.Code, "%s", answer.Error)
	}
	return conn, answer, nil
}

func exchange(conn net.Conn, r Request) (Answer, error) {
	line, err := json.Marshal(r)
	if err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return Answer{}, err
	}
	var reader io.Reader = conn
	if r.Op == OpAttach {
		reader = oneByte{conn} // what follows the line is the stream's
	}
	line, err = ReadLine(bufio.NewReaderSize(reader, 16), MaxAnswer)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if err := json.Unmarshal(line, &answer); err != nil {
		return Answer{}, fmt.Errorf("cannot understand the gateway: %w", err)
	}
	return answer, nil
}

// oneByte reads no more than was asked for.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// ReadLine reads a line of at most so many bytes, without its end.
func ReadLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errors.New("the line is too long")
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
