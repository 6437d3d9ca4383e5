package gitwire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxLine is the most one line of the protocol holds, its length included.
const maxLine = 65520

// kind is what a line is when it carries nothing.
type kind int

const (
	data kind = iota
	flush
	delim
	responseEnd
)

// lines reads what the protocol is made of: pieces with their length in front.
// The slice that next returns is valid until the call after it.
type lines struct {
	r   *bufio.Reader
	buf [maxLine]byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// errMalformed is in the chain of errors for what is not the protocol.
var errMalformed = errors.New("the server does not keep to git's protocol")

// next reads a line. The end of the stream is never an end of the protocol.
func (l *lines) next() (kind, []byte, error) {
	head := l.buf[:4]
	if _, err := io.ReadFull(l.r, head); err != nil {
		return 0, nil, cut(err)
	}
	n, err := strconv.ParseUint(string(head), 16, 16)
	switch {
	case err != nil || head[0] == '+':
		return 0, nil, fmt.Errorf("%w: a line of length %q", errMalformed, head)
	case n == 0:
		return flush, nil, nil
	case n == 1:
		return delim, nil, nil
	case n == 2:
		return responseEnd, nil, nil
	case n < 4 || n > maxLine:
		return 0, nil, fmt.Errorf("%w: a line of length %d", errMalformed, n)
	}
	line := l.buf[:n-4]
	if _, err := io.ReadFull(l.r, line); err != nil {
		return 0, nil, cut(err)
	}
	return data, line, nil
}

// errCut says that the connection ended before what it carried.
var errCut = errors.New("the connection ended early")

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}

// request collects lines to send.
type request []byte

func (r *request) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	*r = fmt.Appendf(*r, "%04x%s\n", len(text)+5, text)
}

func (r *request) delim() { *r = append(*r, "0001"...) }
func (r *request) flush() { *r = append(*r, "0000"...) }
