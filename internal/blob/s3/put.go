package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/minio/minio-go/v7"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/fault"
)

// contentType keeps a browser that meets an object by itself from showing it.
const contentType = "application/octet-stream"

// Put sends a blob of one part with one request, and others part by part; they
// become visible with the last request.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := blob.ValidateKey(key); err != nil {
		return blob.Info{}, err
	}
	buf, ok := s.buffers.Get().(*[]byte)
	if !ok {
		return blob.Info{}, fault.New(fault.Internal, "cannot get memory for blob %s", key)
	}
	defer s.buffers.Put(buf)
	in := &source{ctx: ctx, r: r, size: size, buf: *buf}
	first, last, err := in.part()
	switch {
	case err == nil && last:
		err = s.putWhole(ctx, key, first)
	case err == nil:
		err = s.putParts(ctx, key, in, first)
	}
	var reading *readError
	switch {
	case errors.As(err, &reading):
		return blob.Info{}, fmt.Errorf("cannot read what blob %s is to hold: %w", key, reading.cause)
	case errors.Is(err, errSize):
		return blob.Info{}, fault.New(fault.Invalid, "cannot keep blob %s: it was to have %d bytes and has another number", key, size)
	case err != nil:
		return blob.Info{}, storageError(err, "cannot keep blob %s", key)
	}
	return blob.Info{Key: key, Bytes: in.read}, nil
}

func (s *Store) putWhole(ctx context.Context, key string, data []byte) error {
	return again(func() error {
		_, err := s.core.PutObject(ctx, s.bucket, s.prefix+key, bytes.NewReader(data), int64(len(data)), "", "",
			minio.PutObjectOptions{ContentType: contentType})
		return err
	})
}

// again repeats a request that a gateway to a file system refuses while it
// removes a directory that has become empty: it sees its own directory in the
// way. Keys never begin one another (B6), so it can mean nothing else.
func again(request func() error) (err error) {
	for range 10 {
		if err = request(); err == nil || minio.ToErrorResponse(err).Code != "ExistingObjectIsDirectory" {
			return err
		}
	}
	return err
}

func (s *Store) putParts(ctx context.Context, key string, in *source, part []byte) (err error) {
	name := s.prefix + key
	id, err := s.core.NewMultipartUpload(ctx, s.bucket, name, minio.PutObjectOptions{ContentType: contentType})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortFor)
		defer cancel()
		// If this fails, the parts are left until the key or its prefix is
		// deleted.
		_ = s.core.AbortMultipartUpload(undo, s.bucket, name, id)
	}()
	var parts []minio.CompletePart
	for last := false; ; {
		number := len(parts) + 1
		if number > maxParts {
			return fault.New(fault.Exhausted, "cannot keep blob %s: it has more than %d parts", key, maxParts)
		}
		sent, err := s.core.PutObjectPart(ctx, s.bucket, name, id, number, bytes.NewReader(part), int64(len(part)), minio.PutObjectPartOptions{})
		if err != nil {
			return err
		}
		parts = append(parts, minio.CompletePart{PartNumber: number, ETag: sent.ETag})
		if last {
			break
		}
		if part, last, err = in.part(); err != nil {
			return err
		}
		if len(part) == 0 {
			break
		}
	}
	return again(func() error {
		_, err := s.core.CompleteMultipartUpload(ctx, s.bucket, name, id, parts, minio.PutObjectOptions{ContentType: contentType})
		return err
	})
}

var errSize = errors.New("another number of bytes than was said")

// readError is a failure of the reader, not of the storage.
type readError struct{ cause error }

func (e *readError) Error() string { return e.cause.Error() }

// source cuts what a reader gives into parts.
type source struct {
	ctx  context.Context
	r    io.Reader
	size int64 // or -1
	read int64
	buf  []byte
}

// part reads the next part, which is valid until the one after it; last says
// that the reader has ended, and with the size that was said.
func (s *source) part() (p []byte, last bool, err error) {
	n := 0
	for n < len(s.buf) && !last {
		if err := s.ctx.Err(); err != nil {
			return nil, false, &readError{err}
		}
		m, err := s.r.Read(s.buf[n:])
		n += m
		s.read += int64(m)
		switch {
		case errors.Is(err, io.EOF):
			last = true
		case err != nil:
			return nil, false, &readError{err}
		}
	}
	if s.size >= 0 && (s.read > s.size || last && s.read < s.size) {
		return nil, false, errSize
	}
	return s.buf[:n], last, nil
}
