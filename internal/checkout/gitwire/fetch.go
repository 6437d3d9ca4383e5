package gitwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// maxShallow bounds the commits at which a history may be cut off.
const maxShallow = 100_000

// Fetched is what came with a pack.
type Fetched struct {
	// Shallow are the commits whose parents were left out.
	Shallow []string
}

// Fetch writes the pack that holds the target to w. A depth of 0 asks for the
// whole history, another for that many commits. An error of w ends it and is
// returned as it is.
func (s *Session) Fetch(ctx context.Context, target Target, depth int, w io.Writer) (Fetched, error) {
	if depth > 0 && !s.shallow {
		return Fetched{}, reason.New(reason.Malformed, "%s cannot send a part of the history", s.host())
	}
	body, err := s.command(ctx, "fetch", func(r *request) {
		r.line("no-progress")
		r.line("ofs-delta")
		r.line("want %s", target.Object)
		if depth > 0 {
			r.line("deepen %d", depth)
		}
		r.line("done")
	})
	if err != nil {
		return Fetched{}, err
	}
	defer body.Close()
	f := fetch{session: s, in: newLines(body)}
	if err := f.sections(w); err != nil {
		if f.writeErr != nil {
			return Fetched{}, f.writeErr
		}
		return Fetched{}, s.failure(ctx, err)
	}
	return f.got, nil
}

type fetch struct {
	session  *Session
	in       *lines
	got      Fetched
	writeErr error
}

// sections reads the parts of the answer; the pack is the last.
func (f *fetch) sections(w io.Writer) error {
	for {
		kind, line, err := f.in.next()
		if err != nil {
			return err
		}
		if kind != data {
			return fmt.Errorf("%w: no pack in the answer", errMalformed)
		}
		switch name := text(line); name {
		case "packfile":
			return f.pack(w)
		case "shallow-info":
			if err := f.shallow(); err != nil {
				return err
			}
		default:
			if message, ok := remoteError(name); ok {
				return refused(message)
			}
			return fmt.Errorf("%w: a part that was not asked for", errMalformed)
		}
	}
}

func (f *fetch) shallow() error {
	for {
		kind, line, err := f.in.next()
		if err != nil {
			return err
		}
		if kind == delim {
			return nil
		}
		hash, ok := strings.CutPrefix(text(line), "shallow ")
		if kind != data || !ok || len(hash) != f.session.hashLen() || !commitHash.MatchString(hash) {
			return fmt.Errorf("%w: a boundary of the history that is no commit", errMalformed)
		}
		if len(f.got.Shallow) == maxShallow {
			return reason.New(reason.TooLarge, "the history is cut off at more than %d commits", maxShallow)
		}
		f.got.Shallow = append(f.got.Shallow, hash)
	}
}

// pack takes the pack out of the stream, which carries messages beside it.
func (f *fetch) pack(w io.Writer) error {
	for {
		kind, line, err := f.in.next()
		switch {
		case err != nil:
			return err
		case kind == flush:
			return nil
		case kind != data || len(line) == 0:
			return fmt.Errorf("%w: a piece of the pack without a mark", errMalformed)
		}
		switch line[0] {
		case 1:
			if _, f.writeErr = w.Write(line[1:]); f.writeErr != nil {
				return f.writeErr
			}
		case 2: // progress
		case 3:
			return refused(reason.Clean(string(line[1:])))
		default:
			return fmt.Errorf("%w: a piece of the pack with an unknown mark", errMalformed)
		}
	}
}

// refused sorts what servers say when they send no pack. That is their own
// text, so it is only looked at for the one reason that is the caller's.
func refused(message string) error {
	if strings.Contains(message, "not our ref") || strings.Contains(message, "unadvertised object") {
		return reason.New(reason.RefNotFound, "the repository has no such commit, or its server does not give it out")
	}
	return reason.Wrap(reason.Malformed, errors.New(message), "the server does not send the repository")
}
