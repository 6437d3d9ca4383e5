package checkout

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// telling is how many bytes in a row of a form of a secret are taken for it: a
// piece of that length is found wherever the rest is.
const telling = 16

type gram [telling]byte

// needles are all pieces of all forms of secrets.
type needles struct {
	pieces map[gram]string
	begins [1 << 16]bool // the first two bytes of a piece
}

func newNeedles() *needles { return &needles{pieces: map[gram]string{}} }

// add adds a secret in the forms in which it could lie around. What steers a
// search past it, such as line breaks and percent signs, is taken out of the
// data instead: see views.
func (n *needles) add(name, secret string) {
	n.form(name, secret)
	n.form(name+", in lower case", strings.ToLower(secret))
	n.form(name+", in upper case", strings.ToUpper(secret))
	reversed := []byte(secret)
	slices.Reverse(reversed)
	n.form(name+", backwards", string(reversed))
	n.form(name+", in hexadecimal", hex.EncodeToString([]byte(secret)))
	n.form(name+", in hexadecimal", strings.ToUpper(hex.EncodeToString([]byte(secret))))
	// What stands before it, such as the user of a header, shifts the letters.
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString(append(make([]byte, before), secret...))
			n.form(name+", in base64", text[(before*8+5)/6:len(text)-1])
		}
	}
}

func (n *needles) form(name, form string) {
	for i := 0; i+telling <= len(form); i++ {
		n.pieces[gram([]byte(form[i:i+telling]))] = name
		n.begins[uint16(form[i])<<8|uint16(form[i+1])] = true
	}
}

// in names the forms of which there is a piece in the data.
func (n *needles) in(data []byte) (found []string) {
	seen := map[string]bool{}
	for _, view := range views(data) {
		for i := 0; i+telling <= len(view); i++ {
			if !n.begins[uint16(view[i])<<8|uint16(view[i+1])] {
				continue
			}
			if name, ok := n.pieces[gram(view[i:i+telling])]; ok && !seen[name] {
				seen[name] = true
				found = append(found, name)
			}
		}
	}
	return found
}

// views are ways to read the data: as it is, without what URLs encode, and each
// without all that lines, quotes and chunks are made with.
func views(data []byte) [][]byte {
	all := [][]byte{data}
	for decoded := data; len(all) < 3; { // encoded twice at most
		next := unpercent(decoded)
		if len(next) == len(decoded) {
			break
		}
		all, decoded = append(all, next), next
	}
	for _, view := range all {
		all = append(all, squeeze(view))
	}
	return all
}

func unpercent(data []byte) []byte {
	if bytes.IndexByte(data, '%') < 0 {
		return data
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		var b [1]byte
		if data[i] == '%' && i+2 < len(data) {
			if _, err := hex.Decode(b[:], data[i+1:i+3]); err == nil {
				out = append(out, b[0])
				i += 2
				continue
			}
		}
		out = append(out, data[i])
	}
	return out
}

// written are the bytes that secrets and their forms are written with.
var written = func() (is [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+/") {
		is[c] = true
	}
	return is
}()

// squeeze leaves those.
func squeeze(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for _, c := range data {
		if written[c] {
			out = append(out, c)
		}
	}
	return out
}

// TestTheSearchFindsEveryForm is the control of what is looked for.
func TestTheSearchFindsEveryForm(t *testing.T) {
	secret := "ghs_" + rand.Text() + rand.Text()
	n := newNeedles()
	n.add("a token", secret)
	split := func(every int, with string) string {
		return strings.Join(slices.Collect(func(yield func(string) bool) {
			for chunk := range slices.Chunk([]byte(secret), every) {
				if !yield(string(chunk)) {
					return
				}
			}
		}), with)
	}
	percent := func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%%%02x", c)
		}
		return b.String()
	}
	reversed := []byte(secret)
	slices.Reverse(reversed)
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + secret))
	for name, text := range map[string]string{
		"as it is":                  secret,
		"a piece":                   secret[20:40],
		"in lower case":             strings.ToLower(secret),
		"in upper case":             strings.ToUpper(secret),
		"backwards":                 string(reversed),
		"in hexadecimal":            hex.EncodeToString([]byte(secret)),
		"as a dump":                 fmt.Sprintf("% X", secret),
		"as a header":               "Authorization: Basic " + basic,
		"as a header, encoded":      url.QueryEscape("Basic " + basic),
		"in base64 of a URL":        base64.URLEncoding.EncodeToString([]byte("https://x:" + secret + "@host/")),
		"percent-encoded":           percent(secret),
		"percent-encoded in part":   secret[:10] + percent(secret[10:12]) + secret[12:],
		"percent-encoded, capitals": strings.ToUpper(percent(secret)),
		"percent-encoded twice":     url.QueryEscape(percent(secret)),
		"over lines":                split(8, "\n"),
		"over lines of mail":        split(12, "=\r\n"),
		"over chunks":               split(5, `","`),
		"over chunks with NUL":      split(3, "\x00"),
		"each byte on its own":      split(1, " "),
		"percent-encoded, in lines": strings.ReplaceAll(percent(secret), "%6", "\n%6"),
		"base64 in lines":           basic[:30] + "\n" + basic[30:],
		"as 16-bit text":            split(1, "\x00"),
	} {
		if len(n.in([]byte("before "+text+" after"))) == 0 {
			t.Errorf("%s it is not found: %q", name, text)
		}
	}
	for _, other := range []string{"", secret[:telling-1], "x-access-token:", rand.Text() + rand.Text(), "ghs_" + rand.Text()} {
		if found := n.in([]byte(other)); len(found) > 0 {
			t.Errorf("in %q it finds %q", other, found)
		}
	}
}
