package gvisor

import (
	"os"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

// precompiledPrograms is gVisor's table of seccomp programs for sentries that
// were compiled before the sentry started. Its own build fills it; the module
// that Go programs link has it empty, and no way to add to it.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// useCompiledFilter saves the sentry from compiling its seccomp program, always
// the same one, which takes longer than all other steps after it is started.
// gVisor looks the program up by the settings it depends on, and compiles it
// where there is none for them.
//
// sentryFilter was compiled by gVisor from its rules, in a process 1, because a
// rule names the process itself. TestSentryFilter holds the two together.
func useCompiledFilter() {
	if os.Getpid() != 1 {
		return
	}
	filter.ListPrecompiled() // makes the table
	precompiledPrograms[sentryFilter.Name] = sentryFilter
}
