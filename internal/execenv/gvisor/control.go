package gvisor

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// controlTimeout bounds one request to init, which does nothing that takes
// long. It is generous because a sandbox may be starved of processor time.
const controlTimeout = 20 * time.Second

// initControl is the connection to the init process in a sandbox.
type initControl struct {
	mu   sync.Mutex
	file *os.File
	in   *bufio.Reader
}

func newInitControl(f *os.File) *initControl {
	return &initControl{file: f, in: bufio.NewReaderSize(f, 4096)}
}

// ready waits for init to have set the sandbox up.
func (c *initControl) ready(deadline time.Time) error {
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

// request sends one line and returns the words after "ok".
func (c *initControl) request(line string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(controlTimeout)
	if err := c.file.SetWriteDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := c.file.WriteString(line + "\n"); err != nil {
		return nil, fmt.Errorf("cannot reach the sandbox's init: %w", err)
	}
	answer, err := c.read(deadline)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(answer)
	if len(words) == 0 || words[0] != "ok" {
		return nil, &initError{request: line, answer: answer}
	}
	return words[1:], nil
}

// initError is an answer other than ok; the connection is still good.
type initError struct{ request, answer string }

func (e *initError) Error() string {
	return fmt.Sprintf("the sandbox's init refused %q: %s", e.request, e.answer)
}

func (c *initControl) read(deadline time.Time) (string, error) {
	if err := c.file.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("cannot read from the sandbox's init: %w", err)
	}
	return strings.TrimSpace(string(line)), nil
}

func (c *initControl) close() { c.file.Close() }
