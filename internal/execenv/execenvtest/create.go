package execenvtest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var createCases = []testCase{
	{clause: "P1", name: "create_is_idempotent", run: createTwice},
	{clause: "P1", name: "different_spec_conflicts", run: createConflicts},
	{clause: "P1", name: "concurrent_creates_make_one", run: createConcurrently},
	{clause: "P1", name: "concurrent_different_specs_have_one_winner", run: createRace},
	{clause: "P2", name: "ended_context_leaves_nothing", run: createEnded},
	{clause: "P2", name: "context_that_ends_at_any_moment_leaves_nothing", run: createCutOff},
	{clause: "P2", name: "failure_half_way_leaves_nothing", needs: needsFailCreate, run: createFails},
	{clause: "P2", name: "unknown_image_leaves_nothing", run: createUnknownImage},
	{clause: "P3", name: "malformed_specs_are_invalid", run: malformedSpecs},
	{clause: "P3", name: "limits_below_the_floor_are_invalid", run: limitsBelowFloor},
	{clause: "P3", name: "unenforceable_limits_are_unsupported", run: unsupportedLimits},
	{clause: "P3", name: "malformed_commands_are_invalid", run: malformedCommands},
	{clause: "P3", name: "malformed_archive_requests_are_invalid", run: malformedRequests},
	{clause: "P3", name: "limits_are_listed_as_given", run: limitsAsGiven},
	{clause: "P4", name: "attach_returns_the_sandbox", run: attach},
	{clause: "P4", name: "attach_unknown_is_not_found", run: attachUnknown},
	{clause: "P5", name: "list_describes_every_sandbox", run: listDescribes},
}

func createTwice(c *C) {
	b := c.create(func(s *execenv.Spec) {
		s.Env = map[string]string{"A": "1"}
		s.Labels = map[string]string{"agentdock.sandbox": "true"}
	})
	b.output("write", "/workspace/mark", "first")
	again := b.spec
	again.Env, again.Labels = maps.Clone(again.Env), maps.Clone(again.Labels)
	s, err := c.env.Create(c.ctx(), again)
	c.ok("Create again", err)
	second := &box{Sandbox: s, c: c, spec: again}
	if got := second.output("read", "/workspace/mark"); got != "first" {
		c.Errorf("the second Create gave another sandbox: its file holds %q", got)
	}
	if infos, _ := c.env.List(c.ctx()); len(infos) != 1 {
		c.Errorf("List names %d sandboxes, want 1", len(infos))
	}
}

func createConflicts(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Env = map[string]string{"A": "1"} })
	for name, mod := range map[string]func(*execenv.Spec){
		"environment": func(s *execenv.Spec) { s.Env = map[string]string{"A": "2"} },
		"no variable": func(s *execenv.Spec) { s.Env = nil },
		"labels":      func(s *execenv.Spec) { s.Labels = map[string]string{"tenant": "other"} },
		"limit":       func(s *execenv.Spec) { s.Limits.OutputBytes++ },
		"lifetime":    func(s *execenv.Spec) { s.Lifetime = time.Hour },
	} {
		other := b.spec
		mod(&other)
		_, err := c.env.Create(c.ctx(), other)
		c.code("Create with another "+name, err, fault.Conflict)
	}
	if got := b.output("echo", "still here"); got != "still here\n" {
		c.Errorf("after the conflicts the sandbox prints %q", got)
	}
}

func createConcurrently(c *C) {
	spec := c.spec()
	boxes := make([]*box, 6)
	together(len(boxes), func(i int) {
		s, err := c.env.Create(c.ctx(), spec)
		if err != nil {
			c.Errorf("concurrent Create: %v", err)
			return
		}
		boxes[i] = &box{Sandbox: s, c: c, spec: spec}
	})
	if c.Failed() {
		return
	}
	boxes[0].install()
	boxes[0].output("write", "/workspace/mark", "one")
	for _, b := range boxes {
		if got := b.output("read", "/workspace/mark"); got != "one" {
			c.Errorf("a handle leads to another sandbox: %q", got)
		}
	}
	if infos, _ := c.env.List(c.ctx()); len(infos) != 1 {
		c.Errorf("List names %d sandboxes, want 1", len(infos))
	}
}

