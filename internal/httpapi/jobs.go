package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// handlers implements the generated interface: what is in a request and in an
// answer, and the one use case in between.
type handlers struct{ *API }

func (h *handlers) caller(ctx context.Context) control.Caller { return exchangeOf(ctx).caller }

func (h *handlers) CreateJob(ctx context.Context, r CreateJobRequestObject) (CreateJobResponseObject, error) {
	spec, err := specOf(*r.Body)
	if err != nil {
		return nil, err
	}
	job, created, err := h.control.Submit(ctx, h.caller(ctx), control.Submission{Spec: spec, IdempotencyKey: r.Params.IdempotencyKey})
	if err != nil {
		return nil, err
	}
	location := "/v1/jobs/" + job.ID
	if !created {
		return CreateJob200JSONResponse{Body: fromJob(job), Headers: CreateJob200ResponseHeaders{Location: location}}, nil
	}
	return CreateJob201JSONResponse{Body: fromJob(job), Headers: CreateJob201ResponseHeaders{Location: location}}, nil
}

func (h *handlers) GetJob(ctx context.Context, r GetJobRequestObject) (GetJobResponseObject, error) {
	job, err := h.control.Job(ctx, h.caller(ctx), r.JobID)
	if err != nil {
		return nil, err
	}
	return GetJob200JSONResponse(fromJob(job)), nil
}

func (h *handlers) ListJobs(ctx context.Context, r ListJobsRequestObject) (ListJobsResponseObject, error) {
	q := store.JobQuery{
		CreatedAfter: r.Params.CreatedAfter, CreatedBefore: r.Params.CreatedBefore, Limit: r.Params.Limit, Cursor: r.Params.Cursor,
	}
	for _, s := range r.Params.State {
		q.States = append(q.States, run.State(s))
	}
	var err error
	if q.Labels, err = labelsOf(r.Params.Label); err != nil {
		return nil, err
	}
	page, err := h.control.Jobs(ctx, h.caller(ctx), q)
	if err != nil {
		return nil, err
	}
	list := api.JobList{Jobs: make([]api.Job, 0, len(page.Jobs)), Next: page.Next}
	for _, j := range page.Jobs {
		job := fromJob(j)
		for i := range job.Spec.Commands {
			job.Spec.Commands[i].Stdin = nil
		}
		list.Jobs = append(list.Jobs, job)
	}
	return ListJobs200JSONResponse(list), nil
}

func (h *handlers) CancelJob(ctx context.Context, r CancelJobRequestObject) (CancelJobResponseObject, error) {
	job, err := h.control.Cancel(ctx, h.caller(ctx), r.JobID)
	if err != nil {
		return nil, err
	}
	return CancelJob200JSONResponse(fromJob(job)), nil
}

func (h *handlers) ListArtifacts(ctx context.Context, r ListArtifactsRequestObject) (ListArtifactsResponseObject, error) {
	all, err := h.control.Artifacts(ctx, h.caller(ctx), r.JobID)
	if err != nil {
		return nil, err
	}
	list := api.ArtifactList{Artifacts: make([]api.Artifact, 0, len(all))}
	for _, a := range all {
		list.Artifacts = append(list.Artifacts, api.Artifact{Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256})
	}
	return ListArtifacts200JSONResponse(list), nil
}

func (h *handlers) GetReceipt(ctx context.Context, r GetReceiptRequestObject) (GetReceiptResponseObject, error) {
	receipt, err := h.control.Receipt(ctx, h.caller(ctx), r.JobID)
	if err != nil {
		return nil, err
	}
	return signed(receipt), nil
}

// signed is a receipt, byte for byte.
type signed []byte

func (s signed) VisitGetReceiptResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", receiptType)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(s)
	return err
}

func (h *handlers) ListReceiptKeys(context.Context, ListReceiptKeysRequestObject) (ListReceiptKeysResponseObject, error) {
	list := api.ReceiptKeyList{Keys: []api.ReceiptKey{}}
	for _, k := range h.control.ReceiptKeys() {
		list.Keys = append(list.Keys, api.ReceiptKey{KeyID: k.ID, Algorithm: k.Algorithm, PublicKey: k.PEM})
	}
	return ListReceiptKeys200JSONResponse(list), nil
}

func (h *handlers) CreateUpload(ctx context.Context, r CreateUploadRequestObject) (CreateUploadResponseObject, error) {
	size := exchangeOf(ctx).r.ContentLength
	u, err := h.control.Upload(ctx, h.caller(ctx), r.Body, size)
	if err != nil {
		return nil, err
	}
	return CreateUpload201JSONResponse(api.Upload{ID: u.ID, Bytes: u.Bytes, SHA256: u.SHA256}), nil
}

func (h *handlers) WhoAmI(ctx context.Context, _ WhoAmIRequestObject) (WhoAmIResponseObject, error) {
	c := h.caller(ctx)
	return WhoAmI200JSONResponse(api.Identity{Tenant: fromTenant(c.Tenant), KeyID: c.KeyID, Scopes: fromScopes(c.Scopes)}), nil
}

func (h *handlers) DownloadArtifact(ctx context.Context, r DownloadArtifactRequestObject) (DownloadArtifactResponseObject, error) {
	a, body, err := h.control.OpenArtifact(ctx, h.caller(ctx), r.JobID, r.Params.Path)
	if err != nil {
		return nil, err
	}
	return artifactFile{a: a, body: body, timing: h.cfg.Timing}, nil
}

// artifactFile is hostile bytes on their way to somebody's disk.
type artifactFile struct {
	a      run.Artifact
	body   io.ReadCloser
	timing Timing
}

func (f artifactFile) VisitDownloadArtifactResponse(w http.ResponseWriter) error {
	defer f.body.Close()
	h := w.Header()
	h.Set("Content-Type", bytesType)
	h.Set("Content-Disposition", disposition(f.a.Path))
	h.Set("Content-Length", fmt.Sprint(f.a.Bytes))
	if digest, err := reprDigest(f.a.SHA256); err == nil {
		h.Set("Repr-Digest", digest)
	}
	h.Set("ETag", `"`+f.a.SHA256+`"`)
	h.Set("Accept-Ranges", "none")
	w.WriteHeader(http.StatusOK)
	n, err := io.Copy(steadyWriter(w, f.timing.Body), f.body)
	if err == nil && n != f.a.Bytes {
		err = fmt.Errorf("artifact %q ended after %d of %d bytes", clip(f.a.Path), n, f.a.Bytes)
	}
	return err // fail cuts the connection: the answer has begun
}
