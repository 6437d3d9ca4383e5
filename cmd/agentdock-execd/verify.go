package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stampDir holds what services have found out about this host since it booted.
// It is lost with a reboot, as it must be.
const stampDir = "/run/agentdock"

// verify tries a sandbox before any is served, and refuses the start when the
// host does not confine it as claimed (REQUIREMENTS C2). There is no way to
// switch it off. A service that lives only for its caller, as each "agentdock
// run" starts one, takes the word of an earlier one for the same programs,
// kernel and settings; a lasting one always looks for itself.
func verify(c config, guest string, log *slog.Logger, try func(context.Context) error) error {
	stamp, err := stampPath(c, guest)
	if err != nil {
		return fmt.Errorf("cannot start: cannot tell what is verified: %w", err)
	}
	if c.ExitWithFD >= 0 && stampHolds(stamp) {
		return nil
	}
	began := time.Now()
	if err := try(context.Background()); err != nil {
		_ = os.Remove(stamp)
		return fmt.Errorf("cannot start: a guarantee does not hold: %w; see agentdock doctor", reason(err))
	}
	log.Info("verified that a sandbox is confined", "took", time.Since(began).Round(time.Millisecond).String())
	if err := writeStamp(stamp); err != nil {
		// The next one looks again: slower, and no less safe.
		log.Warn("cannot note that this host was verified", "error", err)
	}
	return nil
}

// reason is the error with its causes: the one who starts the service is its
// operator.
func reason(err error) error {
	text := err.Error()
	for cause := errors.Unwrap(err); cause != nil; cause = errors.Unwrap(cause) {
		if !strings.Contains(text, cause.Error()) {
			text += ": " + cause.Error()
		}
	}
	return errors.New(text)
}

// stampPath names everything that the result depends on: another kernel, boot,
// program, helper, control group or set of namespaces has another stamp.
func stampPath(c config, guest string) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%q\n", boot, c.CgroupParent)
	// Not the bytes of the programs, which take longer to read than a sandbox
	// takes to start: a changed file has another time of change, which nobody
	// can set.
	for _, path := range []string{"/proc/self/exe", guest, "/sys/fs/cgroup"} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", fmt.Errorf("cannot look at %s: %w", path, err)
		}
		fmt.Fprintln(sum, st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
	}
	for _, ns := range []string{"user", "pid", "net", "cgroup"} {
		link, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, link)
	}
	// Absent on many hosts; where they are, they forbid what was possible.
	for _, setting := range []string{"user/max_user_namespaces", "kernel/apparmor_restrict_unprivileged_userns", "kernel/unprivileged_userns_clone"} {
		value, _ := os.ReadFile("/proc/sys/" + setting)
		fmt.Fprintf(sum, "%q\n", value)
	}
	return filepath.Join(stampDir, "verified-"+hex.EncodeToString(sum.Sum(nil))[:32]), nil
}

// stampHolds believes only root: its own file, in a directory of its own.
func stampHolds(path string) bool {
	for _, p := range []string{filepath.Dir(path), path} {
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil || st.Uid != 0 || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return false
		}
	}
	return true
}

// keepStamps is how many findings are kept: a few settings and an update or two.
const keepStamps = 16

// writeStamp removes the oldest stamps: they are empty files, but they would
// gather with each update.
func writeStamp(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	stamps, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "verified-*"))
	age := func(name string) time.Duration {
		info, err := os.Lstat(name)
		if err != nil {
			return 0
		}
		return time.Since(info.ModTime())
	}
	slices.SortFunc(stamps, func(a, b string) int { return cmp.Compare(age(a), age(b)) })
	for i, stamp := range stamps {
		if i >= keepStamps-1 && stamp != path {
			_ = os.Remove(stamp)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
