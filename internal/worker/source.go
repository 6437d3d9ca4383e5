package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/agentdock/agentdock/fixtures"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/dirpack"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// putFiles puts the job's source into the workspace.
func (j *job) putFiles(ctx context.Context) *verdict {
	switch src := j.Spec.Source; src.Kind {
	case run.SourceNone, "":
		return nil
	case run.SourceFixture:
		return j.put(ctx, func(ctx context.Context, w io.Writer) error { return dirpack.PackFS(ctx, fixtures.SampleRepo(), w) })
	case run.SourceArchive:
		return j.putArchive(ctx, src.Upload)
	case run.SourceRepository:
		return j.putRepository(ctx, src)
	default:
		return failed(run.PolicyDenied, "the job's source is of kind %q, which this version does not know", src.Kind)
	}
}

func (j *job) putArchive(ctx context.Context, id string) *verdict {
	var up store.Upload
	var unknown error
	if v := j.record(ctx, "look up the job's archive", func(ctx context.Context) (err error) {
		up, err = j.w.deps.Store.Upload(ctx, j.TenantID, id)
		if fault.Is(err, fault.NotFound) {
			unknown, err = err, nil
		}
		return err
	}); v != nil {
		return v
	}
	if unknown != nil || !up.Complete {
		return failed(run.CheckoutFailed, "upload %s does not exist or is not complete", id)
	}
	r, v := j.openUpload(ctx, up)
	if v != nil {
		return v
	}
	defer r.Close()
	return j.put(ctx, func(_ context.Context, w io.Writer) error { return copyChecked(w, r, up.SHA256) })
}

// openUpload waits while the object store is away: the job would only be queued
// again, and how often that is done is bounded.
func (j *job) openUpload(ctx context.Context, up store.Upload) (io.ReadCloser, *verdict) {
	until := time.Now().Add(j.w.cfg.Patience)
	var wait backoff
	for {
		r, _, err := j.w.deps.Blobs.Open(ctx, up.Key)
		switch {
		case err == nil:
			return r, nil
		case fault.Is(err, fault.NotFound):
			return nil, failed(run.CheckoutFailed, "the bytes of upload %s do not exist", up.ID)
		case !fault.Is(err, fault.Unavailable), time.Now().After(until), ctx.Err() != nil:
			return nil, j.startFailed(ctx, err)
		}
		j.log.Warn("cannot read the job's archive; trying again", "error", err)
		wait.pause(ctx)
	}
}

// copyChecked fails at the end if what was copied is not what was uploaded. The
// unpacker waits for the end, so it never takes such an archive for whole.
func copyChecked(w io.Writer, r io.Reader, want string) error {
	sum := sha256.New()
	if _, err := io.Copy(w, io.TeeReader(r, sum)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fault.New(fault.Invalid, "the archive is not the one that was uploaded: its SHA-256 is %s and was %s", got, want)
	}
	return nil
}

func (j *job) putRepository(ctx context.Context, src run.Source) *verdict {
	if j.w.deps.Repositories == nil {
		return failed(run.CheckoutFailed, "this worker cannot fetch repositories; upload an archive")
	}
	got, err := j.w.deps.Repositories.Into(ctx, j.sandbox, checkout.Request{
		Repository: src.Repository, Ref: src.Ref, Depth: src.Depth, MaxBytes: j.spec().Limits.DiskBytes, AppReads: j.tenant.Grants.Reads,
	})
	var left *githubapp.Unrevoked
	if errors.As(err, &left) {
		// Also where nobody asks any more why the job ended.
		j.log.Warn("a token lives on", "until", left.Until, "error", left)
	}
	var why *reason.Error
	switch {
	case err == nil:
		j.resolved.Commit = got.Commit
		return nil
	case ctx.Err() != nil:
		return j.interrupted(ctx)
	case errors.As(err, &why):
		j.log.Warn("cannot check out the repository", "reason", why.Code, "error", err)
		return failed(run.CheckoutFailed, "%s: %s", why.Code, fault.Public(err))
	case fault.Is(err, fault.Invalid):
		return failed(run.CheckoutFailed, "cannot fetch the repository: %s", fault.Public(err))
	}
	return again(fmt.Errorf("cannot get the repository into the sandbox: %w", err))
}

var errNotTaken = errors.New("the sandbox takes no more")

// put streams an archive into the workspace and notes its digest.
func (j *job) put(ctx context.Context, pack func(context.Context, io.Writer) error) *verdict {
	r, w := io.Pipe()
	sum := sha256.New()
	packed := make(chan error, 1)
	go func() {
		err := pack(ctx, io.MultiWriter(w, sum))
		w.CloseWithError(err) // nil is the end of the archive
		packed <- err
	}()
	putErr := j.sandbox.PutArchive(ctx, "", r)
	r.CloseWithError(errNotTaken) // so that the packer ends, whatever it does
	packErr := <-packed
	if packErr != nil && !errors.Is(packErr, errNotTaken) {
		// It knows why.
		return j.filesFailed(ctx, packErr)
	}
	if putErr != nil {
		return j.filesFailed(ctx, putErr)
	}
	j.resolved.ArchiveDigest = digest(sum)
	return nil
}

func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// filesFailed tells what is wrong with the files from what is wrong with us.
func (j *job) filesFailed(ctx context.Context, err error) *verdict {
	if ctx.Err() != nil {
		return j.interrupted(ctx)
	}
	switch fault.CodeOf(err) {
	case fault.Invalid, fault.Denied, fault.Unsupported:
		return failed(run.CheckoutFailed, "cannot unpack the files: %s", fault.Public(err))
	case fault.Exhausted:
		return failed(run.CheckoutFailed, "the files do not fit into the workspace: %s", fault.Public(err))
	}
	return again(fmt.Errorf("cannot put the files into the sandbox: %w", err))
}
