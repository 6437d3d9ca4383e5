package control

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// reserved are patterns of variables that a job may not name (REQUIREMENTS B7),
// with what the caller is told.
var reserved = []struct{ pattern, why string }{
	{"CI", "the platform sets it"},
	{"HOME", "the platform sets it"},
	{"AGENTDOCK_*", "the platform's own names begin so"},
	// What follows would be a credential of somebody's, handed to a program that
	// is taken for hostile, and put on record.
	{"DATABASE_URL", "it names a credential"},
	{"REDIS_URL", "it names a credential"},
	{"SESSION_SECRET", "it names a credential"},
	{"GITHUB_APP_*", "it names a credential"},
	{"GITHUB_TOKEN", "it names a credential"},
	{"*WEBHOOK_SECRET", "it names a credential"},
	{"*_API_KEY", "it names a credential"},
	{"AWS_SECRET_ACCESS_KEY", "it names a credential"},
	{"DOCKER_HOST", "there is no container engine to reach"},
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// CheckEnv refuses variables that a caller may not set, or that are too much.
// The field is for the message.
func CheckEnv(field string, env map[string]string) error {
	if len(env) > MaxVariables {
		return fault.New(fault.Invalid, "%s has %d variables, more than %d", field, len(env), MaxVariables)
	}
	total := 0
	for name, value := range env {
		if !variableName.MatchString(name) {
			return fault.New(fault.Invalid, "%s: %q is not the name of a variable", field, clip(name))
		}
		for _, r := range reserved {
			if ok, _ := path.Match(r.pattern, strings.ToUpper(name)); ok {
				return fault.New(fault.Invalid, "%s: %s may not be set: %s", field, name, r.why)
			}
		}
		if strings.IndexByte(value, 0) >= 0 {
			return fault.New(fault.Invalid, "%s: the value of %s holds a NUL byte", field, name)
		}
		total += len(name) + len(value) + 2
	}
	if total > MaxVariableBytes {
		return fault.New(fault.Invalid, "%s is %d bytes, more than %d", field, total, MaxVariableBytes)
	}
	return nil
}

func itoa(i int) string { return strconv.Itoa(i) }
