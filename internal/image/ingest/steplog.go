package ingest

import (
	"bytes"
	"strings"
	"sync"
	"time"
)

// heartbeat is how often a long step says that it still goes on.
const heartbeat = 10 * time.Second

// stepLog turns what mmdebstrap writes to its error stream into progress, and
// keeps the end of it for the error message.
type stepLog struct {
	say func(string)

	mu   sync.Mutex
	said tail
	line []byte
	step string
}

// maxLine bounds a line that never ends.
const maxLine = 4 << 10

func (l *stepLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.said.Write(p)
	for rest := p; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		if len(l.line)+len(part) <= maxLine {
			l.line = append(l.line, part...)
		}
		if ended {
			l.endLine()
		}
		rest = after
	}
	return len(p), nil
}

// endLine reports a line that names a step; package tools' own lines are too
// many to be of use.
func (l *stepLog) endLine() {
	step, ok := strings.CutPrefix(string(l.line), "I: ")
	l.line = l.line[:0]
	if !ok || step == "done" || strings.HasPrefix(step, "success") || strings.Contains(step, "tempdir") {
		return
	}
	if strings.HasPrefix(step, "running --customize-hook") {
		step = "trimming" // the line has the whole hook in it
	}
	if step = strings.TrimSuffix(step, "..."); step == l.step {
		return
	}
	l.step = step
	l.say(l.step)
}

// beat repeats the current step from time to time until stop is called, which
// waits for the last word.
func (l *stepLog) beat() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				l.mu.Lock()
				if l.step != "" {
					l.say("still " + l.step)
				}
				l.mu.Unlock()
			}
		}
	}()
	return func() { close(done); <-ended }
}
