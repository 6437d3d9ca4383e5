package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func TestLifeOfAJob(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	spec := trueJob()
	spec.Labels = map[string]string{"branch": "main"}
	spec.Env = map[string]string{"LANG": "C"}
	spec.Commands[0].Stdin, spec.Commands[0].EndAtLimit = []byte("in\x00put"), []string{"disk"}
	made := r.send("POST", "/v1/jobs", key, spec)
	var job api.Job
	decode(t, made.body, &job)
	if made.status != http.StatusCreated || job.State != api.JobStateQueued || made.header.Get("Location") != "/v1/jobs/"+job.ID {
		t.Fatalf("status %d, location %q: %s", made.status, made.header.Get("Location"), made.body)
	}
	if job.Spec.Limits.WallClockMS != 120_000 || job.Spec.TimeoutMS != 1_800_000 || job.Spec.Image == "" {
		t.Errorf("defaults: %+v", job.Spec)
	}
	w := r.work()
	w.write("stdout", "hello\n")
	w.artifact("out/a b.html", "<script>", hexSum("<script>"))
	const incomplete = "not all artifacts were kept: the storage is full"
	w.check(r.record.Resolve(t.Context(), w.lease, run.Resolved{Artifacts: incomplete, Waiting: "old news"}))
	w.finish()

	var got api.Job
	decode(t, r.send("GET", "/v1/jobs/"+job.ID, key, nil).body, &got)
	if got.State != api.JobStateSucceeded || got.Outcome == nil || *got.Outcome.ExitCode != 0 || len(got.Steps) != 1 || got.FinishedAt.IsZero() ||
		got.Resolved.ArtifactsIncomplete != incomplete || got.Waiting != "" {
		t.Errorf("got %+v", got)
	}
	if c := got.Spec.Commands[0]; string(c.Stdin) != "in\x00put" || !slices.Equal(c.EndAtLimit, []string{"disk"}) {
		t.Errorf("the command is on record as %+v", c)
	}
	var list api.JobList
	decode(t, r.send("GET", "/v1/jobs", key, nil).body, &list)
	if len(list.Jobs) != 1 || list.Jobs[0].Spec.Commands[0].Stdin != nil {
		t.Errorf("a list has what programs read: %+v", list.Jobs)
	}
	if a := r.send("GET", "/v1/jobs/"+job.ID+"/receipt", key, nil); a.problem(t).Code != api.ProblemCodeNotFound {
		t.Errorf("a receipt before there is one: %s", a.body)
	}
	envelope := `{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[]}`
	if err := r.record.SignJob(t.Context(), job.ID, []byte(envelope)); err != nil {
		t.Fatal(err)
	}
	if a := r.send("GET", "/v1/jobs/"+job.ID+"/receipt", key, nil); a.status != 200 || string(a.body) != envelope {
		t.Errorf("receipt: %d %s", a.status, a.body)
	}
	// One that has ended stays as it is.
	if a := r.send("POST", "/v1/jobs/"+job.ID+"/cancel", key, nil); a.status != 200 || !strings.Contains(string(a.body), `"succeeded"`) {
		t.Errorf("cancel after the end: %d %s", a.status, a.body)
	}
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestArtifactsAreNeverShown(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	w := r.work()
	const page = "<html><script>alert(1)</script>"
	name := `x/";%ä` + "\n" + `.html`
	w.artifact(name, page, hexSum(page))
	w.finish()
	path := "/v1/jobs/" + job.ID + "/artifacts"
	var list api.ArtifactList
	decode(t, r.send("GET", path, key, nil).body, &list)
	if len(list.Artifacts) != 1 || list.Artifacts[0].Path != name {
		t.Fatalf("got %+v", list)
	}
	a := r.send("GET", path+"/content?path="+url.QueryEscape(name), key, nil)
	if a.status != 200 || string(a.body) != page {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	for name, want := range map[string]string{
		"Content-Type":            "application/octet-stream",
		"X-Content-Type-Options":  "nosniff",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
		"Content-Disposition":     `attachment; filename="____` + `_.html"; filename*=UTF-8''%22%3B%25%C3%A4%0A.html`,
		"Cache-Control":           "no-store",
		"Content-Length":          fmt.Sprint(len(page)),
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if a.header.Get("Repr-Digest") == "" {
		t.Error("no digest")
	}
	if p := r.send("GET", path+"/content?path=x", key, nil).problem(t); p.Code != api.ProblemCodeNotFound {
		t.Errorf("got %+v", p)
	}
	if err := r.blobs.DeletePrefix(t.Context(), "artifacts/"+job.ID+"/"); err != nil {
		t.Fatal(err)
	}
	if p := r.send("GET", path+"/content?path="+url.QueryEscape(name), key, nil).problem(t); p.Code != api.ProblemCodeGone {
		t.Errorf("got %+v", p)
	}
}

func TestIdempotency(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	_, other := r.tenant("b", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	first := r.send("POST", "/v1/jobs", key, trueJob(), header{"Idempotency-Key", "k"})
	again := r.send("POST", "/v1/jobs", key, trueJob(), header{"Idempotency-Key", "k"})
	if first.status != 201 || again.status != 200 || string(first.body) != string(again.body) {
		t.Errorf("%d %s\n%d %s", first.status, first.body, again.status, again.body)
	}
	spec := trueJob()
	spec.Commands[0].Argv = []string{"false"}
	if p := r.send("POST", "/v1/jobs", key, spec, header{"Idempotency-Key", "k"}).problem(t); p.Code != api.ProblemCodeConflict {
		t.Errorf("got %+v", p)
	}
	if a := r.send("POST", "/v1/jobs", other, spec, header{"Idempotency-Key", "k"}); a.status != 201 {
		t.Errorf("another tenant's key is in the way: %d %s", a.status, a.body)
	}
	for _, bad := range []string{"", "a b", strings.Repeat("x", 256), "ä"} {
		if p := r.send("POST", "/v1/jobs", key, trueJob(), header{"Idempotency-Key", bad}).problem(t); p.Code != api.ProblemCodeInvalid {
			t.Errorf("%q: got %+v", bad, p)
		}
	}
}

func TestListsOfJobs(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	var ids []string
	for i := range 5 {
		spec := trueJob()
		spec.Labels = map[string]string{"n": fmt.Sprint(i), "all": "yes"}
		ids = append(ids, r.job(key, spec).ID)
	}
	r.work().finish() // the first
	list := func(query string) (got []string, next string) {
		t.Helper()
		a := r.send("GET", "/v1/jobs?"+query, key, nil)
		if a.status != 200 {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		var l api.JobList
		decode(t, a.body, &l)
		for _, j := range l.Jobs {
			got = append(got, j.ID)
		}
		return got, l.Next
	}
	expect := func(query string, want ...string) {
		t.Helper()
		if got, _ := list(query); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: got %v, want %v", query, got, want)
		}
	}
	expect("", ids[4], ids[3], ids[2], ids[1], ids[0])
	expect("state=succeeded", ids[0])
	expect("state=queued&state=succeeded&label=n=0", ids[0])
	expect("label=n%3D3&label=all%3Dyes", ids[3])
	expect("label=n%3D3&label=all%3Dno")
	expect("created_after=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	expect("created_before="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+"&limit=1", ids[4])
	var all []string
	for cursor := ""; ; {
		got, next := list("limit=2&cursor=" + url.QueryEscape(cursor))
		all = append(all, got...)
		if cursor = next; cursor == "" {
			break
		}
		r.job(key, trueJob()) // newer ones do not move the pages
	}
	if strings.Join(all, " ") != strings.Join([]string{ids[4], ids[3], ids[2], ids[1], ids[0]}, " ") {
		t.Errorf("pages: %v", all)
	}
	for _, bad := range []string{"state=done", "label=x", "label=n%3D1&label=n%3D2", "limit=0x", "limit=-1", "limit=501", "cursor=nonsense", "created_after=yesterday", "stat=queued", "limit=1&limit=2", "%zz"} {
		if p := r.send("GET", "/v1/jobs?"+bad, key, nil).problem(t); p.Code != api.ProblemCodeInvalid {
			t.Errorf("%s: got %+v", bad, p)
		}
	}
}

func TestQuotaOfQueuedJobs(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{Queued: 1, MilliCPU: 2000}, tenant.JobsRead, tenant.JobsWrite)
	r.job(key, trueJob())
	a := r.send("POST", "/v1/jobs", key, trueJob())
	if p := a.problem(t); p.Code != api.ProblemCodeExhausted || a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("got %+v", p)
	}
	big := trueJob()
	big.Limits.MilliCPU = 3000
	if p := r.send("POST", "/v1/jobs", key, big).problem(t); p.Code != api.ProblemCodeInvalid && p.Code != api.ProblemCodeExhausted {
		t.Errorf("got %+v", p)
	}
}

func TestUploads(t *testing.T) {
	r := newRig(t, func(_ *Config, c *control.Config) { c.MaxUploadBytes = 1 << 20 })
	_, key := r.tenant("a", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	_, other := r.tenant("b", tenant.DefaultQuota(), tenant.JobsRead, tenant.JobsWrite)
	archive := []byte(strings.Repeat("tar", 1000))
	a := r.send("POST", "/v1/uploads", key, archive)
	var u api.Upload
	decode(t, a.body, &u)
	if a.status != 201 || u.Bytes != int64(len(archive)) || u.SHA256 != hexSum(string(archive)) {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	spec := trueJob()
	spec.Source = api.Source{Kind: "archive", UploadID: u.ID}
	r.job(key, spec)
	if p := r.send("POST", "/v1/jobs", other, spec).problem(t); p.Code != api.ProblemCodeNotFound {
		t.Errorf("another tenant's upload: %+v", p)
	}
	large := make([]byte, 1<<20+1)
	if p := r.send("POST", "/v1/uploads", key, large).problem(t); p.Code != api.ProblemCodeTooLarge {
		t.Errorf("got %+v", p)
	}
	if p := r.send("POST", "/v1/uploads", key, []byte{}).problem(t); p.Code != api.ProblemCodeInvalid {
		t.Errorf("got %+v", p)
	}
	// One whose length is not known, and one that breaks off.
	chunked := "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/x-tar\r\nTransfer-Encoding: chunked\r\n\r\n"
	conn := mustDial(t, r.url)
	fmt.Fprint(conn, chunked)
	for range 20 {
		fmt.Fprintf(conn, "%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
	}
	status := make([]byte, 12)
	if _, err := conn.Read(status); err != nil || string(status) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", status, err)
	}
	conn.Close()
	broken := mustDial(t, r.url)
	fmt.Fprint(broken, chunked+"5\r\nhello\r\n")
	broken.Close()
	// Nothing but the one upload is left, on record or in the storage.
	eventually(t, "the uploads that failed are gone", func() bool {
		stale, err := r.record.StaleUploads(t.Context(), time.Now().Add(time.Hour), 100)
		return err == nil && len(stale) == 0
	})
	if _, _, err := r.blobs.Open(t.Context(), "uploads/"+mustUpload(t, r, key, u.ID).TenantID+"/"+u.ID); err != nil {
		t.Error(err)
	}
}

// TestUploadQuota: archives that are kept count, however they come, and however
// many come at once.
func TestUploadQuota(t *testing.T) {
	r := newRig(t)
	quota := tenant.Quota{UploadBytes: 100 << 10}
	_, key := r.tenant("a", quota, tenant.JobsRead, tenant.JobsWrite)
	_, other := r.tenant("b", quota, tenant.JobsRead, tenant.JobsWrite)
	if p := r.send("POST", "/v1/uploads", key, make([]byte, 100<<10+1)).problem(t); p.Code != api.ProblemCodeInvalid {
		t.Errorf("more than the whole quota: %+v", p)
	}
	const at, each = 8, 30 << 10
	var kept atomic.Int64
	var wg sync.WaitGroup
	for i := range at {
		wg.Go(func() {
			if i%2 == 0 { // its size is said
				if r.send("POST", "/v1/uploads", key, make([]byte, each)).status == 201 {
					kept.Add(1)
				}
				return
			}
			conn := mustDial(t, r.url)
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/uploads HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-tar\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
				key, each, strings.Repeat("x", each))
			status := make([]byte, 12)
			if _, err := io.ReadFull(conn, status); err == nil && string(status) == "HTTP/1.1 201" {
				kept.Add(1)
			}
		})
	}
	wg.Wait()
	if n := kept.Load(); n == 0 || n > 3 {
		t.Errorf("%d archives of %d bytes were taken, with a quota of %d", n, each, quota.UploadBytes)
	}
	for r.send("POST", "/v1/uploads", key, make([]byte, each)).status == 201 {
		kept.Add(1) // room that one which was refused in the end had set aside for a while
	}
	if n := kept.Load(); n != 3 {
		t.Errorf("%d archives of %d bytes were taken in all, want 3", n, each)
	}
	a := r.send("POST", "/v1/uploads", key, make([]byte, each))
	if p := a.problem(t); a.status != 429 || p.Code != api.ProblemCodeExhausted || a.header.Get("Retry-After") == "" || !strings.Contains(p.Detail, "quota") {
		t.Errorf("status %d, %+v", a.status, p)
	}
	if a := r.send("POST", "/v1/uploads", other, make([]byte, each)); a.status != 201 {
		t.Errorf("another tenant: status %d: %s", a.status, a.body)
	}
}

// noRoom is a storage that is full.
type noRoom struct{ blob.Store }

func (noRoom) Put(_ context.Context, key string, r io.Reader, _ int64) (blob.Info, error) {
	_, _ = io.CopyN(io.Discard, r, 1)
	return blob.Info{}, fault.New(fault.Exhausted, "cannot write blob %s: the storage is full", key)
}

// TestStorageIsFull: it is the operator's, so the caller is not told of a limit
// of his own, and not where archives are kept.
func TestStorageIsFull(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{UploadBytes: 100}, tenant.JobsRead, tenant.JobsWrite)
	caller, err := r.control.Authenticate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	full, err := control.New(control.Config{}, r.record, newQueue(t), noRoom{r.blobs}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is refused takes no room of the tenant's
		_, err = full.Upload(t.Context(), control.Caller{Principal: caller}, strings.NewReader(strings.Repeat("x", 90)), 90)
		if p := describe(err); p.code != api.ProblemCodeUnavailable || strings.Contains(p.detail, "uploads/") {
			t.Errorf("%+v", p)
		}
	}
}

func mustUpload(t *testing.T, r *rig, key, id string) store.Upload {
	t.Helper()
	p, err := r.control.Authenticate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	u, err := r.record.Upload(t.Context(), p.Tenant.ID, id)
	if err != nil || !u.Complete {
		t.Fatalf("%+v, %v", u, err)
	}
	return u
}

// eventually waits for what another goroutine does at its own pace.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
