package platform

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// talkative jobs say 16 MB each, as fast as they can: more than a connection
// takes before somebody reads.
var talkative = shape{jobs: 2, lines: 4000, width: 2000}

// slowOnes is how many slow readers each job has.
const slowOnes = 20

// slowReaders follows the jobs' logs at one byte a second until all of them
// have ended, and looks at what that costs the API. That neither a job nor its
// other readers wait for them is in how long the jobs take, and in the logs of
// those who follow them at full speed.
func slowReaders(w *world, of *row, jobs []*submitted) {
	w.ok(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.API.Pid()), []byte("5"), 0)) // the peak begins anew
	before := w.memory("VmRSS")
	begun := time.Now()
	var readers sync.WaitGroup
	var got atomic.Int64
	done := make(chan struct{})
	for _, s := range jobs {
		for range slowOnes {
			conn := w.openLog(s.id)
			readers.Go(func() {
				defer conn.Close()
				one := make([]byte, 1)
				for tick := time.NewTicker(time.Second); ; {
					if _, err := io.ReadFull(conn, one); err != nil {
						w.Errorf("a slow reader was cut off: %v", err)
						return
					}
					got.Add(1)
					select {
					case <-tick.C:
					case <-done:
						tick.Stop()
						return
					}
				}
			})
		}
	}
	for _, s := range jobs {
		select {
		case <-s.read:
		case <-time.After(patience):
		}
	}
	took := time.Since(begun)
	peak := w.memory("VmHWM")
	close(done)
	readers.Wait()
	all := int64(len(jobs) * jobSteps * talkative.lines * talkative.width)
	w.tally.note("%d readers of one byte a second, on %d jobs that say %d MB together: all jobs had ended, and were read to their end at full speed beside them, after %v; "+
		"the slow ones had %d bytes; the API's memory was %d MiB before and %d MiB at its peak, and not %d MiB more, which is what they had not read",
		len(jobs)*slowOnes, len(jobs), all/1e6, took.Round(10*time.Millisecond), got.Load(), before>>20, peak>>20, all*slowOnes>>20)
	if unread := all * slowOnes; peak-before > unread/4 {
		w.Errorf("%s: the API went from %d to %d bytes of memory, with %d bytes unread", of.fault, before, peak, unread)
	}
}

// memory is a value of the API's status, in bytes.
func (w *world) memory(name string) int64 {
	w.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.API.Pid()))
	w.ok(err)
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		w.Fatalf("no %s in %s", name, status)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	w.ok(err)
	return n << 10
}

// openLog asks for a log over a connection that takes next to nothing on this
// side, and leaves reading to the caller.
func (w *world) openLog(id string) net.Conn {
	w.Helper()
	u, err := url.Parse(w.URL)
	w.ok(err)
	small := func(_, _ string, c syscall.RawConn) (err error) {
		if ctrl := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) }); ctrl != nil {
			return ctrl
		}
		return err
	}
	conn, err := (&net.Dialer{Control: small}).DialContext(w.ctx, "tcp", u.Host)
	w.ok(err)
	_, err = fmt.Fprintf(conn, "GET /v1/jobs/%s/log HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: application/x-ndjson\r\n\r\n", id, u.Host, w.Key)
	w.ok(err)
	return conn
}
