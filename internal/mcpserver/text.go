package mcpserver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes hostile text safe to show, and says whether it had to change it.
// Control characters become their pictures, so that no terminal obeys them and
// a reader still sees them; bytes that are not UTF-8, and characters that hide
// or reorder others, become U+FFFD.
func visible(s string) (shown string, altered bool) {
	shown = strings.Map(func(c rune) rune {
		switch {
		case c == '\n' || c == '\t':
			return c
		case c < ' ':
			altered = true
			return '\u2400' + c
		case c == 0x7f:
			altered = true
			return '\u2421'
		case c < 0xa0 && c > 0x7f, hides(c):
			altered = true
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
	return shown, altered || !utf8.ValidString(s)
}

// hides reports whether a character has no picture of its own and changes what
// is seen of others, or is seen by a model and not by people: marks of direction,
// tags, variation selectors of the second kind, separators.
func hides(c rune) bool {
	switch {
	case c == '\u2028', c == '\u2029', c == '\ufeff', c == '\u061c', c == '\u200e', c == '\u200f':
		return true
	case c >= '\u202a' && c <= '\u202e', c >= '\u2060' && c <= '\u206f', c >= '\ufff9' && c <= '\ufffb':
		return true
	case c >= 0xe0000 && c <= 0xe0fff:
		return true
	}
	return unicode.Is(unicode.Co, c) && c > 0xffff
}

// oneLine is for names, which may hold ends of lines.
var oneLine = strings.NewReplacer("\n", "␊", "\t", "␉")

// label is a short piece of hostile text, such as a name in a sentence.
func label(s string) string {
	const most = 300
	shown, _ := visible(s)
	shown = oneLine.Replace(shown)
	if len(shown) > most {
		shown = shown[:wholeRunes([]byte(shown[:most]))] + "…"
	}
	return shown
}

// excerpt keeps the beginning and the end of what is written to it, and counts
// the rest: a command's errors stand at its end, and what it began with says
// what it was. It never holds more than twice what it keeps.
type excerpt struct {
	most    int
	head    []byte
	tail    []byte
	written int64
}

func newExcerpt(most int) *excerpt { return &excerpt{most: most} }

func (e *excerpt) Write(p []byte) (int, error) {
	n := len(p)
	e.written += int64(n)
	if room := e.most/2 - len(e.head); room > 0 {
		take := min(room, len(p))
		e.head = append(e.head, p[:take]...)
		p = p[take:]
	}
	keep := e.most - e.most/2
	if len(p) >= keep {
		e.tail = append(e.tail[:0], p[len(p)-keep:]...)
		return n, nil
	}
	if e.tail = append(e.tail, p...); len(e.tail) > 2*keep {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-keep:]...)
	}
	return n, nil
}

// shown is a stream of a command as a result shows it.
type shown struct {
	text string
	// omitted are the bytes of the whole stream that are not in it.
	omitted int64
	altered bool
}

// show cuts between characters, and says in the text how much is missing where.
// total is what was written before anything was lost: what is more than came here
// was not kept by the platform, and was written after what is shown.
func (e *excerpt) show(total int64) shown {
	head, tail := e.head, e.tail
	if keep := e.most - e.most/2; len(tail) > keep {
		tail = tail[len(tail)-keep:]
	}
	if e.written > int64(len(head)+len(tail)) {
		head = head[:wholeRunes(head)]
		tail = tail[len(tail)-wholeStart(tail):]
	}
	lost := max(0, total-e.written)
	if lost > 0 { // the platform cut it where it was full
		part := 0
		if len(tail) > 0 {
			part = len(tail) - wholeRunes(tail)
			tail = tail[:len(tail)-part]
		} else {
			part = len(head) - wholeRunes(head)
			head = head[:len(head)-part]
		}
		lost += int64(part)
		total = e.written - int64(part)
	} else {
		total = e.written
	}
	cut := total - int64(len(head)+len(tail))
	var out shown
	if cut > 0 {
		out.text, out.altered = visible(string(head))
		end, altered := visible(string(tail))
		out.altered = out.altered || altered
		out.text += fmt.Sprintf("\n[… %d bytes left out …]\n", cut) + end
	} else {
		out.text, out.altered = visible(string(head) + string(tail))
	}
	if lost > 0 {
		out.text += fmt.Sprintf("\n[… %d bytes that came after this were not kept …]\n", lost)
	}
	out.omitted = cut + lost
	return out
}

// wholeRunes is how much of b ends with a whole character; bytes that are no
// beginning of one are left to others.
func wholeRunes(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		if at := len(b) - back; utf8.RuneStart(b[at]) {
			if !utf8.FullRune(b[at:]) {
				return at
			}
			break
		}
	}
	return len(b)
}

// wholeStart is how much of b is left without the rest of a character that began
// before it.
func wholeStart(b []byte) int {
	for n := range min(utf8.UTFMax-1, len(b)) {
		if utf8.RuneStart(b[n]) {
			return len(b) - n
		}
	}
	return len(b) // no character is that long: it is something else
}
