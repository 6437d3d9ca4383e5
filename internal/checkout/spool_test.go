package checkout

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

func TestASpoolHasNoNameAndALimit(t *testing.T) {
	dir := t.TempDir()
	s, err := newSpool(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write([]byte("0123456")); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("the directory holds %v, %v", names, err)
	}
	if _, err := s.Write([]byte("789a")); reason.Of(err) != reason.TooLarge {
		t.Errorf("one byte too much: %v", err)
	}
	if _, err := s.Write([]byte("789")); err != nil {
		t.Errorf("up to the limit: %v", err)
	}
	for range 2 {
		if data, err := io.ReadAll(s.reader()); err != nil || string(data) != "0123456789" {
			t.Errorf("it holds %q, %v", data, err)
		}
	}
}

func TestTheSweepTakesItsOwnOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	if err := sweepSpools(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pack-1", "pack-2", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := sweepSpools(dir); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != "other" {
		t.Errorf("left: %v, %v", names, err)
	}
	if err := sweepSpools(filepath.Join(dir, "other")); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a file in place of the directory: %v", err)
	}
}
