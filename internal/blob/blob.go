// Package blob is the port behind which the bytes of artifacts and uploads are
// kept. Every numbered sentence has a case in blobtest.
//
//   - B1. Put keeps what it read, whole or not at all: when it fails, or its
//     reader does or gives another number of bytes than was said, Open does not
//     find the key (or finds what was there before).
//   - B2. Put of a key that exists replaces it.
//   - B3. Open of an unknown key fails with NotFound. What is read is what was
//     put, or an error; never a part without one.
//   - B4. Delete is idempotent; deleting an unknown key is not an error.
//   - B5. DeletePrefix deletes every key below a prefix that ends with "/".
//   - B6. Keys are made by us: one or more names of a-z, A-Z, 0-9, ".", "_" and
//     "-", with "/" between them, none of them "." or ".."; a name has 200 bytes
//     at most, a key 512. Others fail with Invalid. Who has put "a/b" does not
//     put "a" as well: many an S3 server cannot keep both.
//   - B7. When the storage is away or full, calls fail with Unavailable or
//     Exhausted and leave nothing behind; they work again when it is back.
//   - B8. Memory does not grow with the size of a blob.
package blob

import (
	"context"
	"io"
)

// Info says what is kept under a key.
type Info struct {
	Key   string
	Bytes int64
}

// Store keeps blobs.
type Store interface {
	// Put reads r to its end. size is its length, or -1 when that is not known.
	Put(ctx context.Context, key string, r io.Reader, size int64) (Info, error)
	Open(ctx context.Context, key string) (io.ReadCloser, Info, error)
	Delete(ctx context.Context, key string) error
	DeletePrefix(ctx context.Context, prefix string) error
	// Ping reports whether the storage can be used now.
	Ping(ctx context.Context) error
}
