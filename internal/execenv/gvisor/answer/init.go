package answer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Timeout bounds one request to init, which does nothing that takes
// long. It is generous because a sandbox may be starved of processor time.
const Timeout = 20 * time.Second

// Init is the connection to the init process in a sandbox.
type Init struct {
	mu   sync.Mutex
	conn Conn
	in   *bufio.Reader
	// broken is set once a request has gone without its answer. The answer may
	// still come, and would be taken for the next request's.
	broken error
}

// Conn is our end of the connection.
type Conn interface {
	io.ReadWriteCloser
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// NewInit takes over our end of the connection.
func NewInit(c Conn) *Init {
	return &Init{conn: c, in: bufio.NewReaderSize(c, 4096)}
}

// Ready waits for init to have set the sandbox up.
func (c *Init) Ready(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, err := c.read(deadline)
	if err != nil {
		return err
	}
	if answer != "ready" {
		return fmt.Errorf("the sandbox could not set itself up: %s", answer)
	}
	return nil
}

// Request sends one line and returns the words after "ok".
func (c *Init) Request(line string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, err := c.exchange(line)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(answer)
	if len(words) == 0 || words[0] != "ok" {
		return nil, &InitError{Request: line, Answer: answer}
	}
	return words[1:], nil
}

// exchange sends a line and reads one.
func (c *Init) exchange(line string) (answer string, err error) {
	if c.broken != nil {
		return "", c.broken
	}
	defer func() { c.broken = err }()
	if c.in.Buffered() > 0 {
		return "", errors.New("the sandbox's init said more than it was asked")
	}
	deadline := time.Now().Add(Timeout)
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c.conn, line+"\n"); err != nil {
		return "", fmt.Errorf("cannot reach the sandbox's init: %w", err)
	}
	return c.read(deadline)
}

// InitError is an answer other than ok; the connection is still good.
type InitError struct{ Request, Answer string }

func (e *InitError) Error() string {
	return fmt.Sprintf("the sandbox's init refused %q: %s", e.Request, e.Answer)
}

func (c *Init) read(deadline time.Time) (string, error) {
	if err := c.conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("cannot read from the sandbox's init: %w", err)
	}
	return strings.TrimSpace(string(line)), nil
}

// Close ends the connection.
func (c *Init) Close() { c.conn.Close() }
