package filewire

import (
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzReader: whatever is said, reading it ends, and what is believed stays below
// the directory that was asked about.
func FuzzReader(f *testing.F) {
	var honest bytes.Buffer
	w := NewWriter(&honest, 1<<20)
	for _, r := range records() {
		if err := w.Send(r); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(honest.Bytes())
	f.Add([]byte(`{"entry":{"name":"Li4vLi4vZXRj","kind":"file"}}` + "\n"))
	f.Add([]byte(`{"data":262145}` + "\nabc"))
	f.Add([]byte(`{"data":-1,"end":{}}` + "\n"))
	f.Add([]byte(strings.Repeat("[", 70000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewReader(bytes.NewReader(data))
		for n := 0; ; n++ {
			rec, err := r.Next()
			if err != nil {
				return
			}
			if n > len(data) {
				t.Fatal("more records than bytes")
			}
			if len(rec.Payload) != rec.Data {
				t.Fatalf("%d bytes of %d", len(rec.Payload), rec.Data)
			}
			var name []byte
			switch {
			case rec.Entry != nil:
				name = rec.Entry.Name
			case rec.Event != nil:
				name = rec.Event.Name
			case rec.End != nil && strings.ContainsFunc(rec.End.Message, func(r rune) bool { return r < ' ' }):
				t.Fatalf("message %q", rec.End.Message)
			}
			if at := path.Join("/top", string(name)); at != "/top" && !strings.HasPrefix(at, "/top/") {
				t.Fatalf("%q leads to %q", name, at)
			}
		}
	})
}

func records() []Record {
	return []Record{
		{Ready: true},
		{Entry: &Entry{Name: []byte("a/\xff"), Kind: Symlink, Size: 3, Mode: 0o4755, UID: 1, GID: 2, MTime: time.Unix(1, 2).UTC(), Inode: 3, Target: []byte("../x"), TargetKind: Other}},
		{Payload: []byte("a\nb\x00")},
		{Event: &Event{Kind: Renamed, Name: []byte("b")}},
		{Event: &Event{Kind: Overflow}},
		{End: &End{Code: Exhausted, Message: "full", More: true}},
	}
}

// TestRoundTrip: what the helper says is what the host hears.
func TestRoundTrip(t *testing.T) {
	var wire bytes.Buffer
	w := NewWriter(&wire, 1<<20)
	for _, r := range records() {
		if err := w.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	wire.WriteString(`{"end":{}}` + "\n") // behind the end
	r := NewReader(&wire)
	for _, want := range records() {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		want.Data = len(want.Payload)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
}

// TestBudget: a writer stops before its budget is used up, and can still say so.
func TestBudget(t *testing.T) {
	const budget = 16 << 10
	var wire bytes.Buffer
	w := NewWriter(&wire, budget)
	sent := 0
	for {
		room := w.Room()
		if room <= 0 {
			break
		}
		if err := w.Send(Record{Payload: make([]byte, min(room, 1000))}); err != nil {
			t.Fatalf("there was room for %d: %v", room, err)
		}
		sent++
	}
	if err := w.Send(Record{Payload: make([]byte, 1000)}); !errors.Is(err, ErrBudget) {
		t.Errorf("%v", err)
	}
	if err := w.End(End{Message: strings.Repeat("\x00", 5000), More: true}); err != nil {
		t.Errorf("no room for the end: %v", err)
	}
	if wire.Len() > budget || wire.Len() < budget/2 {
		t.Errorf("%d bytes of %d", wire.Len(), budget)
	}
	r := NewReader(&wire)
	for range sent {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if rec, err := r.Next(); err != nil || rec.End == nil || !rec.End.More {
		t.Errorf("%+v, %v", rec, err)
	}
}

func TestRequests(t *testing.T) {
	want := Request{Op: Move, Path: []byte("/a\xff"), To: []byte("/b"), Length: -1, Budget: 5}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := Decode("{"); err == nil {
		t.Error("half a request was taken")
	}
}
