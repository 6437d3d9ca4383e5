package guest

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func probed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := Probe(args, &out); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return out.String()
}

// Probes must be able to succeed: these run where nothing confines them.
func TestProbesSeeWhatIsAllowed(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if got := probed(t, "connect", addr); !strings.Contains(got, addr+" ok\n") {
		t.Errorf("a listener is not reached: %s", got)
	}
	l.Close()
	if got := probed(t, "connect", addr); !strings.Contains(got, addr+" ECONNREFUSED\n") {
		t.Errorf("nobody listens and it prints %s", got)
	}
	file := filepath.Join(dir, "file")
	if got := probed(t, "fill", file, "100000"); got != "written 131072\nwrite ok\n" {
		t.Errorf("fill prints %q", got)
	}
	if got := probed(t, "write", dir, file, dir+"/none/x"); got != dir+" ok\n"+file+" ok\n"+dir+"/none/x ENOENT\n" {
		t.Errorf("write prints %q", got)
	}
	if got := probed(t, "touch", dir, "3"); got != "made 3\ncreate ok\n" {
		t.Errorf("touch prints %q", got)
	}
	if got := probed(t, "list", dir); got != dir+" 5\n" {
		t.Errorf("list prints %q", got)
	}
	if got := probed(t, "alloc", "8192"); got != "allocated 8192\n" {
		t.Errorf("alloc prints %q", got)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 131072 {
		t.Errorf("the write probe changed a file: %v, %v", info, err)
	}
}

func TestUnknownProbesAreErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"nothing"}, {"fill", "x"}, {"fork", "many"}, {"alloc", "-1"}} {
		if err := Probe(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
