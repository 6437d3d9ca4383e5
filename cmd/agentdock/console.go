package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// console is standard error, shared by the program's own output and by what we
// say about the run, which starts on a line of its own.
type console struct {
	mu     sync.Mutex
	w      io.Writer
	inLine bool // the program left a line open
}

func newConsole(w io.Writer) *console { return &console{w: w} }

// Write passes on what the program writes.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) > 0 {
		c.inLine = p[len(p)-1] != '\n'
	}
	return c.w.Write(p)
}

func (c *console) line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := ""
	if c.inLine {
		start = "\n"
	}
	fmt.Fprintf(c.w, "%sagentdock: %s\n", start, text)
	c.inLine = false
}

// phase says what goes on if it is still going on after a while. What it
// returns says that it has ended.
func (c *console) phase(what string) (ended func()) {
	var mu sync.Mutex
	over := false
	t := time.AfterFunc(phaseAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			c.line(what + " …")
		}
	})
	return func() {
		t.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}