func createRace(c *C) {
	spec := c.spec()
	errs := make([]error, 4)
	together(len(errs), func(i int) {
		mine := spec
		mine.Limits.OutputBytes += int64(i)
		_, errs[i] = c.env.Create(c.ctx(), mine)
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		c.code("Create that lost", err, fault.Conflict)
	}
	if won != 1 {
		c.Errorf("%d different Specs with one ID were created, want 1", won)
	}
}

func createEnded(c *C) {
	spec := c.spec()
	if _, err := c.env.Create(ended(), spec); err == nil {
		c.Errorf("Create with an ended context succeeded")
	}
	if info, ok := c.listed(spec.ID); ok {
		c.Errorf("after it List has %+v", info)
	}
	_, err := c.env.Create(c.ctx(), spec)
	c.ok("Create with the same ID", err)
}

func createCutOff(c *C) {
	for _, after := range []time.Duration{
		0, 100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond, 10 * time.Millisecond,
		20 * time.Millisecond, 35 * time.Millisecond, 60 * time.Millisecond,
	} {
		spec := c.spec()
		ctx, cancel := context.WithTimeout(context.Background(), after)
		_, err := c.env.Create(ctx, spec)
		cancel()
		_, found := c.listed(spec.ID)
		switch {
		case err != nil && found:
			c.Errorf("Create that ended after %s (%v) left the sandbox", after, err)
		case err == nil && !found:
			c.Errorf("Create succeeded within %s, but the sandbox is not listed", after)
		}
		// The ID is usable with a different Spec, unless it was created.
		if err != nil {
			spec.Limits.OutputBytes++
			_, err = c.env.Create(c.ctx(), spec)
			c.ok("Create with the same ID", err)
		}
		c.ok("Destroy", c.env.Destroy(c.ctx(), spec.ID))
	}
}

func createFails(c *C) {
	spec := c.spec()
	heal := c.h.FailCreate(c.T, c.env, spec.ID)
	if _, err := c.env.Create(c.ctx(), spec); err == nil {
		c.Errorf("Create succeeded although it was made to fail")
	}
	if info, ok := c.listed(spec.ID); ok {
		c.Errorf("Create failed, and List has %+v", info)
	}
	heal()
	_, err := c.env.Create(c.ctx(), spec)
	c.ok("Create with the same ID", err)
}

func createUnknownImage(c *C) {
	spec := c.spec(func(s *execenv.Spec) { s.Image = "no-such-image-anywhere:latest" })
	_, err := c.env.Create(c.ctx(), spec)
	c.code("Create with an unknown image", err, fault.NotFound, fault.Invalid)
	if info, ok := c.listed(spec.ID); ok {
		c.Errorf("after it List has %+v", info)
	}
	spec.Image = c.h.Image
	_, err = c.env.Create(c.ctx(), spec)
	c.ok("Create with the same ID", err)
}

func malformedSpecs(c *C) {
	long := strings.Repeat("x", 5000)
	for name, mod := range map[string]func(*execenv.Spec){
		"no ID":             func(s *execenv.Spec) { s.ID = "" },
		"ID with slash":     func(s *execenv.Spec) { s.ID = "a/b" },
		"ID that climbs":    func(s *execenv.Spec) { s.ID = ".." },
		"ID in upper case":  func(s *execenv.Spec) { s.ID = "Abc" },
		"ID like a flag":    func(s *execenv.Spec) { s.ID = "-rf" },
		"ID with newline":   func(s *execenv.Spec) { s.ID = "a\nb" },
		"long ID":           func(s *execenv.Spec) { s.ID = strings.Repeat("a", 64) },
		"no image":          func(s *execenv.Spec) { s.Image = "" },
		"long image":        func(s *execenv.Spec) { s.Image = long },
		"variable with =":   func(s *execenv.Spec) { s.Env = map[string]string{"A=B": "1"} },
		"variable no name":  func(s *execenv.Spec) { s.Env = map[string]string{"": "1"} },
		"variable with NUL": func(s *execenv.Spec) { s.Env = map[string]string{"A": "1\x002"} },
		"label no name":     func(s *execenv.Spec) { s.Labels = map[string]string{"": "1"} },
		"label not UTF-8":   func(s *execenv.Spec) { s.Labels = map[string]string{"a": "\xff"} },
		"long label":        func(s *execenv.Spec) { s.Labels = map[string]string{"a": long} },
		"negative lifetime": func(s *execenv.Spec) { s.Lifetime = -time.Second },
	} {
		_, err := c.env.Create(c.ctx(), c.spec(mod))
		c.code("Create with "+name, err, fault.Invalid)
	}
	if infos, _ := c.env.List(c.ctx()); len(infos) > 0 {
		c.Errorf("List names %d sandboxes, want none", len(infos))
	}
}

func limitsBelowFloor(c *C) {
	zeros := map[string]func(*run.Limits){
		"no limits":     func(l *run.Limits) { *l = run.Limits{} },
		"no disk":       func(l *run.Limits) { l.DiskBytes = 0 },
		"no output":     func(l *run.Limits) { l.OutputBytes = 0 },
		"no wall clock": func(l *run.Limits) { l.WallClock = 0 },
	}
	tooLittle := map[string]func(*run.Limits){
		"negative memory": func(l *run.Limits) { l.MemoryBytes = -1 },
		"little memory":   func(l *run.Limits) { l.MemoryBytes = run.MiB },
		"little disk":     func(l *run.Limits) { l.DiskBytes = 1 },
		"few inodes":      func(l *run.Limits) { l.Inodes = 1 },
		"negative output": func(l *run.Limits) { l.OutputBytes = -5 },
	}
	if !c.h.Served {
		maps.Copy(tooLittle, zeros)
	}
	for name, mod := range tooLittle {
		spec := c.spec()
		mod(&spec.Limits)
		_, err := c.env.Create(c.ctx(), spec)
		c.code("Create with "+name, err, fault.Invalid)
	}
	// Each limit that holds must be given, by whoever fills it in.
	if c.h.Served {
		return
	}
	for _, l := range one(c.limits()) {
		spec := c.spec()
		if *l.of(&spec.Limits) == 0 {
			continue
		}
		*l.of(&spec.Limits) = 0
		_, err := c.env.Create(c.ctx(), spec)
		c.code("Create without a "+l.name+" limit", err, fault.Invalid)
	}
}

// limit is one of run.Limits: its name, a value, and where it is.
type limit struct {
	name  string
	value int64
	of    func(*run.Limits) *int64
}

func one(l run.Limits) []limit {
	return []limit{
		{"cpu", l.MilliCPU, func(l *run.Limits) *int64 { return &l.MilliCPU }},
		{"memory", l.MemoryBytes, func(l *run.Limits) *int64 { return &l.MemoryBytes }},
		{"pids", l.PIDs, func(l *run.Limits) *int64 { return &l.PIDs }},
		{"disk", l.DiskBytes, func(l *run.Limits) *int64 { return &l.DiskBytes }},
		{"inodes", l.Inodes, func(l *run.Limits) *int64 { return &l.Inodes }},
		{"output", l.OutputBytes, func(l *run.Limits) *int64 { return &l.OutputBytes }},
		{"wall clock", int64(l.WallClock), func(l *run.Limits) *int64 { return (*int64)(&l.WallClock) }},
	}
}

// unsupportedLimits checks that the environment's word about each limit is what
// Create does.
func unsupportedLimits(c *C) {
	c.bare() // all that are declared to hold, at once
	missing := c.caps.Enforces.Missing()
	for _, l := range one(c.limits()) {
		if !slices.Contains(missing, l.name) {
			continue
		}
		spec := c.spec()
		*l.of(&spec.Limits) = l.value
		_, err := c.env.Create(c.ctx(), spec)
		c.code("Create with a "+l.name+" limit, which is declared not to hold", err, fault.Unsupported)
		if info, ok := c.listed(spec.ID); ok {
			c.Errorf("after it List has %+v", info)
		}
	}
}

func malformedCommands(c *C) {
	b := c.create()
	for name, mod := range map[string]func(*execenv.ExecSpec){
		"no command":           func(e *execenv.ExecSpec) { e.Argv = nil },
		"empty command":        func(e *execenv.ExecSpec) { e.Argv = []string{""} },
		"argument with NUL":    func(e *execenv.ExecSpec) { e.Argv = append(e.Argv, "a\x00b") },
		"absolute directory":   func(e *execenv.ExecSpec) { e.Dir = "/etc" },
		"directory climbs":     func(e *execenv.ExecSpec) { e.Dir = "a/../../etc" },
		"directory with NUL":   func(e *execenv.ExecSpec) { e.Dir = "a\x00" },
		"variable with =":      func(e *execenv.ExecSpec) { e.Env = map[string]string{"A=": "1"} },
		"negative timeout":     func(e *execenv.ExecSpec) { e.Timeout = -1 },
		"negative output":      func(e *execenv.ExecSpec) { e.OutputBytes = -1 },
		"terminal without row": func(e *execenv.ExecSpec) { e.TTY = &execenv.WindowSize{Cols: 80} },
		"malformed ID":         func(e *execenv.ExecSpec) { e.ID = "../x" },
	} {
		spec := probe("exit", "0")
		mod(&spec)
		_, err := b.Exec(c.ctx(), spec)
		c.code("Exec with "+name, err, fault.Invalid)
	}
}

func malformedRequests(c *C) {
	b := c.bare()
	for name, req := range map[string]execenv.ArchiveRequest{
		"absolute directory": {Dir: "/etc"},
		"directory climbs":   {Dir: "a/../.."},
		"absolute pattern":   {Patterns: []string{"/etc/*"}},
		"pattern climbs":     {Patterns: []string{"../*"}},
		"empty pattern":      {Patterns: []string{""}},
		"malformed pattern":  {Patterns: []string{"[a"}},
		"negative bound":     {MaxBytes: -1},
	} {
		var w strings.Builder
		c.code("GetArchive with "+name, b.GetArchive(c.ctx(), req, &w), fault.Invalid)
		if w.Len() > 0 {
			c.Errorf("GetArchive with %s wrote %d bytes", name, w.Len())
		}
	}
	for _, dir := range []string{"/etc", "../x", "a/../../b", "a\x00b"} {
		err := b.PutArchive(c.ctx(), dir, strings.NewReader(string(tarOf(c.T))))
		c.code("PutArchive into "+dir, err, fault.Invalid)
	}
}

func limitsAsGiven(c *C) {
	b := c.bare(func(s *execenv.Spec) {
		s.Limits.MilliCPU, s.Limits.PIDs = 777, 77
		s.Limits.DiskBytes, s.Limits.Inodes = 7777*run.KiB, 1234
	})
	info, err := b.Info(c.ctx())
	c.ok("Info", err)
	if info.Limits != b.spec.Limits {
		c.Errorf("Info has the limits %+v, want %+v", info.Limits, b.spec.Limits)
	}
}

func attach(c *C) {
	b := c.create()
	b.output("write", "/workspace/mark", "same")
	together(4, func(int) {
		s, err := c.env.Attach(c.ctx(), b.ID())
		if err != nil {
			c.Errorf("Attach: %v", err)
			return
		}
		if s.ID() != b.ID() {
			c.Errorf("Attach(%s) gave %s", b.ID(), s.ID())
		}
		other := &box{Sandbox: s, c: c, spec: b.spec}
		if got := other.output("read", "/workspace/mark"); got != "same" {
			c.Errorf("the attached sandbox's file holds %q", got)
		}
	})
}

func attachUnknown(c *C) {
	_, err := c.env.Attach(c.ctx(), c.id())
	c.code("Attach to an unknown ID", err, fault.NotFound)
	b := c.bare()
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	_, err = c.env.Attach(c.ctx(), b.ID())
	c.code("Attach to a destroyed sandbox", err, fault.NotFound)
	for _, id := range []string{"", "../x", "A"} {
		_, err = c.env.Attach(c.ctx(), id)
		c.code("Attach to "+id, err, fault.NotFound, fault.Invalid)
	}
}

func listDescribes(c *C) {
	before := time.Now().Add(-2 * time.Second)
	want := map[string]execenv.Spec{}
	for range 3 {
		b := c.bare(func(s *execenv.Spec) {
			s.Labels = map[string]string{"agentdock.execution_id": c.id(), "é": "ü"}
		})
		want[b.ID()] = b.spec
	}
	infos, err := c.env.List(c.ctx())
	c.ok("List", err)
	if len(infos) != len(want) {
		c.Errorf("List names %d sandboxes, want %d", len(infos), len(want))
	}
	for _, info := range infos {
		spec, ok := want[info.ID]
		switch {
		case !ok:
			c.Errorf("List names %q, which nobody made", info.ID)
			continue
		case info.State != execenv.StateRunning, info.Outcome != nil, info.Image != spec.Image, info.Limits != spec.Limits,
			!maps.Equal(info.Labels, spec.Labels):
			c.Errorf("List has %+v for %+v", info, spec)
		case info.CreatedAt.Before(before), info.CreatedAt.After(time.Now().Add(2 * time.Second)):
			c.Errorf("CreatedAt is %s, now is %s", info.CreatedAt, time.Now())
		case !info.ExpiresAt.IsZero() && !c.h.Served:
			c.Errorf("a sandbox without lifetime expires at %s", info.ExpiresAt)
		}
	}
}
