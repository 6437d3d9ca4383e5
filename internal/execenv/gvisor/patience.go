package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// killTimeout is how long a kill may take in a sandbox that gets hardly any
	// processor time.
	killTimeout = 10 * time.Second
	// killCPU and killCPUEach, for every process there may be, are how much time
	// of all its processors a sandbox may use for one. It takes a tenth of that;
	// what takes all of it does something else.
	killCPU     = time.Second
	killCPUEach = 5 * time.Millisecond
	// stoppedTimeout is how long the sandbox's kernel may be stopped.
	stoppedTimeout = 500 * time.Millisecond

	patienceInterval = 50 * time.Millisecond
)

// insist runs f, in which the sandbox's kernel has to end processes, and ends the
// sandbox if it does not get that done: no limit depends on its good will. It is
// not the clock alone that decides, because a sandbox may have little processor
// time to do it in.
func (b *box) insist(what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	p := b.newPatience()
	tick := time.NewTicker(patienceInterval)
	defer tick.Stop()
	for {
		var err error
		select {
		case err = <-done:
			if err == nil {
				return nil
			}
		case <-tick.C:
			if b.gate.isClosed() { // nothing is asked of a sandbox that is paused
				p = b.newPatience()
				continue
			}
			if err = p.over(); err == nil {
				continue
			}
		}
		select {
		case <-b.Ended():
		default:
			b.abandon(fmt.Sprintf("%s: %v", what, err))
		}
		return err
	}
}

// patience is what is left to a sandbox's kernel for a kill.
type patience struct {
	box   *box
	begun time.Time
	cpu   time.Duration // used until then
}

func (b *box) newPatience() patience {
	p := patience{box: b, begun: time.Now()}
	if stats, err := b.group.Stats(); err == nil {
		p.cpu = stats.CPU
	}
	return p
}

// over says why there is none left.
func (p patience) over() error {
	waited := time.Since(p.begun)
	if waited > killTimeout {
		return fmt.Errorf("nothing has happened for %s", killTimeout)
	}
	if waited > stoppedTimeout && stopped(p.box.sentry.Getpid()) {
		return errors.New("the sandbox's kernel is stopped")
	}
	limits := p.box.Spec.Limits
	most := (killCPU + time.Duration(limits.PIDs)*killCPUEach) * time.Duration(max(1000, limits.MilliCPU)) / 1000
	if stats, err := p.box.group.Stats(); err == nil && stats.CPU-p.cpu > most {
		return fmt.Errorf("it used %s of processor time and nothing has happened", most)
	}
	return nil
}

// stopped reports whether a process of the host is stopped or traced.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// Its name, in parentheses, may hold anything.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return ok && len(rest) > 0 && (rest[0] == 'T' || rest[0] == 't')
}
