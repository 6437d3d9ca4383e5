package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/agentdock/agentdock/internal/run"
)

var update = flag.Bool("update", false, "write testdata/receipt.json")

func signer(t *testing.T, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ended is a job that has something in every field.
func ended() (run.Job, []run.Artifact) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 123456789, time.FixedZone("x", 3600))
	failed := run.ExitedWith(3, "wait status")
	failed.LimitsHit = []run.Limit{run.LimitDisk}
	killed := run.Outcome{Kind: run.Signalled, Signal: "SIGSEGV", Evidence: "wait status <11>"}
	job := run.Job{
		ID: "0b9f8a3e-5a55-4f5e-9d4e-111111111111", TenantID: "t1", State: run.Failed, Attempt: 2, Node: "here", Lost: 1,
		Spec: run.JobSpec{
			Source: run.Source{Kind: run.SourceRepository, Repository: "https://example.com/a/b", Ref: "main", Upload: "u1"},
			Commands: []run.Command{
				{Argv: []string{"make", "test & <go>"}, Dir: "sub", Env: map[string]string{"TOKEN": "hunter2-command"}, Timeout: time.Minute, ContinueOnFailure: true},
				{Argv: []string{"true"}},
			},
			Image: "default", Env: map[string]string{"Z": "1", "PASSWORD": "hunter2-job"}, Limits: run.DefaultLimits(), Timeout: time.Hour,
			Artifacts: []string{"out/**"}, Labels: map[string]string{"b": "2", "a": "1"}, MaxAttempts: 3,
		},
		Steps: []run.Step{
			{Index: 0, Outcome: &failed, StdoutBytes: 5, StderrBytes: 6, Truncated: true, StartedAt: at, Duration: 1500 * time.Millisecond},
			{Index: 1, Outcome: &killed, StartedAt: at.Add(time.Second), Duration: time.Second},
			{Index: 2},
		},
		Outcome: &failed, Usage: run.Usage{PeakMemoryBytes: 1 << 20, CPU: time.Second, DiskBytes: 4096, Inodes: 7},
		Resolved: run.Resolved{
			Commit: strings.Repeat("c", 40), ArchiveDigest: "sha256:aa", ImageDigest: "sha256:bb", Isolation: "kernel",
			Environment: "gvisor 1", Artifacts: "1 entries were links",
		},
		CreatedAt: at, StartedAt: at.Add(time.Second), FinishedAt: at.Add(time.Minute),
	}
	return job, []run.Artifact{
		{Path: "out/b", Bytes: 2, SHA256: strings.Repeat("b", 64), Key: "jobs/x/1/b"},
		{Path: "out/ä", Bytes: 1, SHA256: strings.Repeat("a", 64), Key: "jobs/x/1/a"},
	}
}

