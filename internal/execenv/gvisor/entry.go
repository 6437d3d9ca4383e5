package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Entry turns the process into a part of gVisor if it was started as one, and
// then does not return. A program that uses this package calls it first thing
// in main: sandboxes are made by executing the running binary again.
func Entry() {
	switch {
	case filepath.Base(os.Args[0]) == "runsc-sandbox":
		os.Args = withLimits(os.Args)
	case filepath.Base(os.Args[0]) == "runsc-gofer":
	case os.Args[0] == "/proc/self/exe" && len(os.Args) > 2 && os.Args[1] == "umount":
		// Started by the sentry itself to take /proc out of its root.
	default:
		return
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot):   "",
		new(sentrycmd.Umount): "",
		new(cmd.Gofer):        "",
	}, nil)
	os.Exit(1)
}

// withLimits tells the sentry the sandbox's size, so that programs see that and
// not the host's. gVisor would take it from the cgroup it made; ours is made
// apart from it, so it is taken from the specification, which the sentry has
// as an open file.
func withLimits(args []string) []string {
	spec := specArgument(args)
	if spec == nil || spec.Linux == nil || spec.Linux.Resources == nil {
		return args
	}
	out := make([]string, 0, len(args)+2)
	memory := spec.Linux.Resources.Memory
	for i := 0; i < len(args); i++ {
		out = append(out, args[i])
		if args[i] == "--total-memory" && i+1 < len(args) && memory != nil && memory.Limit != nil {
			i++
			out = append(out, strconv.FormatInt(*memory.Limit, 10))
		}
		if args[i] == "boot" && spec.Linux.Resources.CPU != nil {
			if n := cpuCount(spec.Linux.Resources.CPU); n > 0 {
				out = append(out, fmt.Sprintf("--cpu-num=%d", n))
			}
		}
	}
	return out
}

// cpuCount is the number of processors a program is shown: as many as the quota
// can keep busy, and no more than the host has.
func cpuCount(cpu *specs.LinuxCPU) int {
	if cpu.Quota == nil || cpu.Period == nil || *cpu.Period == 0 {
		return 0
	}
	period := int64(*cpu.Period)
	return max(1, int((*cpu.Quota+period-1)/period))
}

func specArgument(args []string) *specs.Spec {
	for _, a := range args {
		value, ok := strings.CutPrefix(a, "--spec-fd=")
		if !ok {
			continue
		}
		fd, err := strconv.Atoi(value)
		if err != nil {
			return nil
		}
		// Read without moving the offset: the sentry reads it after us. The
		// file must not be closed either, so it is not given to os.NewFile's
		// finalizer to close.
		data, err := io.ReadAll(io.NewSectionReader(rawFile(fd), 0, 1<<20))
		if err != nil {
			return nil
		}
		var spec specs.Spec
		if json.Unmarshal(data, &spec) != nil {
			return nil
		}
		return &spec
	}
	return nil
}
