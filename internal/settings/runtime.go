package settings

import "fmt"

// Runtime is what sandboxes are made of. Every process that has a part in running
// untrusted work reads it beside AUTH_MODE, and refuses the two together that must
// not be (REQUIREMENTS A6): one that is configured otherwise than the rest is no
// way around it.
type Runtime struct {
	Runtime string `env:"SANDBOX_RUNTIME" help:"what isolates sandboxes: gvisor, or docker, which shares the host's kernel with programs and is for development only (AUTH_MODE=dev); jobs are given to no execution service with another one"`
}

// What there is.
const (
	RuntimeGVisor = "gvisor"
	RuntimeDocker = "docker"
)

// Check refuses a runtime that is none, and the development fallback where
// somebody else than its developer could be let in.
func (r Runtime) Check(authMode string) error {
	switch {
	case r.Runtime == RuntimeGVisor:
		return nil
	case r.Runtime != RuntimeDocker:
		return fmt.Errorf("SANDBOX_RUNTIME is %q; give %s or %s", r.Runtime, RuntimeGVisor, RuntimeDocker)
	case authMode != AuthDev:
		return fmt.Errorf("SANDBOX_RUNTIME is %s and AUTH_MODE is %s: a program in a container makes its system calls to this host's kernel, which is for development only; set SANDBOX_RUNTIME to %s, or AUTH_MODE to %s on a machine that is yours alone",
			r.Runtime, authMode, RuntimeGVisor, AuthDev)
	}
	return nil
}

// Development says that sandboxes need not have a kernel of their own.
func (r Runtime) Development() bool { return r.Runtime == RuntimeDocker }
