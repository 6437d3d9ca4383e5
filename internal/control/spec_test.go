package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

func goodSpec() run.JobSpec {
	return run.JobSpec{
		Source:   run.Source{Kind: run.SourceFixture},
		Commands: []run.Command{{Argv: []string{"true"}}},
	}
}

func pure() *Control {
	return &Control{cfg: Config{Timeout: time.Minute, MaxTimeout: time.Hour, Image: "default"}.orDefaults()}
}

func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("N%d", i)] = ""
	}
	return m
}

func TestJobsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*run.JobSpec)
		code   fault.Code
		says   string
	}{
		"no command":               {func(s *run.JobSpec) { s.Commands = nil }, fault.Invalid, "0 commands"},
		"too many commands":        {func(s *run.JobSpec) { s.Commands = slices.Repeat(s.Commands, MaxCommands+1) }, fault.Invalid, "65 commands"},
		"no program":               {func(s *run.JobSpec) { s.Commands[0].Argv = nil }, fault.Invalid, "commands[0].argv is empty"},
		"empty program":            {func(s *run.JobSpec) { s.Commands[0].Argv = []string{"", "x"} }, fault.Invalid, "name a program"},
		"too many arguments":       {func(s *run.JobSpec) { s.Commands[0].Argv = slices.Repeat([]string{"x"}, MaxArgs+1) }, fault.Invalid, "1025 arguments"},
		"NUL in an argument":       {func(s *run.JobSpec) { s.Commands[0].Argv = []string{"x", "a\x00b"} }, fault.Invalid, "argv[1] holds a NUL"},
		"a limit that always ends": {func(s *run.JobSpec) { s.Commands[0].EndAtLimit = []run.Limit{run.LimitMemory} }, fault.Invalid, "commands[0].end_at_limit"},
		"a limit twice":            {func(s *run.JobSpec) { s.Commands[0].EndAtLimit = []run.Limit{"disk", "disk"} }, fault.Invalid, "once"},
		"too much input": {func(s *run.JobSpec) {
			s.Commands = slices.Repeat([]run.Command{{Argv: []string{"x"}, Stdin: make([]byte, MaxStdinBytes/4+1)}}, 4)
		}, fault.Invalid, "standard input"},
		"a history of -2": {func(s *run.JobSpec) {
			s.Source = run.Source{Kind: run.SourceRepository, Repository: "https://example.com/a", Depth: -2}
		}, fault.Invalid, "source.depth"},
		"depth of no repository":  {func(s *run.JobSpec) { s.Source.Depth = 1 }, fault.Invalid, "does not belong"},
		"a shell":                 {func(s *run.JobSpec) { s.Commands[0].Argv = []string{"env", "sh"} }, fault.Denied, "may not run shells"},
		"absolute directory":      {func(s *run.JobSpec) { s.Commands[0].Dir = "/etc" }, fault.Invalid, "commands[0].dir"},
		"directory that climbs":   {func(s *run.JobSpec) { s.Commands[0].Dir = "a/../../b" }, fault.Invalid, "'..'"},
		"negative timeout":        {func(s *run.JobSpec) { s.Commands[0].Timeout = -1 }, fault.Invalid, "timeout_ms"},
		"negative job timeout":    {func(s *run.JobSpec) { s.Timeout = -1 }, fault.Invalid, "timeout_ms"},
		"reserved CI":             {func(s *run.JobSpec) { s.Env = map[string]string{"CI": "false"} }, fault.Invalid, "CI may not be set"},
		"reserved HOME":           {func(s *run.JobSpec) { s.Commands[0].Env = map[string]string{"HOME": "/"} }, fault.Invalid, "commands[0].env: HOME"},
		"reserved prefix":         {func(s *run.JobSpec) { s.Env = map[string]string{"AGENTDOCK_SANDBOX": "no"} }, fault.Invalid, "AGENTDOCK_SANDBOX"},
		"credential":              {func(s *run.JobSpec) { s.Env = map[string]string{"database_url": "x"} }, fault.Invalid, "credential"},
		"key of a model":          {func(s *run.JobSpec) { s.Env = map[string]string{"OPENAI_API_KEY": "x"} }, fault.Invalid, "credential"},
		"container engine":        {func(s *run.JobSpec) { s.Env = map[string]string{"DOCKER_HOST": "x"} }, fault.Invalid, "engine"},
		"not a variable":          {func(s *run.JobSpec) { s.Env = map[string]string{"A=B": "x"} }, fault.Invalid, "not the name"},
		"empty variable":          {func(s *run.JobSpec) { s.Env = map[string]string{"": "x"} }, fault.Invalid, "not the name"},
		"NUL in a value":          {func(s *run.JobSpec) { s.Env = map[string]string{"A": "\x00"} }, fault.Invalid, "NUL"},
		"too many variables":      {func(s *run.JobSpec) { s.Env = many(MaxVariables + 1) }, fault.Invalid, "129 variables"},
		"too much environment":    {func(s *run.JobSpec) { s.Env = map[string]string{"A": strings.Repeat("x", MaxVariableBytes)} }, fault.Invalid, "bytes"},
		"too many labels":         {func(s *run.JobSpec) { s.Labels = many(MaxLabels + 1) }, fault.Invalid, "33 labels"},
		"label name":              {func(s *run.JobSpec) { s.Labels = map[string]string{"a b": ""} }, fault.Invalid, "label name"},
		"label value":             {func(s *run.JobSpec) { s.Labels = map[string]string{"a": "\xff"} }, fault.Invalid, "value of label"},
		"too many patterns":       {func(s *run.JobSpec) { s.Artifacts = slices.Repeat([]string{"x"}, MaxPatterns+1) }, fault.Invalid, "65 artifact"},
		"absolute pattern":        {func(s *run.JobSpec) { s.Artifacts = []string{"/etc/*"} }, fault.Invalid, "artifacts[0]"},
		"pattern that climbs":     {func(s *run.JobSpec) { s.Artifacts = []string{"x/../../*"} }, fault.Invalid, "artifacts[0]"},
		"malformed pattern":       {func(s *run.JobSpec) { s.Artifacts = []string{"[a"} }, fault.Invalid, "malformed"},
		"too many attempts":       {func(s *run.JobSpec) { s.MaxAttempts = 11 }, fault.Invalid, "max_attempts"},
		"too little memory":       {func(s *run.JobSpec) { s.Limits.MemoryBytes = 1 }, fault.Invalid, "memory limit"},
		"negative limit":          {func(s *run.JobSpec) { s.Limits.PIDs = -1 }, fault.Invalid, "pids limit"},
		"image name":              {func(s *run.JobSpec) { s.Image = "a b" }, fault.Invalid, "image"},
		"unknown source":          {func(s *run.JobSpec) { s.Source.Kind = "host" }, fault.Invalid, "source.kind"},
		"field of another source": {func(s *run.JobSpec) { s.Source.Upload = "x" }, fault.Invalid, "does not belong"},
		"upload without an id":    {func(s *run.JobSpec) { s.Source = run.Source{Kind: run.SourceArchive} }, fault.Invalid, "upload_id"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := goodSpec()
			tc.change(&spec)
			_, err := pure().complete(spec, tenant.Tenant{})
			if !fault.Is(err, tc.code) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %s and %q", err, tc.code, tc.says)
			}
		})
	}
}

