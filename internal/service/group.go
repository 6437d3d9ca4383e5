package service

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// Group is parts that run together. Later parts need earlier ones.
type Group struct {
	Parts []*Part
	// StartTimeout bounds each start, and StopTimeout each stop; 0 is a minute.
	StartTimeout, StopTimeout time.Duration
	// Ready is called when every part takes work.
	Ready func()
	// Stopping is called when that is over, before the first part is told.
	Stopping func()
}

// Run starts the parts, waits until ctx ends or a part does, and stops them
// (S5). It returns nil only if ctx ended it and every part has ended well.
func (g Group) Run(ctx context.Context) error {
	started, err := g.start(ctx)
	if err == nil {
		if g.Ready != nil {
			g.Ready()
		}
		err = wait(ctx, started)
	} else if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // told to stop while starting
	}
	if g.Stopping != nil && len(started) == len(g.Parts) {
		g.Stopping()
	}
	return errors.Join(err, g.stop(started))
}

func (g Group) start(ctx context.Context) (started []*Part, err error) {
	for _, p := range g.Parts {
		begin, cancel := context.WithTimeout(ctx, orMinute(g.StartTimeout))
		err := p.Start(begin)
		cancel()
		if err != nil {
			return started, err
		}
		started = append(started, p)
	}
	return started, nil
}

// wait returns nil when ctx ends, and an error when a part ends by itself.
func wait(ctx context.Context, parts []*Part) error {
	cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
	for _, p := range parts {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(p.Done())})
	}
	chosen, _, _ := reflect.Select(cases)
	if chosen == 0 {
		return nil
	}
	p := parts[chosen-1]
	if p.Err() == nil {
		return fmt.Errorf("cannot go on: %s has ended", p.Name())
	}
	return fmt.Errorf("cannot go on: %s has ended: %w", p.Name(), p.Err())
}

// stop ends the parts, last first, each with a time of its own: one that hangs
// must not take it from those it needs.
func (g Group) stop(parts []*Part) error {
	var errs []error
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		ended := p.Err() != nil // and has been told of
		ctx, cancel := context.WithTimeout(context.Background(), orMinute(g.StopTimeout))
		err := p.Stop(ctx)
		cancel()
		if err != nil && !ended {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func orMinute(d time.Duration) time.Duration {
	if d == 0 {
		return time.Minute
	}
	return d
}
