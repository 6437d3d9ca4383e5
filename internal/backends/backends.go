// Package backends opens what the API and the workers share when they are
// processes of their own: the record, the queue and the object store that their
// settings name.
package backends

import (
	"context"
	"errors"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/blob/s3"
	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/queue/redis"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/postgres"
)

// Backends is what was opened.
type Backends struct {
	Store store.Store
	Queue queue.Queue
	Blobs blob.Store
}

// Open connects to all of them, or leaves nothing open.
func Open(ctx context.Context, r settings.Record) (*Backends, error) {
	b, err := OpenRecord(ctx, r)
	if err != nil {
		return nil, err
	}
	if b.Queue, err = redis.Open(r.RedisURL.Reveal()); err == nil {
		b.Blobs, err = blobs(r)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// OpenRecord connects to the record and nothing else. Whoever works on it by hand
// may be root, and a directory of artifacts that root makes is closed to the
// service.
func OpenRecord(ctx context.Context, r settings.Record) (*Backends, error) {
	record, err := postgres.Open(ctx, r.DatabaseURL.Reveal())
	if err != nil {
		return nil, err
	}
	return &Backends{Store: record}, nil
}

func blobs(r settings.Record) (blob.Store, error) {
	if r.S3Bucket == "" {
		return dir.New(r.ArtifactDir)
	}
	return s3.New(s3.Config{
		Endpoint: r.S3Endpoint, Region: r.S3Region, Bucket: r.S3Bucket,
		AccessKey: r.S3AccessKeyID.Reveal(), SecretKey: r.S3SecretAccessKey.Reveal(),
	})
}

// Close gives back what is open.
func (b *Backends) Close() error {
	var errs []error
	if b.Queue != nil {
		errs = append(errs, b.Queue.Close())
	}
	if b.Store != nil {
		errs = append(errs, b.Store.Close())
	}
	return errors.Join(errs...)
}
