package gvisor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/sentry/syscalls/linux"
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
		args, disk := takeDiskFile(sentryArguments(os.Args))
		os.Args = args
		collectLater()
		adapt(linux.AMD64, disk)
		useCompiledFilter()
		startEarly()
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

// sentryArguments changes two things in what gVisor starts a sentry with.
//
// It is told the sandbox's size, so that programs see that and not the host's.
// gVisor would take it from the cgroup it made; ours is made apart from it, so
// it is taken from the specification, which the sentry has as an open file.
//
// And it is told that it has no files of the host to work on (directfs), so
// that it keeps no capability to do so and its seccomp filter has no rule for
// opening files; of its user namespace's capabilities it keeps CAP_SYS_PTRACE
// alone, for its own helper processes. The process that starts it is told
// otherwise, because only then does gVisor put the sentry into the
// specification's user namespace, and at once: without, it would run as
// nobody, the same for all sandboxes, and would have to start itself a second
// time.
func sentryArguments(args []string) []string {
	var resources specs.LinuxResources
	if spec := specArgument(args); spec != nil && spec.Linux != nil && spec.Linux.Resources != nil {
		resources = *spec.Linux.Resources
	}
	out := make([]string, 0, len(args)+2)
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "boot":
			out = append(out, "--directfs=false", args[i])
			if n := cpuCount(resources.CPU); n > 0 {
				out = append(out, fmt.Sprintf("--cpu-num=%d", n))
			}
		case args[i] == "--total-memory" && i+1 < len(args) && resources.Memory != nil && resources.Memory.Limit != nil:
			out = append(out, args[i], strconv.FormatInt(*resources.Memory.Limit, 10))
			i++
		case strings.HasPrefix(args[i], "--directfs"):
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// cpuCount is the number of processors a program is shown: as many as the quota
// can keep busy, and no more than the host has. 0 leaves it to gVisor.
func cpuCount(cpu *specs.LinuxCPU) int {
	if cpu == nil || cpu.Quota == nil || cpu.Period == nil || *cpu.Period == 0 {
		return 0
	}
	period := int64(*cpu.Period)
	return min(max(1, int((*cpu.Quota+period-1)/period)), runtime.NumCPU())
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
