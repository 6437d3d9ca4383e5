package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// owning is set where the test binary is a process that owns a directory.
const owning = "TESTENV_TEST_OWNING"

func TestMain(m *testing.M) {
	if below := os.Getenv(owning); below != "" {
		dir, err := ownBinaries(below)
		if err != nil {
			panic(err)
		}
		fmt.Println(dir)
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		return
	}
	os.Exit(m.Run())
}

// TestBinariesOfTheKilledAreRemoved: by the next process, and only theirs.
func TestBinariesOfTheKilledAreRemoved(t *testing.T) {
	below := t.TempDir()
	own := func() (dir string, kill func()) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), owning+"="+below)
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 4096)
		n, err := out.Read(said)
		if err != nil {
			t.Fatal(err)
		}
		kill = func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		t.Cleanup(kill)
		return string(said[:n-1]), kill
	}
	making := filepath.Join(below, binariesPrefix+"0")
	abandoned := filepath.Join(below, binariesPrefix+"1")
	for _, dir := range []string{making, abandoned} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * unlockedFor)
	if err := os.Chtimes(abandoned, long, long); err != nil {
		t.Fatal(err)
	}
	alive, _ := own()
	killed, kill := own()
	kill()
	next, _ := own()
	for dir, want := range map[string]bool{making: true, abandoned: false, alive: true, killed: false, next: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", dir, err == nil, want)
		}
	}
}
