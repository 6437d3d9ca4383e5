package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
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
	return fencePrefix(j.ID, j.hold.lease.Fence) + hex.EncodeToString(sum[:16])
}

// fencePrefix is what the blobs begin with that were kept under one lease.
func fencePrefix(jobID string, fence int64) string {
	return fmt.Sprintf("%s%d/", blobPrefix(jobID), fence)
}

// collect keeps the files that the job names. Commands that failed leave files
// too. That some cannot be kept does not change how the commands ended; what is
// wrong goes on record beside it. The verdict is nil unless the worker must stop.
func (j *job) collect(ctx context.Context) *verdict {
	if len(j.Spec.Artifacts) == 0 || j.sandbox == nil { // it was lost, and with it what it had
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

// collectAll tries again, through a new connection, when one breaks or the
// object store is away: the files are there for as long as the sandbox is.
func (j *job) collectAll(ctx context.Context) (note string, v *verdict) {
	until := time.Now().Add(j.w.cfg.Patience)
	var wait backoff
	for {
		skipped, v, err := j.collectOnce(ctx)
		switch {
		case v != nil:
			return "", v
		case err == nil && skipped > 0:
			return fmt.Sprintf("%d entries that match are links, special files, or have names that are not UTF-8; they were not kept", skipped), nil
		case err == nil || ctx.Err() != nil:
			return "", nil
		}
		for ; err != nil; err = j.reach(ctx) {
			if ctx.Err() != nil {
				return "", nil
			}
			if !fault.Is(err, fault.Unavailable) || time.Now().After(until) {
				return "not all artifacts were kept: " + fault.Public(err), nil
			}
			j.log.Warn("cannot collect artifacts; trying again", "error", err)
			wait.pause(ctx)
			j.disconnect()
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
// record does not take is removed again: another has the job, or there is no
// room for it.
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
	if full == nil && (v == nil || !errors.Is(v.why, errLost)) {
		return v, nil
	}
	drop, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropFor)
	defer cancel()
	return v, errors.Join(full, j.w.deps.Blobs.Delete(drop, key))
}

// dropFor bounds the removal of a blob. What is left then goes with the job.
const dropFor = 30 * time.Second

// dropOthers removes what workers that had the job before have kept and what
// no row names: they died in between, or this one has kept the same file. It
// comes before the end of the job, after which nobody looks for it.
func (j *job) dropOthers(ctx context.Context) {
	if len(j.Spec.Artifacts) == 0 || j.hold.lease.Fence == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dropFor)
	defer cancel()
	artifacts, err := j.w.deps.Store.ArtifactsOf(ctx, j.ID)
	for fence := int64(1); err == nil && fence < j.hold.lease.Fence; fence++ {
		prefix := fencePrefix(j.ID, fence)
		if !slices.ContainsFunc(artifacts, func(a run.Artifact) bool { return strings.HasPrefix(a.Key, prefix) }) {
			err = j.w.deps.Blobs.DeletePrefix(ctx, prefix)
		}
	}
	if err != nil {
		j.log.Warn("cannot remove blobs that no row names; they go with the job", "error", err)
	}
}
