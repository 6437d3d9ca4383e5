package gvisor

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
)

// runtimeFlags are gVisor's settings that differ from its defaults, each with
// its reason.
var runtimeFlags = map[string]string{
	// G1: no interface but loopback exists in the sandbox's own stack.
	"network": "none",
	// See sentryArguments: the sentry itself runs with the opposite.
	"directfs": "true",
	// The root is an image, and all else is memory of the sentry or one open file,
	// so no file of the host is needed and no file server is started.
	"overlay2": "none",
	// Groups are ours: see package cgroup.
	"ignore-cgroups": "true",
	// Exec slots and the process limit are made of this.
	"in-sandbox-cgroup": "v2",
	// Sockets and fifos of the host are never reachable.
	"host-uds":  "none",
	"host-fifo": "none",
	// The check reads kernel settings on each start and only logs.
	"host-settings": "ignore",
	// One binary: there is no directory of helper binaries beside it.
	"sidecar-usage-policy": "LEGACY_DEPRECATED_SLOW_EMBEDDED_FALLBACK",
	// A sandbox that goes down has nobody worth waiting for.
	"control-rpc-stop-timeout": "0",
}

// newRuntimeConfig is gVisor's configuration with root as its state directory.
func newRuntimeConfig(root string) (*config.Config, error) {
	flags := flag.NewFlagSet("gvisor", flag.ContinueOnError)
	config.RegisterFlags(flags)
	for name, value := range runtimeFlags {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("cannot set gVisor's %s to %s: %w", name, value, err)
		}
	}
	if err := flags.Set("root", root); err != nil {
		return nil, err
	}
	return config.NewFromFlags(flags)
}

// Version is the version of the embedded gVisor module.
func Version() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "gvisor.dev/gvisor" {
				return m.Version
			}
		}
	}
	return "unknown"
}

// logTo sends what gVisor's packages say in this process to the service's log.
// Their default is the standard error, which they must not have.
func logTo(logger *slog.Logger) {
	log.SetLevel(log.Warning)
	log.SetTarget(emitter{logger})
}

type emitter struct{ logger *slog.Logger }

func (e emitter) Emit(_ int, level log.Level, _ time.Time, format string, args ...any) {
	if level == log.Warning {
		e.logger.Debug("gvisor: " + fmt.Sprintf(format, args...))
	}
}
