package e2b

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// labelTemplate remembers which template a sandbox was asked for by.
const labelTemplate = "e2b.template"

// newSandbox is what a client asks for.
type newSandbox struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	AutoPause  bool              `json:"autoPause"`
	// What would have to be more than a word is looked at no further.
	Network json.RawMessage `json:"network"`
	Volumes []any           `json:"volumeMounts"`
	MCP     json.RawMessage `json:"mcp"`
	IAM     json.RawMessage `json:"iam"`
}

// session is what a client needs to use a sandbox.
type session struct {
	SandboxID       string `json:"sandboxID"`
	TemplateID      string `json:"templateID"`
	ClientID        string `json:"clientID"`
	EnvdVersion     string `json:"envdVersion"`
	EnvdAccessToken string `json:"envdAccessToken"`
	// TrafficAccessToken is the same: clients send this one, and not the other,
	// with calls that are about contexts of the code interpreter.
	TrafficAccessToken string `json:"trafficAccessToken"`
}

// details describe a sandbox.
type details struct {
	SandboxID           string            `json:"sandboxID"`
	TemplateID          string            `json:"templateID"`
	Alias               string            `json:"alias,omitempty"`
	ClientID            string            `json:"clientID"`
	StartedAt           time.Time         `json:"startedAt"`
	EndAt               time.Time         `json:"endAt"`
	State               string            `json:"state"`
	CPUCount            int64             `json:"cpuCount"`
	MemoryMB            int64             `json:"memoryMB"`
	DiskSizeMB          int64             `json:"diskSizeMB"`
	EnvdVersion         string            `json:"envdVersion"`
	Metadata            map[string]string `json:"metadata"`
	AllowInternetAccess bool              `json:"allowInternetAccess"`
}

func (f *Facade) create(w http.ResponseWriter, r *http.Request) error {
	var n newSandbox
	if err := readBody(r, &n); err != nil {
		return err
	}
	if err := n.supported(); err != nil {
		return err
	}
	image, known := f.cfg.Templates[n.TemplateID]
	if !known {
		image = n.TemplateID
	}
	ttl := f.cfg.TTL
	if n.Timeout != nil {
		var err error
		if ttl, err = seconds(*n.Timeout); err != nil {
			return err
		}
	}
	labels := maps.Clone(n.Metadata)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelTemplate] = n.TemplateID
	box, _, err := f.live.Create(r.Context(), exchangeOf(r.Context()).caller, live.Request{
		Image: image, Env: n.EnvVars, Limits: f.cfg.Limits, Labels: labels, TTL: ttl,
	})
	if err != nil {
		return err
	}
	answer(w, http.StatusCreated, sessionOf(box))
	return nil
}

// supported refuses what would otherwise be ignored in silence.
func (n newSandbox) supported() error {
	set := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" && string(v) != "{}" }
	switch {
	case n.TemplateID == "":
		return fault.New(fault.Invalid, "templateID is missing")
	case n.AutoPause:
		return fault.New(fault.Unsupported, "sandboxes are not paused here when their time is over, they end; pause one before")
	case set(n.Network):
		return fault.New(fault.Unsupported, "sandboxes have no network here, and nothing can be set for it")
	case len(n.Volumes) > 0:
		return fault.New(fault.Unsupported, "there are no volumes here")
	case set(n.MCP):
		return fault.New(fault.Unsupported, "no MCP servers can be started in a sandbox here")
	case set(n.IAM):
		return fault.New(fault.Unsupported, "sandboxes have no identity here: they get no secrets")
	}
	return nil
}

func seconds(n int64) (time.Duration, error) {
	if n < 0 || n > 366*24*3600 {
		return 0, fault.New(fault.Invalid, "a time of %d seconds is not possible", n)
	}
	return max(time.Duration(n)*time.Second, live.MinTTL), nil
}

func sessionOf(box run.Sandbox) session {
	return session{
		SandboxID: box.ID, TemplateID: templateOf(box), ClientID: "agentdock",
		EnvdVersion: daemonVersion, EnvdAccessToken: box.AccessToken, TrafficAccessToken: box.AccessToken,
	}
}

