package execenv

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Workspace is where a sandbox's files are and where its commands start.
const Workspace = "/workspace"

// UID and GID of every command (REQUIREMENTS A5b).
const (
	UID = 10001
	GID = 10001
)

// Path is the PATH of every command that sets no other.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Bounds on what a caller may hand over. They keep a request in memory and are
// far above what a program can use.
const (
	maxArgs      = 4096
	maxArgBytes  = 1 << 20
	maxEnv       = 1024
	maxEnvBytes  = 256 << 10
	maxLabels    = 64
	maxPatterns  = 256
	maxPathBytes = 4096
)

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// BaseEnv is the environment every command starts from (REQUIREMENTS B7).
func BaseEnv() map[string]string {
	return map[string]string{
		"CI":                "true",
		"AGENTDOCK_SANDBOX": "true",
		"HOME":              Workspace,
		"PATH":              Path,
	}
}

// Environ is the complete environment of a command, sorted, as KEY=value (X1).
// With a network, ProxyEnv comes after the base variables.
func Environ(spec Spec, exec ExecSpec) []string {
	all := BaseEnv()
	if spec.Network.Open() {
		maps.Copy(all, ProxyEnv())
	}
	maps.Copy(all, spec.Env)
	maps.Copy(all, exec.Env)
	env := make([]string, 0, len(all))
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	return env
}

// ValidateID refuses an ID that is not 1 to 63 of a-z, 0-9 and "-", starting
// with a letter or digit. IDs become file and cgroup names.
func ValidateID(id string) error {
	if !idPattern.MatchString(id) {
		return fault.New(fault.Invalid, "id %q is not 1 to 63 of a-z, 0-9 and '-', starting with a letter or digit", clip(id))
	}
	return nil
}

// Validate refuses a Spec that no environment could fulfil.
func (s Spec) Validate() error {
	if err := ValidateID(s.ID); err != nil {
		return err
	}
	if s.Image == "" || len(s.Image) > maxPathBytes {
		return fault.New(fault.Invalid, "image name is empty or too long")
	}
	if err := validateEnv(s.Env); err != nil {
		return err
	}
	if len(s.Labels) > maxLabels {
		return fault.New(fault.Invalid, "%d labels are more than %d", len(s.Labels), maxLabels)
	}
	for k, v := range s.Labels {
		if k == "" || len(k) > 128 || len(v) > 1024 || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fault.New(fault.Invalid, "label %q: name or value is empty, too long or not UTF-8", clip(k))
		}
	}
	if s.Lifetime < 0 {
		return fault.New(fault.Invalid, "lifetime %s is negative", s.Lifetime)
	}
	if err := ValidateNetwork(s.Network); err != nil {
		return err
	}
	// A limit that is not given is for Capabilities.Supported to judge.
	if err := s.Limits.Or(run.Floor()).Validate(); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// Equal reports whether two Specs ask for the same sandbox.
func (s Spec) Equal(o Spec) bool {
	return s.ID == o.ID && s.Image == o.Image && s.Limits == o.Limits && s.Lifetime == o.Lifetime && s.Network.Equal(o.Network) &&
		maps.Equal(s.Env, o.Env) && maps.Equal(s.Labels, o.Labels)
}

// Supported refuses limits that the environment cannot enforce, and the lack of
// those that it does (P3).
func (c Capabilities) Supported(l run.Limits) error {
	for _, f := range limitFields(&l, c.Enforces) {
		switch {
		case *f.value != 0 && !f.enforced:
			return fault.New(fault.Unsupported, "environment %s cannot enforce a %s limit here; leave it out, or use an environment that can", c.Name, f.name)
		case *f.value == 0 && f.enforced:
			return fault.New(fault.Invalid, "the %s limit is not given", f.name)
		}
	}
	return nil
}

// CanReach refuses a network where there is no way to one.
func (c Capabilities) CanReach(n run.Network) error {
	if n.Open() && !c.NetworkAllow {
		return fault.New(fault.Unsupported, "environment %s has no way out for sandboxes here; leave the network out, or start agentdock-egress and name its socket to the execution service", c.Name)
	}
	return nil
}

// CanEndAt refuses to end a command at a limit of which nobody would know that it
// was reached.
func (c Capabilities) CanEndAt(limits []run.Limit) error {
	for _, l := range limits {
		if !c.Reports.Has(l) {
			return fault.New(fault.Unsupported, "environment %s cannot tell when a command reaches its %s limit, so it cannot end it there", c.Name, l)
		}
	}
	return nil
}

