package blobtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/clauses"
	"github.com/agentdock/agentdock/internal/fault"
)

// defects are what the suite must catch, with the case that does.
var defects = map[string]string{
	"keeps what a failed reader gave": "B1_reader_fails",
	"keeps too few bytes":             "B1_size_is_wrong",
	"shows what is being written":     "B1_never_seen_in_part",
	"goes on when the context ends":   "B1_context_ends",
	"keeps the first":                 "B2_replaces",
	"opens nothing as empty":          "B3_unknown_key",
	"cannot delete twice":             "B4_delete",
	"deletes what begins alike":       "B5_delete_prefix",
	"deletes a thousand":              "B5_delete_prefix_of_many",
	"takes any key":                   "B6_no_keys",
	"hides that the storage is away":  "B7_away",
	"leaves a part when it is full":   "B7_full",
	"takes all into memory":           "B8_memory",
}

// TestSuiteBites runs the suite against a store in memory, once as it should be
// and once with each defect, in a process of its own: a suite fails its test.
func TestSuiteBites(t *testing.T) {
	if defect, ok := os.LookupEnv("BLOBTEST_DEFECT"); ok {
		Run(t, Harness{
			New:      func(*testing.T) Storage { return newMemory(defect, 1<<40) },
			NewSmall: func(*testing.T) Storage { return newMemory(defect, SmallBytes-1) },
		})
		return
	}
	suite := func(defect, run string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSuiteBites$/^"+run+"$", "-test.v")
		cmd.Env = append(os.Environ(), "BLOBTEST_DEFECT="+defect)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// The sound one must not need memory for B8, which it has not: it is left out.
	if out, err := suite("", "B[1-7]_.*"); err != nil {
		t.Fatalf("a sound store fails:\n%s", out)
	}
	for defect, name := range defects {
		out, err := suite(defect, name)
		if err == nil || !strings.Contains(out, "--- FAIL: TestSuiteBites/"+name) {
			t.Errorf("%s does not catch a store that %s:\n%s", name, defect, out)
		}
	}
}

func TestEveryClauseHasACase(t *testing.T) {
	var all []clauses.Case
	for _, c := range cases {
		all = append(all, clauses.Case{Clause: c.clause, Name: c.name})
	}
	clauses.Hold(t, "../blob.go", all)
}

// inMemory keeps blobs in a map; defect says what is wrong with it.
type inMemory struct {
	defect string
	room   int64

	mu    sync.Mutex
	away  bool
	blobs map[string][]byte
}

func newMemory(defect string, room int64) Storage {
	m := &inMemory{defect: defect, room: room, blobs: map[string][]byte{}}
	return Storage{
		Store: m,
		Files: func(*testing.T) []string {
			m.mu.Lock()
			defer m.mu.Unlock()
			var names []string
			for key := range m.blobs {
				names = append(names, key)
			}
			return names
		},
		Away: func(*testing.T) func() {
			m.set(func() { m.away = true })
			return func() { m.set(func() { m.away = false }) }
		},
	}
}

func (m *inMemory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

func (m *inMemory) is(defect string) bool { return m.defect == defect }

// use locks the store unless it is away or the key is none.
func (m *inMemory) use(invalid error) error {
	if invalid != nil && !m.is("takes any key") {
		return invalid
	}
	m.mu.Lock()
	if m.away && !m.is("hides that the storage is away") {
		m.mu.Unlock()
		return fault.New(fault.Unavailable, "away")
	}
	return nil
}

func (m *inMemory) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := m.use(blob.ValidateKey(key)); err != nil {
		return blob.Info{}, err
	}
	_, exists := m.blobs[key]
	m.mu.Unlock()
	var data bytes.Buffer
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		data.Write(buf[:n])
		if m.is("shows what is being written") {
			m.set(func() { m.blobs[key] = bytes.Clone(data.Bytes()) })
		}
		if err == io.EOF || err != nil && m.is("keeps what a failed reader gave") {
			break
		}
		if err != nil {
			return blob.Info{}, fmt.Errorf("cannot read: %w", err)
		}
		if ctx.Err() != nil && !m.is("goes on when the context ends") {
			return blob.Info{}, ctx.Err()
		}
	}
	if size >= 0 && int64(data.Len()) != size && !m.is("keeps too few bytes") {
		return blob.Info{}, fault.New(fault.Invalid, "wrong size")
	}
	if err := m.use(nil); err != nil {
		return blob.Info{}, err
	}
	defer m.mu.Unlock()
	if int64(data.Len()) > m.room {
		if m.is("leaves a part when it is full") {
			m.blobs[key] = data.Bytes()[:m.room]
		}
		return blob.Info{}, fault.New(fault.Exhausted, "full")
	}
	if !exists || !m.is("keeps the first") {
		m.blobs[key] = data.Bytes()
	}
	return blob.Info{Key: key, Bytes: int64(len(m.blobs[key]))}, nil
}

func (m *inMemory) Open(_ context.Context, key string) (io.ReadCloser, blob.Info, error) {
	if err := m.use(blob.ValidateKey(key)); err != nil {
		return nil, blob.Info{}, err
	}
	defer m.mu.Unlock()
	data, ok := m.blobs[key]
	if !ok && !m.is("opens nothing as empty") {
		return nil, blob.Info{}, fault.New(fault.NotFound, "unknown")
	}
	return io.NopCloser(bytes.NewReader(data)), blob.Info{Key: key, Bytes: int64(len(data))}, nil
}

func (m *inMemory) Delete(_ context.Context, key string) error {
	if err := m.use(blob.ValidateKey(key)); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if _, ok := m.blobs[key]; !ok && m.is("cannot delete twice") {
		return fault.New(fault.NotFound, "unknown")
	}
	delete(m.blobs, key)
	return nil
}

func (m *inMemory) DeletePrefix(_ context.Context, prefix string) error {
	if err := m.use(blob.ValidatePrefix(prefix)); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.is("deletes what begins alike") {
		prefix = strings.TrimSuffix(prefix, "/")
	}
	deleted := 0
	for key := range m.blobs {
		if strings.HasPrefix(key, prefix) && (deleted < 1000 || !m.is("deletes a thousand")) {
			delete(m.blobs, key)
			deleted++
		}
	}
	return nil
}

func (m *inMemory) Ping(context.Context) error {
	if err := m.use(nil); err != nil {
		return err
	}
	defer m.mu.Unlock()
	return nil
}