func templateOf(box run.Sandbox) string {
	if t := box.Spec.Labels[labelTemplate]; t != "" {
		return t
	}
	return box.Spec.Image
}

func detailsOf(box run.Sandbox) details {
	metadata := maps.Clone(box.Spec.Labels)
	if metadata == nil {
		metadata = map[string]string{}
	}
	delete(metadata, labelTemplate)
	return details{
		SandboxID: box.ID, TemplateID: templateOf(box), ClientID: "agentdock",
		StartedAt: box.CreatedAt, EndAt: box.ExpiresAt, State: stateOf(box),
		CPUCount: max(1, box.Spec.Limits.MilliCPU/1000), MemoryMB: box.Spec.Limits.MemoryBytes / run.MiB,
		DiskSizeMB: box.Spec.Limits.DiskBytes / run.MiB, EnvdVersion: daemonVersion, Metadata: metadata,
	}
}

func stateOf(box run.Sandbox) string {
	if box.State == run.SandboxPaused {
		return "paused"
	}
	return "running"
}

// alive returns a sandbox that can be used; to these clients, one that has ended
// does not exist.
func (f *Facade) alive(r *http.Request) (run.Sandbox, error) {
	box, err := f.live.Get(r.Context(), exchangeOf(r.Context()).caller, chi.URLParam(r, "id"))
	if err == nil && !box.State.Alive() {
		err = fault.New(fault.NotFound, "sandbox %s has ended", box.ID)
	}
	return box, err
}

func (f *Facade) info(w http.ResponseWriter, r *http.Request) error {
	box, err := f.alive(r)
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, detailsOf(box))
	return nil
}

