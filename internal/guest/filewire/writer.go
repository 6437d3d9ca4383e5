package filewire

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// ErrBudget says that the next record would go over the budget.
var ErrBudget = errors.New("the answer is as long as it may be")

// reserve is kept free for the End.
const reserve = 2 << 10

// Writer writes an answer within a budget.
type Writer struct {
	w    io.Writer
	left int64
}

// NewWriter writes at most budget bytes to w.
func NewWriter(w io.Writer, budget int64) *Writer { return &Writer{w: w, left: budget} }

// Room is how much data the next record may have.
func (w *Writer) Room() int64 { return min(w.left-reserve-64, MaxData) }

// Send writes a record, or nothing and ErrBudget.
func (w *Writer) Send(r Record) error {
	r.Data = len(r.Payload)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(append(line, '\n'), r.Payload...)
	keep := int64(reserve)
	if r.End != nil {
		keep = 0
	}
	if int64(len(line)) > w.left-keep {
		return ErrBudget
	}
	w.left -= int64(len(line))
	_, err = w.w.Write(line)
	return err
}

// End writes the last record.
func (w *Writer) End(e End) error {
	e.Message = strings.ToValidUTF8(e.Message, "?")
	if len(e.Message) > MaxMessage/4 {
		e.Message = strings.ToValidUTF8(e.Message[:MaxMessage/4], "")
	}
	return w.Send(Record{End: &e})
}
