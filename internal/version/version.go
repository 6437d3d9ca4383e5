// Package version says which build this is: the commit it was made from and
// the gVisor it embeds.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

const gvisorModule = "gvisor.dev/gvisor"

// Set by the linker (see the Makefile). A plain "go build" leaves them empty,
// and the values then come from what the Go toolchain recorded.
var (
	commit   string
	modified string
	gvisor   string
)

// Info describes a build.
type Info struct {
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	GVisor   string `json:"gvisor"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Get returns the description of the running binary.
func Get() Info {
	info := Info{
		Commit:   commit,
		Modified: modified == "true",
		GVisor:   gvisor,
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	build, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				if info.Commit == "" {
					info.Commit = s.Value
				}
			case "vcs.modified":
				info.Modified = info.Modified || s.Value == "true"
			}
		}
		for _, m := range build.Deps {
			if m.Path == gvisorModule {
				info.GVisor = m.Version
			}
		}
	}
	if info.Commit == "" {
		info.Commit = "unknown"
	}
	if info.GVisor == "" {
		info.GVisor = "unknown"
	}
	return info
}

// String is the one-line form.
func (i Info) String() string {
	modified := ""
	if i.Modified {
		modified = " (modified)"
	}
	return fmt.Sprintf("agentdock commit %s%s, gVisor %s, %s %s", i.Commit, modified, i.GVisor, i.Go, i.Platform)
}
