package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdEngine listens where a container engine does, and takes the place of one
// that was there: engine PATH
func cmdEngine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: engine PATH")
	}
	place := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(place), 0o755))
	if err := os.Remove(place); err != nil && !errors.Is(err, fs.ErrNotExist) {
		ts.Check(err)
	}
	l, err := net.Listen("unix", place)
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
}

// cmdReaches looks through the eyes of what up has started, and of its execution
// service, whether there is a socket at a path: reaches PATH. "! reaches" waits
// until the platform does not.
func cmdReaches(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value(platformKey).(*platform)
	if len(args) != 1 || p.cmd == nil {
		ts.Fatalf("usage: [!] reaches PATH, after up")
	}
	place := ts.MkAbs(args[0])
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		st, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", p.cmd.Process.Pid, place))
		ts.Check(err)
		reaches := st.Mode().Type() == fs.ModeSocket
		if reaches != neg {
			return
		}
		if !neg || time.Now().After(deadline) {
			ts.Fatalf("it reaches %s: %v", place, reaches)
		}
	}
}
