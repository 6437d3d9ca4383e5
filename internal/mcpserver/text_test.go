package mcpserver

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestHostileTextIsVisible(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		altered  bool
	}{
		"plain":             {"a\tb\nç世🚀", "a\tb\nç世🚀", false},
		"an escape":         {"\x1b]0;title\x07\x1b[2J", "␛]0;title␇␛[2J", true},
		"carriage return":   {"good\rbad", "good␍bad", true},
		"NUL and DEL":       {"\x00\x7f", "␀␡", true},
		"C1":                {"a\u009b2Jb", "a\uFFFD2Jb", true},
		"not UTF-8":         {"a\xffb", "a\uFFFDb", true},
		"reordered":         {"a\u202eb", "a\uFFFDb", true},
		"tags":              {"a\U000e0041b", "a\uFFFDb", true},
		"a joined emoji":    {"👩\u200d💻", "👩\u200d💻", false},
		"a replacement one": {"\uFFFD", "\uFFFD", false},
	} {
		if got, altered := visible(c.in); got != c.want || altered != c.altered {
			t.Errorf("%s: %q, %v", name, got, altered)
		}
	}
}

func TestLabelsAreOneShortLine(t *testing.T) {
	got := label("a\nb\x1b" + strings.Repeat("世", 1000))
	if !strings.HasPrefix(got, "a␊b␛世") || len(got) > 310 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("%q", got)
	}
}

// TestExcerptsAddUp: whatever the pieces in which output comes, head, tail and
// what is said to be left out are all of it, and no character is cut.
func TestExcerptsAddUp(t *testing.T) {
	text := strings.Repeat("0aé世🚀", 2000)
	for _, most := range []int{8, 9, 13, 64, 1000, len(text) - 1, len(text), len(text) + 1} {
		for _, piece := range []int{1, 3, 100, len(text)} {
			e := newExcerpt(most)
			for rest := []byte(text); len(rest) > 0; {
				n := min(piece, len(rest))
				if wrote, err := e.Write(rest[:n]); wrote != n || err != nil {
					t.Fatal(wrote, err)
				}
				rest = rest[n:]
			}
			if len(e.head)+len(e.tail) > 2*most+2 {
				t.Fatalf("of %d it holds %d", most, len(e.head)+len(e.tail))
			}
			got := e.show(int64(len(text)))
			if got.altered {
				t.Errorf("most %d, pieces of %d: a character was cut: %q", most, piece, got.text)
			}
			if most >= len(text) {
				if got.text != text || got.omitted != 0 {
					t.Errorf("most %d: it does not show all", most)
				}
				continue
			}
			head, rest, _ := strings.Cut(got.text, "\n[… ")
			_, tail, found := strings.Cut(rest, " bytes left out …]\n")
			if !found || !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) ||
				int64(len(head)+len(tail))+got.omitted != int64(len(text)) || len(head)+len(tail) > most {
				t.Errorf("most %d, pieces of %d: %d bytes and %d omitted", most, piece, len(head)+len(tail), got.omitted)
			}
		}
	}
}

func TestExcerptsSayWhatThePlatformDropped(t *testing.T) {
	e := newExcerpt(100)
	_, _ = e.Write([]byte("kept"))
	if got := e.show(1004); got.omitted != 1000 || !strings.HasPrefix(got.text, "kept\n[… 1000 bytes that came after this") {
		t.Errorf("%+v", got)
	}
	// The platform cuts anywhere, also in a character.
	for _, most := range []int{100, 8} {
		e = newExcerpt(most)
		_, _ = e.Write([]byte("0123世世"[:9]))
		if got := e.show(10); got.altered || !strings.Contains(got.text, "\n[… 3 bytes that came after this") || got.omitted < 3 {
			t.Errorf("most %d: %+v", most, got)
		}
	}
	e = newExcerpt(100)
	_, _ = e.Write([]byte(strings.Repeat("\x80", 200)))
	if got := e.show(200); got.omitted != 100 || !got.altered {
		t.Errorf("bytes that begin no character: %d omitted", got.omitted)
	}
}
