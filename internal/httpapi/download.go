package httpapi

import (
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// disposition names a file that a program in a sandbox has named. The plain
// name is what is left of it in ASCII, and the other one is all of it (RFC 6266).
func disposition(name string) string {
	base := path.Base(name)
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\/%;`, r) {
			return '_'
		}
		return r
	}, base)
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + strings.ReplaceAll(url.QueryEscape(base), "+", "%20")
}

// reprDigest is the field of RFC 9530.
func reprDigest(sha256Hex string) (string, error) {
	sum, err := hex.DecodeString(sha256Hex)
	if err != nil {
		return "", err
	}
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum) + ":", nil
}

// pieceBytes is how much is written at a time, so that a client that is slow,
// and not gone, gets a new deadline often enough.
const pieceBytes = 16 << 10

// steadyWriter writes with a deadline for each piece.
func steadyWriter(w http.ResponseWriter, stall time.Duration) io.Writer {
	return &pieces{w: w, conn: http.NewResponseController(w), stall: stall}
}

type pieces struct {
	w     io.Writer
	conn  *http.ResponseController
	stall time.Duration
}

func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		piece := b[:min(len(b), pieceBytes)]
		if err := ignoreUnsupported(p.conn.SetWriteDeadline(time.Now().Add(p.stall))); err != nil {
			return n, err
		}
		written, err := p.w.Write(piece)
		n += written
		if err != nil {
			return n, err
		}
		b = b[len(piece):]
	}
	return n, nil
}
