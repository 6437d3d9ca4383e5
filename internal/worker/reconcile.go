package worker

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

// batch is how much of the record is looked at in one call.
const batch = 100

// sweepLoop looks, from time to time, at everything that may have been left:
// it works from what there is, and not from what this process remembers. Any
// number of workers may do so at once.
func (w *Worker) sweepLoop(ctx context.Context) {
	for ctx.Err() == nil {
		for what, look := range map[string]func(context.Context) error{
			"sweep sandboxes":         w.sweepSandboxes,
			"remove jobs of old":      w.removeExpired,
			"remove uploads of old":   w.removeUploads,
			"sign jobs left unsigned": w.sign,
		} {
			if err := look(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("cannot "+what+"; trying again later", "error", err)
			}
		}
		pause(ctx, w.cfg.Sweep)
	}
}

// sweepSandboxes removes sandboxes of attempts that are over.
func (w *Worker) sweepSandboxes(ctx context.Context) error {
	var errs []error
	for _, n := range w.nodes.all {
		conn, err := w.nodes.dial(ctx, n)
		if err != nil {
			// Its sandboxes are swept when it is back; that it is away is
			// said when jobs are claimed.
			continue
		}
		if err := w.sweepNode(ctx, n.Name, conn); err != nil {
			errs = append(errs, err)
		}
		conn.Close()
	}
	return errors.Join(errs...)
}

// sweepNode lists the sandboxes first and asks the record second. A sandbox is
// made only for an active attempt, and one that has ended never comes back: so
// what is in the list and not active then is needed by nobody.
func (w *Worker) sweepNode(ctx context.Context, node string, conn Connection) error {
	list, err := conn.List(ctx)
	if err != nil {
		return err
	}
	found := map[store.Attempt]string{}
	for _, info := range list {
		if a, ok := attemptOf(info); ok {
			found[a] = info.ID
		}
	}
	if len(found) == 0 {
		return nil
	}
	of := make([]store.Attempt, 0, len(found))
	for a := range found {
		of = append(of, a)
	}
	active, err := w.deps.Store.ActiveAttempts(ctx, of)
	if err != nil {
		return err
	}
	var errs []error
	for a, id := range found {
		if active[a] {
			continue
		}
		if err := conn.Destroy(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		w.log.Info("removed a sandbox whose job had ended or moved on", "sandbox", id, "node", node)
	}
	return errors.Join(errs...)
}

// attemptOf is whose sandbox it is. Those that do not say so in every way are
// not a worker's, and are left alone.
func attemptOf(info execenv.Info) (store.Attempt, bool) {
	n, err := strconv.Atoi(info.Labels[labelAttempt])
	a := store.Attempt{JobID: info.Labels[labelJob], Attempt: n}
	return a, err == nil && info.Labels[labelSandbox] == "true" && info.ID == sandboxID(a.JobID, a.Attempt)
}

// signLoop signs jobs soon after they end, and once more when all have ended.
func (w *Worker) signLoop(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.unsigned:
			if err := w.sign(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("cannot sign receipts; trying again later", "error", err)
			}
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := w.sign(last); err != nil {
		w.log.Warn("cannot sign receipts; another worker will", "error", err)
	}
}

// sign makes the receipts of terminal jobs that have none, from the record.
func (w *Worker) sign(ctx context.Context) error {
	if w.deps.Signer == nil {
		return nil
	}
	for {
		jobs, err := w.deps.Store.Unsigned(ctx, batch)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			artifacts, err := w.deps.Store.ArtifactsOf(ctx, job.ID)
			if err != nil {
				return err
			}
			receipt, err := w.deps.Signer.Sign(job, artifacts)
			if err != nil {
				return err
			}
			if err := w.deps.Store.SignJob(ctx, job.ID, receipt); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
		}
		if len(jobs) < batch {
			return nil
		}
	}
}

// removeExpired removes old jobs: their bytes first, then their record.
func (w *Worker) removeExpired(ctx context.Context) error {
	if w.cfg.Retention == 0 {
		return nil
	}
	for {
		jobs, err := w.deps.Store.Expired(ctx, time.Now().Add(-w.cfg.Retention), batch)
		if err != nil {
			return err
		}
		for _, job := range jobs {
			if err := w.deps.Blobs.DeletePrefix(ctx, blobPrefix(job.ID)); err != nil {
				return err
			}
			if err := w.deps.Store.DeleteJob(ctx, job.ID); err != nil {
				return err
			}
		}
		if len(jobs) < batch {
			return nil
		}
	}
}

// removeUploads removes uploads that no job needs: their bytes first.
func (w *Worker) removeUploads(ctx context.Context) error {
	if w.cfg.UploadRetention == 0 {
		return nil
	}
	for {
		uploads, err := w.deps.Store.StaleUploads(ctx, time.Now().Add(-w.cfg.UploadRetention), batch)
		if err != nil {
			return err
		}
		for _, u := range uploads {
			if err := w.deps.Blobs.Delete(ctx, u.Key); err != nil {
				return err
			}
			if err := w.deps.Store.DeleteUpload(ctx, u.ID); err != nil {
				return err
			}
		}
		if len(uploads) < batch {
			return nil
		}
	}
}
