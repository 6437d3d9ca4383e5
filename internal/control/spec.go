package control

import (
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Bounds on what one job may ask for. api/openapi.yaml states them too.
const (
	MaxCommands      = run.MaxCommands
	MaxArgs          = 1024
	MaxPatterns      = 64
	MaxPatternBytes  = 1024
	MaxLabels        = 32
	MaxLabelBytes    = 256
	MaxVariables     = 128
	MaxVariableBytes = 64 << 10
	MaxAttempts      = 10
	MaxImageBytes    = 512
	MaxStdinBytes    = 512 << 10 // of all commands together; a body has room for it in base64
)

// complete fills in what the caller left to us, and refuses what no worker
// should be given.
func (c *Control) complete(s run.JobSpec, t tenant.Tenant) (run.JobSpec, error) {
	if s.Image == "" {
		s.Image = c.cfg.Image
	}
	if s.Timeout == 0 {
		s.Timeout = c.cfg.Timeout
	}
	if s.Timeout < 0 {
		return s, refuse("timeout_ms is negative")
	}
	s.Timeout = min(s.Timeout, c.cfg.MaxTimeout)
	if s.MaxAttempts == 0 {
		s.MaxAttempts = 1
	}
	s.Limits = c.limits(s.Limits)
	s.KernelOnly = !c.cfg.Development
	for _, check := range []func() error{
		func() error { return c.checkSource(s.Source) },
		func() error { return inJob(CheckImage(s.Image)) },
		func() error { return inJob(CheckLimits(s.Limits)) },
		func() error { return inJob(CheckEnv("env", s.Env)) },
		func() error { return checkCommands(s, t.Grants) },
		func() error { return checkPatterns(s.Artifacts) },
		func() error { return CheckLabels(s.Labels) },
		func() error { return checkAttempts(s.MaxAttempts) },
	} {
		if err := check(); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (c *Control) limits(asked run.Limits) run.Limits {
	l := asked.Or(c.cfg.Defaults).Clamp(c.cfg.Ceiling)
	if !c.cfg.Open {
		return l
	}
	// A default that the operator changed is asked for as well.
	d := run.DefaultLimits()
	for _, f := range []struct{ asked, set, def *int64 }{
		{&asked.MilliCPU, &c.cfg.Defaults.MilliCPU, &d.MilliCPU},
		{&asked.MemoryBytes, &c.cfg.Defaults.MemoryBytes, &d.MemoryBytes},
		{&asked.PIDs, &c.cfg.Defaults.PIDs, &d.PIDs},
	} {
		if *f.set != *f.def {
			*f.asked = *f.set
		}
	}
	return l.LeaveOpen(asked)
}

func refuse(format string, args ...any) error {
	return fault.New(fault.Invalid, "cannot take the job: "+format, args...)
}

// inJob says of what was refused that it was a job's.
func inJob(err error) error {
	if err == nil {
		return nil
	}
	return refuse("%s", fault.Public(err))
}

// CheckImage refuses what is no name of an image.
func CheckImage(name string) error {
	if len(name) > MaxImageBytes || !printable(name) {
		return fault.New(fault.Invalid, "image is longer than %d bytes or holds what is no name", MaxImageBytes)
	}
	return nil
}

// CheckLimits refuses limits with which no sandbox can work. One that is not given
// is for whoever fills it in.
func CheckLimits(l run.Limits) error {
	if err := l.Or(run.Floor()).Validate(); err != nil {
		return fault.New(fault.Invalid, "limits: %v", err)
	}
	return nil
}

func checkAttempts(n int) error {
	if n < 1 || n > MaxAttempts {
		return refuse("max_attempts is %d, not between 1 and %d", n, MaxAttempts)
	}
	return nil
}

func (c *Control) checkSource(s run.Source) error {
	want := map[run.SourceKind]run.Source{
		run.SourceNone:       {Kind: s.Kind},
		run.SourceFixture:    {Kind: s.Kind},
		run.SourceArchive:    {Kind: s.Kind, Upload: s.Upload},
		run.SourceRepository: {Kind: s.Kind, Repository: s.Repository, Ref: s.Ref, Depth: s.Depth},
	}
	fits, known := want[s.Kind]
	switch {
	case !known:
		return refuse("source.kind %q is none of none, fixture, archive and repository", clip(string(s.Kind)))
	case !slices.Contains(c.cfg.Sources, s.Kind):
		return fault.New(fault.Unsupported, "cannot take the job: this service has no source of kind %s", s.Kind)
	case s != fits:
		return refuse("source has a field that does not belong to kind %s", s.Kind)
	case s.Kind == run.SourceArchive && !isID(s.Upload):
		return refuse("source.upload_id is not the id of an upload")
	case s.Kind == run.SourceRepository:
		return checkRepository(s)
	}
	return nil
}

// refName is what git takes as the name of a ref or commit, less what means
// something else in a place where a name is wanted.
var refName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+@-]*$`)

func checkRepository(s run.Source) error {
	u, err := url.Parse(s.Repository)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.Opaque != "" || len(s.Repository) > 2048 || !printable(s.Repository):
		return refuse("source.repository is not an HTTPS URL")
	case u.User != nil:
		return refuse("source.repository holds credentials; they would be on record: leave them out")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return refuse("source.repository has a query or a fragment; leave them out")
	case s.Depth < -1 || s.Depth > math.MaxInt32:
		return refuse("source.depth is %d, not a number of commits, 0 for one, or -1 for all", s.Depth)
	case s.Ref == "":
		return nil // the default branch
	case len(s.Ref) > 255 || !refName.MatchString(s.Ref) || strings.Contains(s.Ref, "..") ||
		strings.Contains(s.Ref, "@{") || strings.Contains(s.Ref, "//") || strings.HasSuffix(s.Ref, "/") || strings.HasSuffix(s.Ref, ".lock"):
		return refuse("source.ref %q is not the name of a branch, a tag or a commit", clip(s.Ref))
	}
	return nil
}

func checkCommands(s run.JobSpec, grants tenant.Grants) error {
	if len(s.Commands) == 0 || len(s.Commands) > MaxCommands {
		return refuse("%d commands are not between 1 and %d", len(s.Commands), MaxCommands)
	}
	stdin := 0
	for i, cmd := range s.Commands {
		if err := checkCommand(i, cmd, grants); err != nil {
			return err
		}
		stdin += len(cmd.Stdin)
	}
	if stdin > MaxStdinBytes {
		return refuse("the commands' standard input has %d bytes, more than %d; upload it as a file", stdin, MaxStdinBytes)
	}
	return nil
}

func checkCommand(i int, cmd run.Command, grants tenant.Grants) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return refuse("commands[%d].argv is empty; name a program", i)
	}
	if len(cmd.Argv) > MaxArgs {
		return refuse("commands[%d].argv has %d arguments, more than %d", i, len(cmd.Argv), MaxArgs)
	}
	for j, a := range cmd.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return refuse("commands[%d].argv[%d] holds a NUL byte", i, j)
		}
	}
	if _, err := execenv.WorkspacePath(cmd.Dir); err != nil {
		return refuse("commands[%d].dir: %s", i, fault.Public(err))
	}
	if err := CheckEnv("commands["+itoa(i)+"].env", cmd.Env); err != nil {
		return inJob(err)
	}
	for j, l := range cmd.EndAtLimit {
		if !slices.Contains(run.AtLimits(), l) || slices.Contains(cmd.EndAtLimit[:j], l) {
			return refuse("commands[%d].end_at_limit: name each of pids, disk, inodes, output once, and not %q", i, clip(string(l)))
		}
	}
	if cmd.Timeout < 0 {
		return refuse("commands[%d].timeout_ms is negative", i)
	}
	if grants.Shell {
		return nil
	}
	if shell := FindShell(cmd.Argv); shell != "" {
		return fault.New(fault.Denied, "cannot take the job: commands[%d] runs %q, and this tenant may not run shells; name the program itself, or ask for the grant", i, clip(shell))
	}
	return nil
}

func checkPatterns(patterns []string) error {
	if len(patterns) > MaxPatterns {
		return refuse("%d artifact patterns are more than %d", len(patterns), MaxPatterns)
	}
	for i, p := range patterns {
		if len(p) > MaxPatternBytes {
			return refuse("artifacts[%d] is longer than %d bytes", i, MaxPatternBytes)
		}
		if err := execenv.ValidatePattern(p); err != nil {
			return refuse("artifacts[%d]: %s", i, fault.Public(err))
		}
	}
	return nil
}

var labelName = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,63}$`)

// CheckLabels refuses labels that are too many, too long or no text.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fault.New(fault.Invalid, "%d labels are more than %d", len(labels), MaxLabels)
	}
	for name, value := range labels {
		if !labelName.MatchString(name) {
			return fault.New(fault.Invalid, "the label name %q is not 1 to 63 of a-z, A-Z, 0-9, '.', '_', '/' and '-'", clip(name))
		}
		if len(value) > MaxLabelBytes || !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
			return fault.New(fault.Invalid, "the value of label %q is longer than %d bytes or not text", name, MaxLabelBytes)
		}
	}
	return nil
}

// printable refuses control characters and white space in names.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Milliseconds is a time as the contract has it. It refuses what no duration
// can hold.
func Milliseconds(field string, ms int64) (time.Duration, error) {
	const most = int64(365 * 24 * time.Hour / time.Millisecond)
	if ms < 0 || ms > most {
		return 0, refuse("%s is %d, not between 0 and %d", field, ms, most)
	}
	return time.Duration(ms) * time.Millisecond, nil
}
