package blobtest

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

func unknownKey(t *testing.T, s Storage) {
	put(t, s, "a/b/c", []byte("x"))
	for _, key := range []string{"a", "a/b", "a/c", "b", "a/b/c/d", "a/b/cc", "a/b/C"} {
		isMissing(t, s, key)
	}
}

func replacedWhileRead(t *testing.T, s Storage) {
	old, young := pattern(20<<20, 1), pattern(20<<20, 2)
	put(t, s, "a/b", old)
	r, _, err := s.Open(t.Context(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 1<<20)
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/b", young)
	rest, err := io.ReadAll(r)
	if err == nil && !bytes.Equal(append(first, rest...), old) {
		t.Error("the blob was replaced, and its reader got a mixture or a part, and no error")
	}
	holds(t, s, "a/b", young)
}

func deletes(t *testing.T, s Storage) {
	put(t, s, "a/b", []byte("1"))
	put(t, s, "a/bb", []byte("2"))
	for range 2 {
		if err := s.Delete(t.Context(), "a/b"); err != nil {
			t.Fatal(err)
		}
		isMissing(t, s, "a/b")
	}
	holds(t, s, "a/bb", []byte("2"))
	for _, unknown := range []string{"b", "a", "a/bb/c"} {
		if err := s.Delete(t.Context(), unknown); err != nil {
			t.Errorf("delete of %s, which does not exist: %v", unknown, err)
		}
	}
	holds(t, s, "a/bb", []byte("2"))
}

func deletesPrefix(t *testing.T, s Storage) {
	gone := []string{"jobs/1/a", "jobs/1/b/c", "jobs/1/b/d/e"}
	stay := []string{"jobs/11/a", "jobs/2/a", "a/jobs/1/b", "jobs/1.x/a"}
	for _, key := range append(gone, stay...) {
		put(t, s, key, []byte(key))
	}
	for range 2 {
		if err := s.DeletePrefix(t.Context(), "jobs/1/"); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range gone {
		isMissing(t, s, key)
	}
	for _, key := range stay {
		holds(t, s, key, []byte(key))
	}
}

// deletesMany has more than the thousand that S3 lists and deletes at once.
func deletesMany(t *testing.T, s Storage) {
	all := concurrentKeys(1100)
	work := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range work {
				if _, err := s.Put(t.Context(), key, bytes.NewReader([]byte("x")), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, key := range all {
		work <- key
	}
	close(work)
	wg.Wait()
	if err := s.DeletePrefix(t.Context(), "a/"); err != nil {
		t.Fatal(err)
	}
	nothing(t, s)
}

// putBesideDelete: what was put stays, whatever is deleted beside it.
func putBesideDelete(t *testing.T, s Storage) {
	const rounds = 100
	var wg sync.WaitGroup
	for _, name := range []string{"x", "y"} {
		wg.Go(func() {
			for range rounds {
				key := "jobs/1/" + name
				if _, err := s.Put(t.Context(), key, bytes.NewReader([]byte(name)), 1); err != nil {
					t.Errorf("put %s: %v", key, err)
				}
				r, _, err := s.Open(t.Context(), key)
				if err != nil {
					t.Errorf("%s was put and cannot be opened: %v", key, err)
					return
				}
				r.Close()
				if err := s.Delete(t.Context(), key); err != nil {
					t.Errorf("delete %s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	nothing(t, s)
}
