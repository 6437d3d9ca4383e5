package livefiles

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// Part is what Read reads of a file.
type Part struct {
	Offset int64
	// Length of 0 is everything up to the size that the file has at the start.
	Length int64
}

// Read passes a regular file, or a part of it, on. begin is called once with what
// it is, before the contents, and says where they go.
func (f *Files) Read(ctx context.Context, p string, part Part, begin func(Entry) (io.Writer, error)) error {
	p, err := Resolve(p)
	if err != nil {
		return err
	}
	if part.Offset < 0 || part.Length < 0 {
		return fault.New(fault.Invalid, "offset %d or length %d is negative", part.Offset, part.Length)
	}
	r := &reading{path: p, at: part.Offset, length: part.Length, begin: begin}
	for {
		from := r.at
		r.opened = false
		end, err := f.call(ctx, job{what: "read", record: r.record, request: filewire.Request{
			Op: filewire.Read, Path: []byte(p), Offset: r.at, Length: r.want(),
		}})
		switch {
		case err != nil:
			return err
		case !r.opened:
			return disturbed("read", errors.New("it did not say what it read"))
		case end.More && r.left == 0 && r.unsized:
			return fault.New(fault.Exhausted, "cannot read %q: it has no size and more than %d bytes", clip(p), maxUnsized)
		case !end.More || r.left == 0:
			return nil
		case r.at == from:
			return disturbed("read", errors.New("it gets no further"))
		}
	}
}

// reading is a file that is read in one or several runs of the helper.
type reading struct {
	path   string
	at     int64
	length int64
	begin  func(Entry) (io.Writer, error)

	opened bool // this run has said what it reads
	w      io.Writer
	inode  uint64
	left   int64 // bytes that may still come; set with w
	// unsized says that left is no size of a file but our own bound.
	unsized bool
}

// want is how many bytes the next run is asked for; -1 is all there are.
func (r *reading) want() int64 {
	switch {
	case r.w != nil && !r.unsized:
		return r.left
	case r.length > 0:
		return r.length
	}
	return -1
}

func (r *reading) record(rec filewire.Record) error {
	switch {
	case rec.Entry != nil && !r.opened && len(rec.Entry.Name) == 0:
		r.opened = true
		return r.open(rec.Entry)
	case rec.Payload == nil, !r.opened:
		return errUnasked
	}
	data := rec.Payload
	if int64(len(data)) > r.left {
		// A file that grows is read as far as it went when reading began.
		data = data[:r.left]
	}
	n, err := r.w.Write(data)
	r.at += int64(n)
	r.left -= int64(n)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot pass the file on")
	}
	return nil
}

func (r *reading) open(e *filewire.Entry) (err error) {
	if r.w != nil {
		if e.Inode != r.inode {
			return fault.New(fault.Conflict, "cannot read: %q was replaced while it was read", clip(r.path))
		}
		return nil
	}
	r.inode = e.Inode
	r.unsized = e.Size == 0
	switch {
	case e.Size > maxFile:
		return fault.New(fault.Exhausted, "cannot read %q: it has more than %d bytes", clip(r.path), int64(maxFile))
	case e.Size > 0:
		r.left = max(0, e.Size-r.at)
	default:
		r.left = maxUnsized
	}
	if r.length > 0 {
		r.left = min(r.left, r.length)
	}
	r.w, err = r.begin(Entry{Path: r.path, Entry: *e})
	return err
}

// Write makes or replaces a regular file, and its parents, with what r holds. It
// is replaced at once when all is there, or not at all. A new file has the mode,
// or 0644 if that is 0; a file that exists keeps its own.
func (f *Files) Write(ctx context.Context, p string, mode uint32, r io.Reader) (Entry, error) {
	p, err := Resolve(p)
	if err != nil {
		return Entry{}, err
	}
	var found *filewire.Entry
	_, err = f.call(ctx, job{
		what:    "write",
		request: filewire.Request{Op: filewire.Write, Path: []byte(p), Mode: mode},
		input:   func(ctx context.Context, x execenv.Exec) error { return feed(ctx, x, r) },
		record:  func(rec filewire.Record) error { return keepOne(&found, rec) },
	})
	if err != nil {
		return Entry{}, err
	}
	return entryAt("write", p, found)
}

// feed sends the contents in pieces, and behind them that they were all. A
// reader that fails leaves the helper without that, and closes its input, so
// that it tidies up.
func feed(ctx context.Context, x execenv.Exec, r io.Reader) error {
	buf := make([]byte, filewire.MaxData)
	for {
		n, err := io.ReadFull(r, buf[4:])
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			_ = x.CloseStdin(ctx)
			return &contentsError{err}
		}
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, err := x.WriteStdin(ctx, buf[:4+n]); err != nil {
				return err
			}
		}
		if last {
			_, err := x.WriteStdin(ctx, make([]byte, 4))
			return err
		}
	}
}