func sign(t *testing.T, s *Signer) []byte {
	t.Helper()
	data, err := s.Sign(ended())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestReceiptIsTheSameForTheSameRecord(t *testing.T) {
	s := signer(t, 1)
	want := sign(t, s)
	job, artifacts := ended()
	rand.Shuffle(len(artifacts), func(i, j int) { artifacts[i], artifacts[j] = artifacts[j], artifacts[i] })
	job.CreatedAt = job.CreatedAt.In(time.FixedZone("elsewhere", -7200))
	got, err := s.Sign(job, artifacts)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the same record gave another receipt: %v\n%s\n%s", err, got, want)
	}
	const golden = "testdata/receipt.json"
	if *update {
		if err := os.WriteFile(golden, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(golden); err != nil || !bytes.Equal(data, want) {
		t.Errorf("the form of receipts has changed (%v); if it means something else now, PredicateType must change too. Write it with -update", err)
	}
}

// A zero would say that somebody had looked, or that there was a limit.
func TestWhatNobodyMeasuredIsNotSigned(t *testing.T) {
	job, artifacts := ended()
	job.Usage = run.Usage{DiskBytes: 4096}
	job.Spec.Limits = run.Limits{OutputBytes: 7}
	s, err := Of(job, artifacts)
	if err != nil {
		t.Fatal(err)
	}
	usage, _ := json.Marshal(s.Predicate.Usage)
	limits, _ := json.Marshal(s.Predicate.Request.Limits)
	if string(usage) != `{"disk_bytes":4096}` || string(limits) != `{"output_bytes":7}` {
		t.Errorf("usage %s, limits %s", usage, limits)
	}
}

func TestReceiptVerifies(t *testing.T) {
	old, now, other := signer(t, 1), signer(t, 2), signer(t, 3)
	for _, s := range []*Signer{old, now} {
		got, err := Verify(sign(t, s), []ed25519.PublicKey{old.Public(), now.Public()})
		if err != nil {
			t.Fatal(err)
		}
		if got.KeyID != s.KeyID() || got.Statement.Predicate.Job.Attempts != 2 || len(got.Statement.Subject) != 3 {
			t.Errorf("%+v", got)
		}
	}
	for name, keys := range map[string][]ed25519.PublicKey{"no key": nil, "another key": {other.Public()}} {
		if got, err := Verify(sign(t, old), keys); err == nil || got.KeyID != "" || got.Statement.Type != "" {
			t.Errorf("verified with %s: %+v", name, got)
		}
	}
}

// TestEveryTamperedFieldIsNoticed changes one value of the statement after the
// other, and the parts of the envelope.
func TestEveryTamperedFieldIsNoticed(t *testing.T) {
	s := signer(t, 1)
	keys := []ed25519.PublicKey{s.Public(), signer(t, 2).Public()}
	envelope := decode(t, sign(t, s)).(map[string]any)
	payload, err := base64.StdEncoding.DecodeString(envelope["payload"].(string))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, env any) {
		data, err := json.Marshal(env)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Verify(data, keys); err == nil || got.Statement.Type != "" {
			t.Errorf("%s was changed, and the receipt verifies", what)
		}
	}
	seal := func(payload []byte) map[string]any {
		env := decode(t, sign(t, s)).(map[string]any)
		env["payload"] = base64.StdEncoding.EncodeToString(payload)
		return env
	}
	// Control: what is not changed verifies.
	if data, _ := json.Marshal(seal(payload)); data != nil {
		if _, err := Verify(data, keys); err != nil {
			t.Fatalf("nothing was changed: %v", err)
		}
	}
	changed := 0
	mutate(decode(t, payload), "", func(path string, root any) {
		changed++
		data, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		refused(path, seal(data))
	})
	if changed < 80 {
		t.Errorf("only %d values were changed", changed)
	}
	refused("white space", seal(append(payload, ' ')))
	mutate(envelope, "", func(path string, root any) { refused("envelope"+path, root) })
	extra := seal(payload)
	extra["more"] = 1
	refused("a field that nobody knows", extra)
	twice := seal(payload)
	twice["signatures"] = append(twice["signatures"].([]any), twice["signatures"].([]any)[0])
	refused("the number of signatures", twice)
	if _, err := Verify(append(sign(t, s), sign(t, s)...), keys); err == nil {
		t.Error("two envelopes verify as one")
	}
}

// TestOneReaderSeesWhatAnotherSees tries envelopes in which one reader of JSON
// finds the signed payload and another finds one that was put beside it.
func TestOneReaderSeesWhatAnotherSees(t *testing.T) {
	s := signer(t, 1)
	keys := []ed25519.PublicKey{s.Public()}
	whole := string(sign(t, s))
	envelope := decode(t, []byte(whole)).(map[string]any)
	payload := envelope["payload"].(string)
	sig := envelope["signatures"].([]any)[0].(map[string]any)["sig"].(string)
	with := func(old, new string) string {
		changed := strings.Replace(whole, old, new, 1)
		if changed == whole {
			t.Fatalf("the envelope does not hold %.60q", old)
		}
		return changed
	}
	forged := base64.StdEncoding.EncodeToString([]byte(`{"forged":true}`))
	begin := whole[:1]
	for name, env := range map[string]string{
		"the forged one first":        with(begin, begin+`"payload":"`+forged+`",`),
		"other capitals first":        with(begin, begin+`"PAYLOAD":"`+forged+`",`),
		"the signed one in capitals":  strings.Replace(with(`"payload"`, `"PAYLOAD"`), begin, begin+`"payload":"`+forged+`",`, 1),
		"an escaped name":             with(begin, begin+`"p\u0061yload":"`+forged+`",`),
		"a line break in the payload": with(payload, payload[:8]+`\n`+payload[8:]),
		"a line break in the sig":     with(sig, sig[:8]+`\n`+sig[8:]),
		"base64 for URLs":             with(sig, strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(sig)),
		"bits after the signature":    with(sig, strings.TrimRight(sig, "=")[:85]+otherEnd(sig)+"=="),
	} {
		if _, err := Verify([]byte(env), keys); err == nil {
			t.Errorf("%s: the receipt verifies", name)
		}
	}
	if _, err := Verify([]byte(whole), keys); err != nil {
		t.Errorf("control: %v", err)
	}
}

// otherEnd is the last letter of a signature's base64 with another value in the
// four bits that do not count: 64 bytes are 85 letters and two bits.
func otherEnd(sig string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	return string(letters[strings.IndexByte(letters, sig[85])|1])
}

func decode(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// mutate calls try with the whole value, with one leaf of it changed at a time.
func mutate(root any, path string, try func(path string, root any)) {
	var walk func(v any, path string, set func(any))
	walk = func(v any, path string, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				old := v[k]
				walk(old, path+"."+k, func(n any) { v[k] = n })
				v[k] = old
				delete(v, k)
				try(path+"."+k+" (removed)", root)
				v[k] = old
			}
		case []any:
			for i := range v {
				old := v[i]
				walk(old, fmt.Sprintf("%s[%d]", path, i), func(n any) { v[i] = n })
				v[i] = old
			}
			if len(v) > 0 {
				set(v[1:])
				try(path+" (shortened)", root)
				set(v)
			}
		default:
			var n any
			switch v := v.(type) {
			case string:
				n = "x" + v
			case json.Number:
				n = json.Number("1" + v.String())
			case bool:
				n = !v
			default:
				n = "x"
			}
			set(n)
			try(path, root)
			set(v)
		}
	}
	walk(root, path, func(any) {})
}

