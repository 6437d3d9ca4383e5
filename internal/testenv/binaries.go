package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Binaries returns a directory with all programs: the one that
// AGENTDOCK_TEST_BIN names, or one that is built, once in a test process.
func Binaries(t testing.TB) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var binaries = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("AGENTDOCK_TEST_BIN"); dir != "" {
		return dir, nil
	}
	dir, err := ownBinaries(os.TempDir())
	if err != nil {
		return "", fmt.Errorf("cannot make a directory for the programs: %w", err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "github.com/agentdock/agentdock/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	return dir, nil
})

const (
	binariesPrefix = "agentdock-bin"
	binariesLock   = "lock"
	// unlockedFor is how old a directory without a lock must be to belong to
	// nobody: its owner makes the one right after the other.
	unlockedFor = time.Hour
)

// ownBinaries makes a directory that is this process's until it ends. Nothing is
// told when a test process ends, and one that is killed could not be: so each
// holds a lock, and removes the directories of those that hold theirs no more.
func ownBinaries(below string) (string, error) {
	old, err := filepath.Glob(filepath.Join(below, binariesPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, dir := range old {
		if err := removeDead(dir); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp(below, binariesPrefix)
	if err != nil {
		return "", err
	}
	// Never closed: the lock ends with the process.
	lock, err := unix.Open(filepath.Join(dir, binariesLock), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB)
	}
	return dir, err
}

func removeDead(dir string) error {
	lock, err := unix.Open(filepath.Join(dir, binariesLock), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < unlockedFor {
			return nil // gone meanwhile, or being made
		}
		return os.RemoveAll(dir)
	}
	if err != nil {
		return nil // somebody else's
	}
	defer unix.Close(lock)
	if unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil // its owner lives
	}
	return os.RemoveAll(dir)
}
