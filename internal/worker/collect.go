package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// blobPrefix is what all blobs of a job begin with. They are deleted by it
// before the job is, so none is left without a record.
func blobPrefix(jobID string) string { return "jobs/" + jobID + "/" }

// artifactKey is where an artifact is kept. The fence is part of it: a worker
// that was paused must not write over what its successor has kept. The path is
// the sandbox's choice, so its digest stands for it.
func (j *job) artifactKey(path string) string {
	sum := sha256.Sum256([]byte(path))
	return fmt.Sprintf("%s%d/%s", blobPrefix(j.ID), j.hold.lease.Fence, hex.EncodeToString(sum[:16]))
}

// collect keeps the files that the job names. Commands that failed leave files
// too. That some cannot be kept does not change how the commands ended; what is
// wrong goes on record beside it. The verdict is nil unless the worker must stop.
func (j *job) collect(ctx context.Context) *verdict {
	if len(j.Spec.Artifacts) == 0 {
		return nil
	}
	call, end := context.WithCancelCause(ctx)
	defer end(nil)
	call, stop := context.WithTimeout(call, j.w.cfg.CollectFor)
	defer stop()
	go func() {
		select {
		case <-j.hold.cancelled:
			end(errCancelled)
		case <-call.Done():
		}
	}()
	note, v := j.collectAll(call)
	switch {
	case v != nil:
		return v
	case ctx.Err() != nil:
		return j.interrupted(ctx)
	case errors.Is(context.Cause(call), errCancelled):
		return cancelled("a caller asked for it; the commands had ended, and their artifacts were being collected")
	case call.Err() != nil:
		note = fmt.Sprintf("not all artifacts were kept: collecting them took longer than %s", j.w.cfg.CollectFor)
	}
	if note == "" {
		return nil
	}
	j.log.Info("artifacts are not complete", "reason", note)
	j.resolved.Artifacts = note
	return j.record(ctx, "record what is wrong with the artifacts", func(ctx context.Context) error {
		return j.w.deps.Store.Resolve(ctx, j.hold.lease, j.resolved)
	})
}

// collectAll tries again through a new connection when one breaks.
func (j *job) collectAll(ctx context.Context) (note string, v *verdict) {
	var wait backoff
	for tries := 1; ; tries++ {
		skipped, v, err := j.collectOnce(ctx)
		switch {
		case v != nil:
			return "", v
		case err == nil && skipped > 0:
			return fmt.Sprintf("%d entries that match are links, special files, or have names that are not UTF-8; they were not kept", skipped), nil
		case err == nil || ctx.Err() != nil:
			return "", nil
		case !fault.Is(err, fault.Unavailable) || tries == 3:
			return "not all artifacts were kept: " + fault.Public(err), nil
		}
		wait.pause(ctx)
		if err := j.reach(ctx); err != nil {
			return "not all artifacts were kept: " + fault.Public(err), nil
		}
	}
}

var errEnough = errors.New("no more of the archive is wanted")

// collectOnce streams the archive out of the sandbox and each file in it into
// the object store, and holds none of them.
func (j *job) collectOnce(ctx context.Context) (skipped int, v *verdict, err error) {
	r, w := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := j.sandbox.GetArchive(ctx, execenv.ArchiveRequest{Patterns: j.Spec.Artifacts, MaxBytes: j.w.cfg.Artifacts.TotalBytes}, w)
		w.CloseWithError(err) // nil is the end of the archive
		got <- err
	}()
	unnamed := 0
	skipped, err = artifact.Scan(r, j.Spec.Artifacts, j.w.cfg.Artifacts, func(f artifact.File, contents io.Reader) error {
		if !utf8.ValidString(f.Path) {
			// Neither the record nor a receipt has words for it.
			unnamed++
			return nil
		}
		var keepErr error
		v, keepErr = j.keep(ctx, f, contents)
		if v != nil {
			return errEnough
		}
		return keepErr
	})
	if err == nil {
		// What follows the end of the archive is padding; the end of the call
		// is what says that the archive was whole.
		_, err = io.Copy(io.Discard, r)
	}
	r.CloseWithError(errEnough)
	if getErr := <-got; getErr != nil && !errors.Is(getErr, errEnough) && v == nil {
		err = getErr // it knows why
	}
	return skipped + unnamed, v, err
}

// keep puts one file into the object store and then on record. One that the
// record does not take is removed again.
func (j *job) keep(ctx context.Context, f artifact.File, contents io.Reader) (*verdict, error) {
	key, sum := j.artifactKey(f.Path), sha256.New()
	if _, err := j.w.deps.Blobs.Put(ctx, key, io.TeeReader(contents, sum), f.Bytes); err != nil {
		return nil, err
	}
	a := run.Artifact{Path: f.Path, Bytes: f.Bytes, SHA256: hex.EncodeToString(sum.Sum(nil)), Key: key}
	var full error
	v := j.record(j.hold.ctx, "record an artifact", func(ctx context.Context) error {
		err := j.w.deps.Store.AddArtifact(ctx, j.hold.lease, a)
		if fault.Is(err, fault.Exhausted) {
			full, err = err, nil
		}
		return err
	})
	if full != nil {
		return v, errors.Join(full, j.w.deps.Blobs.Delete(context.WithoutCancel(ctx), key))
	}
	return v, nil
}
