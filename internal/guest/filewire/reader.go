package filewire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// ErrCut says that an answer has no End.
var ErrCut = errors.New("the answer was cut")

// Reader reads an answer that may be hostile.
type Reader struct {
	r    *bufio.Reader
	data []byte
	done bool
}

// NewReader reads an answer from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, MaxLine)} }

// Next returns the next record, whose Payload is valid until the call after.
// Behind the End it returns io.EOF; an answer without one ends as ErrCut.
func (r *Reader) Next() (Record, error) {
	if r.done {
		return Record{}, io.EOF
	}
	line, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return Record{}, fmt.Errorf("a record is longer than %d bytes", MaxLine)
	case errors.Is(err, io.EOF):
		return Record{}, ErrCut
	case err != nil:
		return Record{}, err
	}
	var rec Record
	if err := json.Unmarshal(line, &rec); err != nil {
		return Record{}, fmt.Errorf("a record is not what was agreed: %w", err)
	}
	if err := rec.check(); err != nil {
		return Record{}, err
	}
	if rec.Data > 0 {
		if r.data == nil {
			r.data = make([]byte, MaxData)
		}
		if _, err := io.ReadFull(r.r, r.data[:rec.Data]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return Record{}, ErrCut
			}
			return Record{}, err
		}
		rec.Payload = r.data[:rec.Data]
	}
	r.done = rec.End != nil
	return rec, nil
}

func (r *Record) check() error {
	fields := 0
	for _, set := range []bool{r.Entry != nil, r.Data != 0, r.Ready, r.Event != nil, r.End != nil} {
		if set {
			fields++
		}
	}
	if fields != 1 {
		return fmt.Errorf("a record says %d things", fields)
	}
	switch {
	case r.Entry != nil:
		return r.Entry.check()
	case r.Event != nil:
		return r.Event.check()
	case r.End != nil:
		r.End.Message = clean(r.End.Message)
	case r.Data < 0 || r.Data > MaxData:
		return fmt.Errorf("a record has %d bytes", r.Data)
	}
	return nil
}

func (e *Entry) check() error {
	if err := checkName(e.Name); err != nil {
		return err
	}
	switch {
	case !e.Kind.known(), e.TargetKind != "" && !e.TargetKind.known():
		return errors.New("a file is of no known kind")
	case e.Size < 0:
		return errors.New("a file is smaller than nothing")
	case e.Mode&^0o7777 != 0:
		return errors.New("a mode has bits that no mode has")
	case len(e.Target) > MaxPath:
		return errors.New("a symlink is too long")
	case e.MTime.Year() < 1900 || e.MTime.Year() > 9999:
		return errors.New("a time is out of this world")
	}
	return nil
}

func (k Kind) known() bool { return k == File || k == Directory || k == Symlink || k == Other }

func (e *Event) check() error {
	switch e.Kind {
	case Overflow:
		e.Name = nil
		return nil
	case Created, Written, Removed, Renamed, Changed:
		return checkName(e.Name)
	}
	return errors.New("an event is of no known kind")
}

// checkName takes what can be a path below a directory, and nothing else.
func checkName(name []byte) error {
	if len(name) == 0 {
		return nil
	}
	if len(name) > MaxPath {
		return errors.New("a name is too long")
	}
	for elem := range strings.SplitSeq(string(name), "/") {
		if elem == "" || elem == "." || elem == ".." || len(elem) > MaxName || strings.IndexByte(elem, 0) >= 0 {
			return fmt.Errorf("%.40q is no name below a directory", name)
		}
	}
	return nil
}

// clean keeps what a sandbox says fit for a message.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	if len(s) > MaxMessage {
		s = strings.ToValidUTF8(s[:MaxMessage], "")
	}
	return s
}