// Validate refuses an ExecSpec that no environment could fulfil.
func (e ExecSpec) Validate() error {
	if e.ID != "" {
		if err := ValidateID(e.ID); err != nil {
			return err
		}
	}
	if len(e.Argv) == 0 || e.Argv[0] == "" {
		return fault.New(fault.Invalid, "command is empty")
	}
	if len(e.Argv) > maxArgs {
		return fault.New(fault.Invalid, "%d arguments are more than %d", len(e.Argv), maxArgs)
	}
	total := 0
	for i, a := range e.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return fault.New(fault.Invalid, "argument %d holds a NUL byte", i)
		}
		total += len(a) + 1
	}
	if total > maxArgBytes {
		return fault.New(fault.Invalid, "arguments are %d bytes, more than %d", total, maxArgBytes)
	}
	if _, err := WorkspacePath(e.Dir); err != nil {
		return err
	}
	if err := validateEnv(e.Env); err != nil {
		return err
	}
	if e.Timeout < 0 {
		return fault.New(fault.Invalid, "timeout %s is negative", e.Timeout)
	}
	if e.OutputBytes < 0 {
		return fault.New(fault.Invalid, "output limit %d is negative", e.OutputBytes)
	}
	for i, l := range e.EndAtLimit {
		if !slices.Contains(run.AtLimits(), l) || slices.Contains(e.EndAtLimit[:i], l) {
			return fault.New(fault.Invalid, "a command cannot be made to end at limit %q: name each of %q once; memory and wall clock always end it", clip(string(l)), run.AtLimits())
		}
	}
	if e.TTY != nil && (e.TTY.Cols == 0 || e.TTY.Rows == 0) {
		return fault.New(fault.Invalid, "terminal size %dx%d has a zero", e.TTY.Cols, e.TTY.Rows)
	}
	return nil
}

// ValidateNetwork refuses a network that cannot be.
func ValidateNetwork(n run.Network) error {
	if _, err := policy.Compile(n); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return nil
}

// ValidateLifetime refuses an extension by nothing.
func ValidateLifetime(d time.Duration) error {
	if d <= 0 {
		return fault.New(fault.Invalid, "a lifetime of %s is no time", d)
	}
	return nil
}

// Validate refuses a malformed request.
func (a ArchiveRequest) Validate() error {
	if _, err := WorkspacePath(a.Dir); err != nil {
		return err
	}
	if len(a.Patterns) > maxPatterns {
		return fault.New(fault.Invalid, "%d patterns are more than %d", len(a.Patterns), maxPatterns)
	}
	for _, p := range a.Patterns {
		if err := ValidatePattern(p); err != nil {
			return err
		}
	}
	if a.MaxBytes < 0 {
		return fault.New(fault.Invalid, "archive limit %d is negative", a.MaxBytes)
	}
	return nil
}

// ValidatePattern refuses a glob that is absolute, climbs, or is malformed.
func ValidatePattern(p string) error {
	switch {
	case p == "", len(p) > maxPathBytes, strings.IndexByte(p, 0) >= 0:
		return fault.New(fault.Invalid, "pattern %q is empty, too long or holds a NUL byte", clip(p))
	case strings.HasPrefix(p, "/"):
		return fault.New(fault.Invalid, "pattern %q is absolute; give it relative to the workspace", clip(p))
	case !wellFormed(p):
		return fault.New(fault.Invalid, "pattern %q is malformed or has more than %d alternatives", clip(p), maxAlternatives)
	}
	for _, elem := range strings.Split(p, "/") {
		if elem == ".." {
			return fault.New(fault.Invalid, "pattern %q holds '..'", clip(p))
		}
		if _, err := path.Match(elem, ""); err != nil {
			return fault.New(fault.Invalid, "pattern %q is malformed", clip(p))
		}
	}
	return nil
}

// WorkspacePath is the absolute path in the sandbox of a directory relative to
// the workspace. It refuses absolute paths and "..".
func WorkspacePath(dir string) (string, error) {
	switch {
	case len(dir) > maxPathBytes || strings.IndexByte(dir, 0) >= 0:
		return "", fault.New(fault.Invalid, "directory %q is too long or holds a NUL byte", clip(dir))
	case strings.HasPrefix(dir, "/"):
		return "", fault.New(fault.Invalid, "directory %q is absolute; give it relative to the workspace", clip(dir))
	}
	for _, elem := range strings.Split(dir, "/") {
		if elem == ".." {
			return "", fault.New(fault.Invalid, "directory %q holds '..'", clip(dir))
		}
	}
	return path.Join(Workspace, dir), nil
}

func validateEnv(env map[string]string) error {
	if len(env) > maxEnv {
		return fault.New(fault.Invalid, "%d environment variables are more than %d", len(env), maxEnv)
	}
	total := 0
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return fault.New(fault.Invalid, "environment variable %q: the name is empty or holds '=', or a part holds a NUL byte", clip(k))
		}
		total += len(k) + len(v) + 2
	}
	if total > maxEnvBytes {
		return fault.New(fault.Invalid, "environment is %d bytes, more than %d", total, maxEnvBytes)
	}
	return nil
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
