package livefiles

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// List describes what is in a directory, down to a depth; 1 is its own entries.
// Each directory comes before what is in it, and names are sorted.
func (f *Files) List(ctx context.Context, dir string, depth int) ([]Entry, error) {
	const what = "list"
	dir, err := Resolve(dir)
	if err != nil {
		return nil, err
	}
	if depth < 1 || depth > maxDepth {
		return nil, fault.New(fault.Invalid, "a depth of %d is not between 1 and %d", depth, maxDepth)
	}
	l := &listing{dir: dir, depth: depth}
	for {
		before := len(l.entries)
		end, err := f.call(ctx, job{
			what: what, timeout: patience, record: l.record,
			request: filewire.Request{Op: filewire.List, Path: []byte(dir), Depth: depth, After: []byte(strings.Join(l.last, "/"))},
		})
		if err != nil {
			return nil, err
		}
		if !end.More {
			return l.entries, nil
		}
		if len(l.entries) == before {
			return nil, disturbed(what, errors.New("it gets no further"))
		}
	}
}

// listing collects the answers to List. Names must come in order, so that they
// come to an end.
type listing struct {
	dir     string
	depth   int
	last    []string
	entries []Entry
}

func (l *listing) record(r filewire.Record) error {
	if r.Entry == nil || len(r.Entry.Name) == 0 {
		return errUnasked
	}
	name := strings.Split(string(r.Entry.Name), "/")
	if len(name) > l.depth || slices.Compare(name, l.last) <= 0 {
		return errUnasked
	}
	if len(l.entries) >= maxEntries {
		return fault.New(fault.Exhausted, "cannot list %q: there are more than %d files; list a part of it", clip(l.dir), maxEntries)
	}
	l.last = name
	l.entries = append(l.entries, Entry{Path: path.Join(l.dir, string(r.Entry.Name)), Entry: *r.Entry})
	return nil
}
