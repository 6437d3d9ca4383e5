package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/agentdock/agentdock/api"
)

// Upload sends a tar archive for jobs to come, which name it in their source. It
// is sent once: what was read cannot be read again.
func (c *Client) Upload(ctx context.Context, tar io.Reader) (*api.Upload, error) {
	var u api.Upload
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/v1/uploads", stream: tar, once: true,
		header: http.Header{"Content-Type": {"application/x-tar"}},
	}, &u)
	return orNil(&u, err)
}

// Artifacts lists the files a job left.
func (c *Client) Artifacts(ctx context.Context, jobID string) ([]api.Artifact, error) {
	var list api.ArtifactList
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(jobID) + "/artifacts"}, &list)
	return list.Artifacts, err
}

// DownloadArtifact writes a file a job left. When it returns nil, all of it was
// written, and it is what the service has on record; else what was written is
// not to be used.
func (c *Client) DownloadArtifact(ctx context.Context, jobID, path string, w io.Writer) error {
	res, err := c.open(ctx, call{
		method: http.MethodGet, path: jobPath(jobID) + "/artifacts/content", query: url.Values{"path": {path}},
	})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), res.Body); err != nil {
		return fmt.Errorf("cannot download artifact %q: %w: %w", path, ErrInterrupted, err)
	}
	got := "sha-256=:" + base64.StdEncoding.EncodeToString(sum.Sum(nil)) + ":"
	if want := res.Header.Get("Repr-Digest"); want != got {
		return fmt.Errorf("cannot download artifact %q: it is not what is on record: its digest is %s, not %s", path, got, want)
	}
	return nil
}

// Receipt returns the signed statement of what a job did, byte for byte. There
// is none until soon after the job has ended (not_found).
func (c *Client) Receipt(ctx context.Context, jobID string) ([]byte, error) {
	var receipt []byte
	err := c.do(ctx, call{method: http.MethodGet, path: jobPath(jobID) + "/receipt"}, &receipt)
	return receipt, err
}

// ReceiptKeys lists the public keys that verify receipts. A key that comes with
// what it verifies proves nothing: keep those you trust elsewhere.
func (c *Client) ReceiptKeys(ctx context.Context) ([]api.ReceiptKey, error) {
	var list api.ReceiptKeyList
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/receipt-keys"}, &list)
	return list.Keys, err
}
