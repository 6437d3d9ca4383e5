package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

// nothingLeft waits for the last removal and looks at the host, the record and
// the object store. A worker looks for sandboxes that nobody needs every half
// minute.
func (w *world) nothingLeft(of *row) {
	w.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		left := w.left()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			of.left += len(left)
			w.Errorf("%s: left over: %q", of.fault, left)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) left() (left []string) {
	w.Helper()
	left = w.Execd.Leftovers()
	stats, err := w.record.Stats(w.ctx)
	if err != nil {
		return append(left, err.Error())
	}
	for state, n := range stats.ByState {
		if !state.Terminal() && n > 0 {
			left = append(left, fmt.Sprintf("%d jobs that are %s", n, state))
		}
	}
	blobs, err := w.unknownBlobs()
	if err != nil {
		return append(left, err.Error())
	}
	return append(left, blobs...)
}

// unknownBlobs are those of jobs that no row names, and what has been begun.
func (w *world) unknownBlobs() (unknown []string, _ error) {
	root := filepath.Join(w.disk, "artifacts")
	if w.S3 != nil {
		root = w.S3.Dir
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		key, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if w.S3 == nil { // directories have a comma there
			key = strings.ReplaceAll(strings.TrimPrefix(key, "blobs/"), ",/", "/")
		}
		known, err := w.knownBlob(key)
		if err == nil && !known {
			unknown = append(unknown, "blob "+key)
		}
		return err
	})
	return unknown, err
}

func (w *world) knownBlob(key string) (bool, error) {
	w.Helper()
	var uploads int
	if err := w.db.QueryRow(w.ctx, "SELECT count(*) FROM uploads WHERE blob_key = $1 AND complete", key).Scan(&uploads); err != nil || uploads > 0 {
		return uploads > 0, err
	}
	job, ok := strings.CutPrefix(key, "jobs/")
	if !ok {
		return false, nil
	}
	id, _, _ := strings.Cut(job, "/")
	artifacts, err := w.record.ArtifactsOf(w.ctx, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return false, err
	}
	for _, a := range artifacts {
		if a.Key == key {
			return true, nil
		}
	}
	return false, nil
}