func (f *Facade) kill(w http.ResponseWriter, r *http.Request) error {
	box, err := f.alive(r)
	if err != nil {
		return err
	}
	if _, err := f.live.Kill(r.Context(), exchangeOf(r.Context()).caller, box.ID); err != nil {
		return err
	}
	f.watchers.forget(box.ID)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// pause puts a sandbox away.
func (f *Facade) pause(w http.ResponseWriter, r *http.Request) error {
	box, err := f.alive(r)
	if err != nil {
		return err
	}
	if _, err := f.live.Pause(r.Context(), exchangeOf(r.Context()).caller, box.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connect gives a sandbox into a client's hands again, and never shortens its
// time. One that is paused is resumed, which its status tells.
func (f *Facade) connect(w http.ResponseWriter, r *http.Request) error {
	ttl, err := timeIn(r, f.cfg.TTL)
	if err != nil {
		return err
	}
	box, err := f.alive(r)
	if err != nil {
		return err
	}
	caller, status := exchangeOf(r.Context()).caller, http.StatusOK
	if box.State == run.SandboxPaused {
		status = http.StatusCreated
		box, err = f.live.Resume(r.Context(), caller, box.ID, ttl)
	}
	if status == http.StatusOK || fault.Is(err, fault.Conflict) { // somebody else has resumed it
		box, err = f.live.Extend(r.Context(), caller, box.ID, ttl, true)
	}
	if err != nil {
		return err
	}
	answer(w, status, sessionOf(box))
	return nil
}

func (f *Facade) timeout(w http.ResponseWriter, r *http.Request) error {
	if _, err := f.extend(r, f.cfg.TTL, false); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Facade) refresh(w http.ResponseWriter, r *http.Request) error {
	if _, err := f.extend(r, time.Minute, true); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// extend sets the time of a sandbox as the body says, or to ttl from now.
func (f *Facade) extend(r *http.Request, ttl time.Duration, atLeast bool) (run.Sandbox, error) {
	ttl, err := timeIn(r, ttl)
	if err != nil {
		return run.Sandbox{}, err
	}
	return f.live.Extend(r.Context(), exchangeOf(r.Context()).caller, chi.URLParam(r, "id"), ttl, atLeast)
}

// timeIn is the time that a body asks for, or ttl.
func timeIn(r *http.Request, ttl time.Duration) (time.Duration, error) {
	var body struct {
		Timeout  *int64 `json:"timeout"`
		Duration *int64 `json:"duration"` // what refreshes calls it
	}
	if err := readBody(r, &body); err != nil {
		return 0, err
	}
	for _, n := range []*int64{body.Timeout, body.Duration} {
		if n != nil {
			var err error
			if ttl, err = seconds(*n); err != nil {
				return 0, err
			}
		}
	}
	return ttl, nil
}

func (f *Facade) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	for _, name := range []string{"startedAfter", "template"} {
		if query.Get(name) != "" {
			return fault.New(fault.Unsupported, "sandboxes cannot be listed by %s here", name)
		}
	}
	if order := query.Get("order"); order != "" && order != "desc" {
		return fault.New(fault.Unsupported, "sandboxes are listed newest first here")
	}
	q := store.SandboxQuery{
		Labels: map[string]string{}, Cursor: query.Get("nextToken"),
	}
	pairs, err := url.ParseQuery(query.Get("metadata"))
	if err != nil {
		return fault.New(fault.Invalid, "metadata is not encoded as a query")
	}
	for name, values := range pairs {
		// Clients encode names and values once more before they make a query.
		name, err1 := url.PathUnescape(name)
		value, err2 := url.PathUnescape(values[0])
		if err1 != nil || err2 != nil {
			return fault.New(fault.Invalid, "metadata is not encoded as a query")
		}
		q.Labels[name] = value
	}
	if limit := query.Get("limit"); limit != "" {
		if q.Limit, err = strconv.Atoi(limit); err != nil {
			return fault.New(fault.Invalid, "limit %q is no number", limit)
		}
		// Clients go on with the next page, whatever the size of one.
		q.Limit = min(q.Limit, control.MaxPage)
	}
	if wants(query["state"], "running") {
		q.States = append(q.States, run.SandboxCreating, run.SandboxRunning)
	}
	if wants(query["state"], "paused") {
		q.States = append(q.States, run.SandboxPaused)
	}
	found := []details{}
	if len(q.States) > 0 {
		page, err := f.live.List(r.Context(), exchangeOf(r.Context()).caller, q)
		if err != nil {
			return err
		}
		for _, box := range page.Sandboxes {
			found = append(found, detailsOf(box))
		}
		if page.Next != "" {
			w.Header().Set("X-Next-Token", page.Next)
		}
	}
	answer(w, http.StatusOK, found)
	return nil
}

// wants reports whether a list of states, separated by commas, has one; an empty
// one has all.
func wants(states []string, state string) bool {
	all := strings.Join(states, ",")
	if all == "" {
		return true
	}
	for s := range strings.SplitSeq(all, ",") {
		if s == state {
			return true
		}
	}
	return false
}

// metric is what a sandbox used at a moment.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int64     `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func (f *Facade) metrics(w http.ResponseWriter, r *http.Request) error {
	if _, err := f.alive(r); err != nil {
		return err
	}
	box, samples, err := f.live.Metrics(r.Context(), exchangeOf(r.Context()).caller, chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	from, to := unixParam(r, "start"), unixParam(r, "end")
	all := []metric{}
	before := live.Sample{At: box.CreatedAt}
	for _, s := range samples {
		m := metric{
			Timestamp: s.At, TimestampUnix: s.At.Unix(), CPUCount: max(1, box.Spec.Limits.MilliCPU/1000),
			MemUsed: s.Usage.MemoryBytes, MemTotal: box.Spec.Limits.MemoryBytes,
			DiskUsed: s.Usage.DiskBytes, DiskTotal: box.Spec.Limits.DiskBytes,
		}
		if passed := s.At.Sub(before.At); passed > 0 {
			m.CPUUsedPct = 100 * float64(max(0, s.Usage.CPU-before.Usage.CPU)) / float64(passed)
		}
		before = s
		if (from == 0 || m.TimestampUnix >= from) && (to == 0 || m.TimestampUnix <= to) {
			all = append(all, m)
		}
	}
	answer(w, http.StatusOK, all)
	return nil
}

func unixParam(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	return n
}