func TestRepositories(t *testing.T) {
	for _, tc := range []struct {
		url, ref, says string
	}{
		{"https://example.com/a/b", "", ""},
		{"https://example.com/a/b.git", "refs/heads/main", ""},
		{"https://example.com:8443/a", "v1.2.3", ""},
		{"https://example.com/a", "0123456789abcdef0123456789abcdef01234567", ""},
		{"https://user:secret@example.com/a", "", "credentials"},
		{"https://token@example.com/a", "", "credentials"},
		{"http://example.com/a", "", "HTTPS"},
		{"git://example.com/a", "", "HTTPS"},
		{"ssh://git@example.com/a", "", "HTTPS"},
		{"git@example.com:a/b", "", "HTTPS"},
		{"file:///etc", "", "HTTPS"},
		{"ext::sh -c id", "", "HTTPS"},
		{"--upload-pack=id", "", "HTTPS"},
		{"https:///a", "", "HTTPS"},
		{"https:example.com/a", "", "HTTPS"},
		{"", "", "HTTPS"},
		{"https://example.com/a?token=x", "", "query"},
		{"https://example.com/a#x", "", "query"},
		{"https://example.com/a b", "", "HTTPS"},
		{"https://example.com/a\n", "", "HTTPS"},
		{"https://example.com/a", "--upload-pack=id", "source.ref"},
		{"https://example.com/a", "a..b", "source.ref"},
		{"https://example.com/a", "a:b", "source.ref"},
		{"https://example.com/a", "@{-1}", "source.ref"},
		{"https://example.com/a", "a b", "source.ref"},
		{"https://example.com/a", "x~1", "source.ref"},
	} {
		spec := goodSpec()
		spec.Source = run.Source{Kind: run.SourceRepository, Repository: tc.url, Ref: tc.ref}
		_, err := pure().complete(spec, tenant.Tenant{})
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s %s: %v", tc.url, tc.ref, err)
		case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s %s: got %v, want %q", tc.url, tc.ref, err, tc.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error repeats the secret: %v", tc.url, err)
		}
	}
}

