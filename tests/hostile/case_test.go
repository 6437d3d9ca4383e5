package hostile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// family is a group of cases against one part of the boundary.
type family struct {
	name, about string
	cases       []attack
}

// attack is one case.
type attack struct {
	what string
	// do is the attempt's verb and arguments, want how it must end there.
	do   []string
	want []check
	// own, if set, changes the limits of a sandbox of the case's own; without
	// it the case shares its family's sandbox.
	own func(*run.Limits)
	// with changes how the command is started.
	with func(*execenv.ExecSpec)
	// bites is the control; dangerous says why there cannot be one.
	bites     control
	dangerous bool
	// accepted says why an attempt that gets through is left at that. SECURITY.md
	// repeats it.
	accepted string
	// run replaces do where one command is not enough.
	run func(*world)
}

// do is an attempt, as words.
func do(words ...string) []string { return words }

// check looks at how a command ended and says what is wrong, or nothing.
type check func(ran) string

// ran is a command that has ended.
type ran struct {
	execenv.Result
	stdout, stderr string
	// unknown, if set, notes that it cannot be known here whether the command has
	// reached a limit, and says so.
	unknown func(run.Limit) bool
}

func want(checks ...check) []check { return checks }

// blocked wants that the attempt was stopped, with one of these errors.
func blocked(errnos ...string) check {
	return func(r ran) string {
		m := regexp.MustCompile(`(?m)^blocked: (\S+): `).FindStringSubmatch(r.stdout)
		if r.Outcome.ExitCode == nil || *r.Outcome.ExitCode != 3 || m == nil {
			return "it was not stopped by an error"
		}
		if m[1] == "ENOTSUP" {
			m[1] = "EOPNOTSUPP" // one number, two names
		}
		if !slices.Contains(errnos, m[1]) {
			return fmt.Sprintf("it was stopped by %s, want one of %q", m[1], errnos)
		}
		return ""
	}
}

// nothing wants that there was nothing to be found.
var nothing = blocked("-")

// ended wants an outcome.
func ended(kinds ...run.Kind) check {
	return func(r ran) string {
		if !slices.Contains(kinds, r.Outcome.Kind) {
			return fmt.Sprintf("want the outcome %q", kinds)
		}
		return ""
	}
}

// exited wants that the program ended by itself.
func exited(code int) check {
	return func(r ran) string {
		if r.Outcome.ExitCode == nil || *r.Outcome.ExitCode != code {
			return fmt.Sprintf("want exit code %d", code)
		}
		return ""
	}
}

// hit wants that the outcome names a limit.
func hit(l run.Limit) check {
	return func(r ran) string {
		if r.unknown != nil && r.unknown(l) {
			return ""
		}
		if !r.Outcome.Touched(l) {
			return fmt.Sprintf("the outcome does not name the limit %s", l)
		}
		return ""
	}
}

// unhit wants that the outcome does not name a limit.
func unhit(l run.Limit) check {
	return func(r ran) string {
		if r.Outcome.Touched(l) {
			return fmt.Sprintf("the outcome names the limit %s", l)
		}
		return ""
	}
}

func signalled(name string) check {
	return func(r ran) string {
		if r.Outcome.Signal != name {
			return "want the signal " + name
		}
		return ""
	}
}

// prints wants a pattern in what it printed.
func prints(pattern string) check {
	return func(r ran) string {
		if !regexp.MustCompile(pattern).MatchString(r.stdout + r.stderr) {
			return fmt.Sprintf("the output does not match %q", pattern)
		}
		return ""
	}
}

func within(d time.Duration) check {
	return func(r ran) string {
		if r.Duration > d {
			return fmt.Sprintf("it took %s, more than %s", r.Duration, d)
		}
		return ""
	}
}

func either(checks ...[]check) check {
	return func(r ran) string {
		var all []string
		for _, c := range checks {
			p := problems(c, r)
			if len(p) == 0 {
				return ""
			}
			all = append(all, strings.Join(p, " and "))
		}
		return strings.Join(all, "; or else ")
	}
}

func problems(checks []check, r ran) (all []string) {
	for _, c := range checks {
		if p := c(r); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// families is every case there is, in the order in which they run.
func families() []family {
	return []family{
		{"processes", "fork and thread bombs, daemons, what ignores signals", processCases},
		{"memory", "bombs in every kind of memory that might not be counted", memoryCases},
		{"cpu-and-time", "spinning, stopping, hiding from the clock, setting it", timeCases},
		{"disk-and-inodes", "filling and writing where and more than allowed", diskCases},
		{"output", "floods, forged bytes, descriptors", outputCases},
		{"archives-in", "archives that unpack outside, or too much", archiveInCases},
		{"archives-out", "archives from a sandbox that lies", archiveOutCases},
		{"kernel-surface", "system calls, devices and kernel files that are root's", kernelCases},
		{"network", "metadata services, the host, its loopback, name resolution", networkCases},
		{"credentials", "canaries of the host, looked for everywhere inside and in all that comes out", credentialCases},
		{"neighbours", "two sandboxes and what one could do to the other", neighbourCases},
		{"view", "what a sandbox learns about its host", viewCases},
	}
}
