package answer

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// FuzzInit: whatever init sends, a request has one answer, an error, or an end;
// numbers that are believed are amounts.
func FuzzInit(f *testing.F) {
	f.Add([]byte("ready\nok\nok 0 1 2 3\n"))
	f.Add([]byte("ready\nerror fork/exec: resource temporarily unavailable\nok\n"))
	f.Add([]byte("ready\nok 1 2 3 4 5 6 7 8 9 10 11 12\nok\nok\n"))
	f.Add([]byte("ok -1 9223372036854775808 0x3 \x00\n"))
	f.Add(bytes.Repeat([]byte("a"), 5000))
	f.Fuzz(func(t *testing.T, said []byte) {
		ours, theirs := socketpair(t)
		defer ours.Close()
		if len(said) > 64<<10 { // more than a socket holds would block
			return
		}
		if _, err := theirs.Write(said); err != nil {
			t.Fatal(err)
		}
		// It reads what it is asked, and says nothing more.
		if err := unix.Shutdown(int(theirs.Fd()), unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		c := NewInit(ours)
		begun := time.Now()
		if err := c.Ready(begun.Add(time.Minute)); err == nil && !bytes.HasPrefix(bytes.TrimSpace(said), []byte("ready")) {
			t.Fatal("it is ready and did not say so")
		}
		for range 4 {
			words, err := c.Request("usage")
			var refused *InitError
			if err != nil && !errors.As(err, &refused) {
				if _, again := c.Request("usage"); again == nil {
					t.Fatalf("after %v the next answer was believed", err)
				}
				break
			}
			if places, err := ParsePlaces(words); err == nil {
				for _, p := range places {
					if min(p.Used, p.Free, p.UsedInodes, p.FreeInodes) < 0 {
						t.Fatalf("%+v from %q", p, words)
					}
				}
			}
			if r, places, err := ParseAccount(words); err == nil && (min(r.Disk, r.Inodes, r.PIDs, r.Unseen) < 0 || len(places) == 0) {
				t.Fatalf("%+v %+v", r, places)
			}
			if r, err := ParseRefusals(words); err == nil && min(r.Disk, r.Inodes, r.PIDs, r.Unseen) < 0 {
				t.Fatalf("%+v from %q", r, words)
			}
		}
		if time.Since(begun) > Timeout/2 {
			t.Fatal("it waited for what could not come")
		}
	})
}

// FuzzSentry: whatever a sentry answers, it is the result that was asked for or
// an error, and no more of it is read than may be.
func FuzzSentry(f *testing.F) {
	f.Add([]byte(`{"success":true,"err":"","result":{"results":[{"value":"populated 0\nmax 3","is_error":false}]}}`))
	f.Add([]byte(`{"success":false,"err":"no such process"}`))
	f.Add([]byte(`{"success":true,"result":35584}`))
	f.Add([]byte(`{"success":true,"result":null,"result":[[[[`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		counted := &countReader{r: io.MultiReader(bytes.NewReader(answer), endless{})}
		var group struct {
			Results []struct {
				Value string `json:"value"`
			} `json:"results"`
		}
		err := readAnswer(counted, &group)
		if counted.n > maxAnswer {
			t.Fatalf("%d bytes were read", counted.n)
		}
		if err == nil && len(group.Results) == 1 {
			if n, err := ParsePIDsHits(group.Results[0].Value); err == nil && n < 0 {
				t.Fatalf("%d hits", n)
			}
		}
		var status unix.WaitStatus
		if readAnswer(bytes.NewReader(answer), &status) != nil || CheckStatus(status) != nil {
			return
		}
		code, sig := status.ExitStatus(), status.Signal()
		if status.Exited() == status.Signaled() || status.Exited() && (code < 0 || code > 255) || status.Signaled() && (sig < 1 || sig > 64) {
			t.Fatalf("status 0x%x was believed", uint32(status))
		}
	})
}

type countReader struct {
	r io.Reader
	n int
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

// endless is a sentry that never stops talking.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestALateAnswerIsNotTheNextOnes(t *testing.T) {
	ours, theirs := socketpair(t)
	defer theirs.Close()
	c := NewInit(ours)
	defer c.Close()
	// A request that times out, and whose answer then comes.
	if err := c.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	c.broken = os.ErrDeadlineExceeded
	if _, err := theirs.WriteString("ok 1 2 3 4\n"); err != nil {
		t.Fatal(err)
	}
	if words, err := c.Request("enter x 0"); err == nil {
		t.Errorf("the answer %q was taken for another request's", words)
	}
}

func socketpair(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}
