// Package s3 keeps blobs in a bucket of an S3 server (package blob has the
// contract). A blob's key is its object's name, below an optional prefix.
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/fault"
)

// Config says where the bucket is.
type Config struct {
	// Endpoint is an http or https URL without a path.
	Endpoint string
	Region   string
	Bucket   string
	// Prefix comes before every key; it is empty or ends with "/".
	Prefix               string
	AccessKey, SecretKey string
	// PartBytes is how much of a blob is in memory while it is put, and the
	// size of the parts of one that has more; 0 is 16 MiB, which allows blobs
	// of 156 GiB. S3 takes no less than 5 MiB.
	PartBytes int
}

const (
	defaultPartBytes = 16 << 20
	maxParts         = 10_000
	// tries bounds how long a call takes to find out that the server is away.
	tries = 3
	// abortFor bounds the removal of an upload that failed. It does not end
	// with the caller's context.
	abortFor = 30 * time.Second
)

// Store keeps blobs in a bucket.
type Store struct {
	core    minio.Core
	http    *http.Transport
	bucket  string
	prefix  string
	buffers sync.Pool
}

var _ blob.Store = (*Store)(nil)

// New connects to nothing yet: Ping says whether the bucket can be used.
func New(cfg Config) (*Store, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || (u.Path != "" && u.Path != "/") {
		return nil, fault.New(fault.Invalid, "S3 endpoint %q is not an http or https URL without a path", cfg.Endpoint)
	}
	if cfg.Bucket == "" {
		return nil, fault.New(fault.Invalid, "no S3 bucket is named")
	}
	if cfg.Prefix != "" {
		if err := blob.ValidatePrefix(cfg.Prefix); err != nil {
			return nil, err
		}
	}
	if cfg.PartBytes == 0 {
		cfg.PartBytes = defaultPartBytes
	}
	if cfg.PartBytes < 5<<20 {
		return nil, fault.New(fault.Invalid, "S3 parts of %d bytes are smaller than 5 MiB, the least the protocol takes", cfg.PartBytes)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("cannot set up the connection to S3: %w", err)
	}
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	core, err := minio.NewCore(u.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, ""),
		Secure: u.Scheme == "https", Region: cfg.Region, Transport: transport, MaxRetries: tries,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot set up the connection to S3: %w", err)
	}
	s := &Store{core: *core, http: transport, bucket: cfg.Bucket, prefix: cfg.Prefix}
	s.buffers.New = func() any {
		buf := make([]byte, cfg.PartBytes)
		return &buf
	}
	return s, nil
}

// Close gives up connections that nothing uses.
func (s *Store) Close() { s.http.CloseIdleConnections() }

// Open asks for the object once; a connection that breaks while it is read is
// an error of Read.
func (s *Store) Open(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	if err := blob.ValidateKey(key); err != nil {
		return nil, blob.Info{}, err
	}
	r, info, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			return nil, blob.Info{}, fault.New(fault.NotFound, "blob %s does not exist", key)
		}
		return nil, blob.Info{}, storageError(err, "cannot open blob %s", key)
	}
	return &body{ReadCloser: r, key: key, left: info.Size}, blob.Info{Key: key, Bytes: info.Size}, nil
}

// body counts, so that an answer that is cut never looks like its end.
type body struct {
	io.ReadCloser
	key  string
	left int64
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && b.left == 0:
		return n, io.EOF
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, storageError(err, "cannot read blob %s", b.key)
}

// Delete deletes the object, and uploads of it that nobody will finish.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := blob.ValidateKey(key); err != nil {
		return err
	}
	name := s.prefix + key
	if err := s.core.RemoveObject(ctx, s.bucket, name, minio.RemoveObjectOptions{}); err != nil && !isMissing(err) {
		return storageError(err, "cannot delete blob %s", key)
	}
	if err := s.abortUploads(ctx, name, func(object string) bool { return object == name }); err != nil {
		return storageError(err, "cannot delete unfinished uploads of blob %s", key)
	}
	return nil
}

// DeletePrefix deletes page by page what is listed. When it fails, some of it
// may be gone.
func (s *Store) DeletePrefix(ctx context.Context, prefix string) error {
	if err := blob.ValidatePrefix(prefix); err != nil {
		return err
	}
	if err := s.deleteListed(ctx, s.prefix+prefix); err != nil {
		return storageError(err, "cannot delete blobs below %s", prefix)
	}
	if err := s.abortUploads(ctx, s.prefix+prefix, func(string) bool { return true }); err != nil {
		return storageError(err, "cannot delete unfinished uploads below %s", prefix)
	}
	return nil
}

func (s *Store) deleteListed(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing if the deletion fails first
	var listErr error
	objects := make(chan minio.ObjectInfo)
	go func() {
		defer close(objects)
		for o := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
			if o.Err != nil {
				listErr = o.Err
				return
			}
			select {
			case objects <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	var errs []error
	for e := range s.core.RemoveObjects(ctx, s.bucket, objects, minio.RemoveObjectsOptions{}) {
		if !isMissing(e.Err) && len(errs) < 10 {
			errs = append(errs, e.Err)
		}
	}
	cancel()
	for range objects { // until the listing has ended
	}
	return errors.Join(append(errs, listErr)...)
}

// abortUploads removes parts that a process which is gone has left.
func (s *Store) abortUploads(ctx context.Context, prefix string, wanted func(object string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for u := range s.core.ListIncompleteUploads(ctx, s.bucket, prefix, true) {
		if u.Err != nil {
			return u.Err
		}
		if !wanted(u.Key) {
			continue
		}
		if err := s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID); err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// Ping asks whether the bucket is there and whether we may use it.
func (s *Store) Ping(ctx context.Context) error {
	exists, err := s.core.BucketExists(ctx, s.bucket)
	if err != nil {
		return storageError(err, "cannot use S3 bucket %s", s.bucket)
	}
	if !exists {
		return fault.New(fault.Unavailable, "S3 bucket %s does not exist; create it", s.bucket)
	}
	return nil
}

func isMissing(err error) bool {
	switch minio.ToErrorResponse(err).Code {
	case minio.NoSuchKey, minio.NoSuchUpload:
		return true
	}
	return false
}

// storageError says what a caller can do about it: free something, or wait
// until the storage is back.
func storageError(err error, format string, args ...any) error {
	res := minio.ToErrorResponse(err)
	switch {
	case res.Code == "QuotaExceeded", res.Code == "XMinioStorageFull", res.Code == "XMinioAdminBucketQuotaExceeded",
		res.StatusCode == http.StatusInsufficientStorage:
		return fault.Wrap(fault.Exhausted, err, format+": the storage is full", args...)
	}
	return fault.Wrap(fault.Unavailable, err, format, args...)
}