// TestOthersCanVerifyIt follows the specifications of DSSE and in-toto without
// our code, and reads the statement with in-toto's own.
func TestOthersCanVerifyIt(t *testing.T) {
	s := signer(t, 1)
	var env struct {
		Payload     []byte
		PayloadType string
		Signatures  []struct {
			KeyID string
			Sig   []byte
		}
	}
	if err := json.Unmarshal(sign(t, s), &env); err != nil {
		t.Fatal(err)
	}
	pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(env.PayloadType), env.PayloadType, len(env.Payload), env.Payload)
	if !ed25519.Verify(s.Public(), []byte(pae), env.Signatures[0].Sig) {
		t.Error("the signature is not on the pre-authentication encoding")
	}
	var st intoto.Statement
	if err := protojson.Unmarshal(env.Payload, &st); err != nil {
		t.Fatal(err)
	}
	if err := st.Validate(); err != nil {
		t.Error(err)
	}
	if st.GetSubject()[2].GetName() != "out/ä" || st.GetPredicateType() != PredicateType {
		t.Errorf("%v", &st)
	}
	// The first subject is the request as it stands in the predicate.
	var shown struct {
		Predicate struct{ Request json.RawMessage }
	}
	if err := json.Unmarshal(env.Payload, &shown); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(shown.Predicate.Request)
	if got := st.GetSubject()[0].GetDigest()["sha256"]; got != hex.EncodeToString(sum[:]) {
		t.Errorf("the request's digest is %s", got)
	}
}

func TestNoValueOfAVariableIsInIt(t *testing.T) {
	job, artifacts := ended()
	job.Spec.Commands[0].Stdin = []byte("hunter2-input!")
	st, err := Of(job, artifacts)
	if err != nil {
		t.Fatal(err)
	}
	data, err := encode(st)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("hunter2")) {
		t.Errorf("a value of the environment is in the receipt: %s", data)
	}
	for _, name := range []string{"TOKEN", "PASSWORD"} {
		if !bytes.Contains(data, []byte(name)) {
			t.Errorf("%s is not named", name)
		}
	}
	// Another value gives the same receipt: not even a digest tells.
	job.Spec.Env["PASSWORD"], job.Spec.Commands[0].Env["TOKEN"] = "other", "other"
	job.Spec.Commands[0].Stdin = []byte("other-input-13")
	again, err := Of(job, artifacts)
	if err != nil {
		t.Fatal(err)
	}
	if other, _ := encode(again); !bytes.Equal(other, data) {
		t.Error("the receipt depends on the value of a variable")
	}
}

func TestJobsThatRunHaveNoReceipt(t *testing.T) {
	job, artifacts := ended()
	job.State = run.Running
	if _, err := signer(t, 1).Sign(job, artifacts); err == nil {
		t.Error("a job that runs has a receipt")
	}
}
