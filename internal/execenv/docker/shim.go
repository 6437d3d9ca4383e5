package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// endShims ends what a daemon leaves of a container when it is killed: the process
// that looked after it, whose socket was in a mount namespace that went with the
// daemon, so that no later one can find it. It is known by the container's ID,
// which is the daemon's and 256 random bits.
func endShims(container string) {
	if len(container) != 64 {
		return
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		argv := strings.Split(string(data), "\x00")
		i := slices.Index(argv, "-id")
		if i < 0 || i+1 >= len(argv) || argv[i+1] != container || !strings.HasPrefix(filepath.Base(argv[0]), "containerd-shim") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
