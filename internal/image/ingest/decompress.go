package ingest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/agentdock/agentdock/internal/fault"
)

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// maxWindow bounds the memory a zstd stream can make us use; it is what the
// zstd program itself accepts by default.
const maxWindow = 128 << 20

// decompress looks at the first bytes, because what archives and registries
// say about compression is not always so.
func decompress(r io.Reader) (io.ReadCloser, error) {
	src := &source{r: r}
	buffered := bufio.NewReaderSize(src, 64<<10)
	head, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		zr, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, src.blame(err)
		}
		return &decompressor{r: zr, src: src, close: func() { _ = zr.Close() }}, nil
	case bytes.HasPrefix(head, zstdMagic):
		zr, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, src.blame(err)
		}
		return &decompressor{r: zr, src: src, close: zr.Close}, nil
	}
	return io.NopCloser(buffered), nil
}

// source remembers whether reading failed, to tell a broken connection from
// broken data.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (s *source) blame(err error) error {
	switch {
	case s.err != nil:
		return s.err
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return err
	}
	return fault.Wrap(fault.Invalid, err, "its compressed data is damaged")
}

type decompressor struct {
	r     io.Reader
	src   *source
	close func()
}

func (d *decompressor) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err != nil {
		err = d.src.blame(err)
	}
	return n, err
}

func (d *decompressor) Close() error {
	d.close()
	return nil
}
