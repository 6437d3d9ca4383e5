// Package livefiles works on the files of a live sandbox: it looks, reads,
// writes, moves, removes and watches.
//
// All of it happens in the sandbox, as the unprivileged user, by the guest
// helper, which is run as a command once for each request (filewire). No path of
// a sandbox is resolved out here. The helper can be stopped or impersonated by
// programs of the same sandbox; so whatever it says is checked, bounded in
// size, number and time, and is about that sandbox only. It is one more process
// of the sandbox, and is refused where its limit of processes is reached.
//
// Paths are absolute, or relative to the workspace. Errors carry a fault.Code:
//
//   - Invalid: the path is malformed, or what is there is of the wrong kind;
//     only regular files are read and written.
//   - NotFound, Conflict (something is in the way), Denied (the user may not).
//   - Exhausted: a quota is full, or the answer is larger than is handed out.
//   - Gone: the sandbox has ended. Unavailable: ctx ended, or the helper was
//     disturbed; what was going on is unknown, but a file is written whole or
//     not at all.
package livefiles

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
)

const (
	// patience is how long the helper may take for what is not a transfer.
	patience = time.Minute
	// maxAnswer is how much one run of the helper may answer. What a command
	// has written stays in the execution service for a while, so it is not
	// much; larger answers take several runs.
	maxAnswer = 4 << 20
	// minAnswer is what is needed for any.
	minAnswer = 16 << 10
	// maxEntries bounds what List returns.
	maxEntries = 50_000
	// maxDepth bounds how deep List goes.
	maxDepth = 64
	// maxFile bounds what is read of one file.
	maxFile = 64 << 30
	// maxUnsized bounds what is read of a file whose size is not known before,
	// such as those of /proc.
	maxUnsized = 16 << 20
)

// Kind of a file.
type Kind = filewire.Kind

const (
	File      = filewire.File
	Directory = filewire.Directory
	Symlink   = filewire.Symlink
	Other     = filewire.Other
)

// Entry describes a file. A sandbox may have chosen every part of it.
type Entry struct {
	// Path is absolute and clean. It may hold any byte but NUL.
	Path string
	filewire.Entry
}

// Base is the last element of the path.
func (e Entry) Base() string { return path.Base(e.Path) }

// Files works on the files of one sandbox. It holds nothing.
type Files struct {
	sandbox execenv.Sandbox
	budget  int64
}

// Open prepares to work on a sandbox's files. The limit is what the sandbox keeps
// of a command's output (run.Limits.OutputBytes).
func Open(sandbox execenv.Sandbox, outputBytes int64) (*Files, error) {
	if outputBytes < minAnswer {
		return nil, fault.New(fault.Exhausted, "cannot work on files of sandbox %s: its output limit of %d bytes is less than %d", sandbox.ID(), outputBytes, minAnswer)
	}
	return &Files{sandbox: sandbox, budget: min(outputBytes, maxAnswer)}, nil
}

// Resolve makes a path absolute and clean, and refuses what is malformed.
func Resolve(p string) (string, error) {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return "", fault.New(fault.Invalid, "path %q holds a NUL byte", clip(p))
	case len(p) >= filewire.MaxPath:
		return "", fault.New(fault.Invalid, "a path of %d bytes is longer than %d", len(p), filewire.MaxPath-1)
	}
	for elem := range strings.SplitSeq(p, "/") {
		if elem == ".." {
			return "", fault.New(fault.Invalid, "path %q holds '..'", clip(p))
		}
		if len(elem) > filewire.MaxName {
			return "", fault.New(fault.Invalid, "the name %q is longer than %d bytes", clip(elem), filewire.MaxName)
		}
	}
	if !strings.HasPrefix(p, "/") {
		p = execenv.Workspace + "/" + p
	}
	p = path.Clean(p)
	if len(p) >= filewire.MaxPath {
		return "", fault.New(fault.Invalid, "a path of %d bytes is longer than %d", len(p), filewire.MaxPath-1)
	}
	return p, nil
}

// Stat describes what is at a path, without following a symlink there.
func (f *Files) Stat(ctx context.Context, p string) (Entry, error) {
	return f.one(ctx, "stat", filewire.Request{Op: filewire.Stat}, p)
}

// MakeDir makes a directory and its parents. If it exists, that is a Conflict.
func (f *Files) MakeDir(ctx context.Context, p string) (Entry, error) {
	return f.one(ctx, "make directory", filewire.Request{Op: filewire.MakeDir}, p)
}

// Move gives a file or a directory another name, and makes its parents. A file
// that has that name is replaced, a directory is a Conflict.
func (f *Files) Move(ctx context.Context, from, to string) (Entry, error) {
	to, err := Resolve(to)
	if err != nil {
		return Entry{}, err
	}
	e, err := f.one(ctx, "move", filewire.Request{Op: filewire.Move, To: []byte(to)}, from)
	e.Path = to
	return e, err
}

// Remove removes a file, or a directory and everything in it.
func (f *Files) Remove(ctx context.Context, p string) error {
	p, err := Resolve(p)
	if err != nil {
		return err
	}
	_, err = f.call(ctx, job{
		what: "remove", request: filewire.Request{Op: filewire.Remove, Path: []byte(p)}, timeout: patience,
		record: func(filewire.Record) error { return errUnasked },
	})
	return err
}

// one is a request that is answered by one entry, that of the path itself.
func (f *Files) one(ctx context.Context, what string, req filewire.Request, p string) (Entry, error) {
	p, err := Resolve(p)
	if err != nil {
		return Entry{}, err
	}
	req.Path = []byte(p)
	var found *filewire.Entry
	_, err = f.call(ctx, job{what: what, request: req, timeout: patience, record: func(r filewire.Record) error {
		return keepOne(&found, r)
	}})
	if err != nil {
		return Entry{}, err
	}
	return entryAt(what, p, found)
}

// keepOne takes the entry of the path itself, once.
func keepOne(found **filewire.Entry, r filewire.Record) error {
	if r.Entry == nil || len(r.Entry.Name) != 0 || *found != nil {
		return errUnasked
	}
	*found = r.Entry
	return nil
}

func entryAt(what, p string, found *filewire.Entry) (Entry, error) {
	if found == nil {
		return Entry{}, disturbed(what, fmt.Errorf("it did not say what is at %q", clip(p)))
	}
	return Entry{Path: p, Entry: *found}, nil
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