func TestWhatIsFilledIn(t *testing.T) {
	spec := goodSpec()
	spec.Limits = run.Limits{MemoryBytes: 1 << 50, PIDs: 32}
	spec.Timeout = 100 * time.Hour
	spec.Env = map[string]string{"PATH": "/bin", "LANG": "C"}
	given := maps.Clone(spec.Env)
	got, err := pure().complete(spec, tenant.Tenant{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Limits.MemoryBytes != run.Ceiling().MemoryBytes || got.Limits.PIDs != 32 || got.Limits.WallClock != 120*time.Second {
		t.Errorf("limits: %+v", got.Limits)
	}
	if got.Timeout != time.Hour || got.Image != "default" || got.MaxAttempts != 1 || !maps.Equal(got.Env, given) {
		t.Errorf("got %+v", got)
	}
}

// Where a job may run is this service's to say, whatever those who run it are told.
func TestOnlyInDevelopmentAJobNeedsNoKernelOfItsOwn(t *testing.T) {
	for _, development := range []bool{false, true} {
		for _, asked := range []bool{false, true} {
			c, spec := pure(), goodSpec()
			c.cfg.Development, spec.KernelOnly = development, asked
			if got, err := c.complete(spec, tenant.Tenant{}); err != nil || got.KernelOnly == development {
				t.Errorf("in development %t, asked for %t: %t, %v", development, asked, got.KernelOnly, err)
			}
		}
	}
}

func TestTheGrantAllowsShells(t *testing.T) {
	spec := goodSpec()
	spec.Commands[0].Argv = []string{"sh", "-c", "true"}
	if _, err := pure().complete(spec, tenant.Tenant{Grants: tenant.Grants{Shell: true}}); err != nil {
		t.Error(err)
	}
}

func TestASourceThatIsNotThere(t *testing.T) {
	c := pure()
	c.cfg.Sources = []run.SourceKind{run.SourceNone}
	if _, err := c.complete(goodSpec(), tenant.Tenant{}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("got %v", err)
	}
}

func TestSecretsOfKeys(t *testing.T) {
	secret, prefix, hash := newSecret()
	other, _, otherHash := newSecret()
	if secret == other || hash == otherHash || !strings.HasPrefix(secret, prefix) || len(prefix) != 12 {
		t.Errorf("%d characters, prefix %q", len(secret), prefix)
	}
	if !WellFormed(secret) || !WellFormed(other) {
		t.Error("a new key is not well formed")
	}
	for i := range secret {
		changed := []byte(secret)
		changed[i] ^= 1
		if WellFormed(string(changed)) {
			t.Errorf("a mistake at %d goes unnoticed", i)
		}
	}
	for _, s := range []string{"", "adk_", secret[:len(secret)-1], secret + "a", strings.ToUpper(secret), "x" + secret} {
		if WellFormed(s) {
			t.Errorf("%d characters are taken for a key", len(s))
		}
	}
}

func TestMilliseconds(t *testing.T) {
	for ms, ok := range map[int64]bool{0: true, 1: true, 86_400_000: true, -1: false, 1 << 62: false, 10_000_000_000_000: false} {
		if d, err := Milliseconds("x", ms); (err == nil) != ok || ok && d != time.Duration(ms)*time.Millisecond {
			t.Errorf("%d: %v, %v", ms, d, err)
		}
	}
}
