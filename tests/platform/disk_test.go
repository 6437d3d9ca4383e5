package platform

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/testenv"
)

// diskBytes is the size of the disk that has the directory of artifacts.
const diskBytes = 64 << 20

// heavy jobs leave a file of four MiB each.
var heavy = shape{jobs: 8, lines: 20, pause: 25 * time.Millisecond, leaves: 4 << 20}

func diskKinds() []kind {
	return []kind{
		{name: "the disk of the artifacts is full", shape: heavy, cause: diskFull, expect: succeeded},
		{name: "that disk has room again", shape: heavy, cause: nothing, expect: undisturbed},
	}
}

// diskFull leaves room for the files of one job and a half. What the API says to
// be kept must be, whole; of what was not, the job must say so, and nothing may
// be there.
func diskFull(w *world, of *row, jobs []*submitted) {
	filler := filepath.Join(w.disk, "filler")
	w.ok(os.WriteFile(filler, make([]byte, testenv.Free(w.T, w.disk)-6<<20), 0o600))
	for _, s := range jobs {
		select {
		case <-s.read:
		case <-time.After(patience): // said later, of all that have not ended
		}
	}
	kept, missing := 0, 0
	for _, s := range jobs {
		said := w.job(s.id).Resolved.ArtifactsIncomplete
		whole := w.downloads(s.id)
		if whole < 2 && said == "" {
			w.Errorf("%s: job %s has %d files and says nothing of the others", of.fault, s.id, whole)
		}
		if kept += whole; said != "" {
			missing++
		}
	}
	// It is full for uploads too, which leave nothing either; that this is so
	// is looked at with all other files when the jobs have been judged.
	impatient, err := client.New(w.URL, client.WithAPIKey(w.Key), client.WithAttempts(1))
	w.ok(err)
	_, err = impatient.Upload(w.ctx, bytes.NewReader(make([]byte, 16<<20)))
	if err == nil {
		w.Errorf("%s: an upload was taken that there is no room for", of.fault)
	}
	if missing == 0 || kept == 0 {
		w.Errorf("%s: %d jobs miss files, and %d files were kept: the disk was not full in the middle of it", of.fault, missing, kept)
	}
	w.tally.note("on a full disk %d jobs say that files of theirs were not kept, %d files were, whole, and an upload was refused (%v)", missing, kept, err)
	w.ok(os.Remove(filler))
}

// downloads counts the artifacts of a job, each of which must be what the API
// says of it.
func (w *world) downloads(id string) (n int) {
	w.Helper()
	artifacts, err := w.client.Artifacts(w.ctx, id)
	w.ok(err)
	for _, a := range artifacts {
		var got bytes.Buffer
		w.ok(w.client.DownloadArtifact(w.ctx, id, a.Path, &got))
		if sum := sha256.Sum256(got.Bytes()); int64(got.Len()) != a.Bytes || hex.EncodeToString(sum[:]) != a.SHA256 {
			w.Errorf("job %s: %s has %d bytes and is not what the API says: %+v", id, a.Path, got.Len(), a)
		}
	}
	return len(artifacts)
}
