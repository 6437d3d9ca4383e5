package checkout

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
)

// packObject is an object as it stands in a pack.
type packObject struct {
	kind    byte
	size    int    // of data
	prefix  []byte // what stands before the data: the base of a delta
	content io.Reader
}

const (
	kindCommit   = 1
	kindTree     = 2
	kindBlob     = 3
	kindRefDelta = 7
)

// packOf makes a pack of objects, and of none.
func packOf(objects ...packObject) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, uint32(len(objects))}) // does not fail on a buffer
	for _, o := range objects {
		head := o.kind<<4 | byte(o.size&0xf)
		for rest := o.size >> 4; ; rest >>= 7 {
			if rest == 0 {
				b.WriteByte(head)
				break
			}
			b.WriteByte(head | 0x80)
			head = byte(rest & 0x7f)
		}
		b.Write(o.prefix)
		z, _ := zlib.NewWriterLevel(&b, zlib.BestSpeed) // the level exists
		_, _ = io.Copy(z, o.content)                    // neither fails on a buffer
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// deltaBomb is a blob of 16 MiB of zeros and a delta that repeats it 64 times.
func deltaBomb() []byte {
	base := make([]byte, 16<<20-1)
	sum := sha1.Sum(append([]byte("blob 16777215\x00"), base...))
	varint := func(n int) (b []byte) {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
	delta := append(varint(len(base)), varint(64*len(base))...)
	for range 64 {
		delta = append(delta, 0xf0, 0xff, 0xff, 0xff) // copy 0xffffff bytes from the beginning
	}
	return packOf(
		packObject{kind: kindBlob, size: len(base), content: bytes.NewReader(base)},
		packObject{kind: kindRefDelta, size: len(delta), prefix: sum[:], content: bytes.NewReader(delta)},
	)
}

// bigBlob is a commit of one file of that many bytes, and the pack with it.
func bigBlob(r *checkouttest.Repo, size int64) (pack []byte) {
	sum := sha1.New()
	fmt.Fprintf(sum, "blob %d\x00", size)
	_, _ = io.Copy(sum, io.LimitReader(same{}, size)) // a hash does not fail
	name := []byte("big")
	tree := append([]byte("100644 "+string(name)+"\x00"), sum.Sum(nil)...)
	commit := []byte("tree " + r.Raw("tree", tree) + "\nauthor A <a@example.com> 1700000000 +0000\ncommitter A <a@example.com> 1700000000 +0000\n\nBig\n")
	r.Git("update-ref", "refs/heads/main", r.Raw("commit", commit))
	return packOf(
		packObject{kind: kindCommit, size: len(commit), content: bytes.NewReader(commit)},
		packObject{kind: kindTree, size: len(tree), content: bytes.NewReader(tree)},
		packObject{kind: kindBlob, size: int(size), content: io.LimitReader(same{}, size)},
	)
}

// same is one byte, again and again; not zero, of which git makes holes.
type same struct{}

func (same) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// noise does not get smaller by packing.
func noise(n int) string {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b) // never fails
	return string(b)
}
