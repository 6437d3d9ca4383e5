package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// privilege is a capability that the service has, with what fails without it.
type privilege struct {
	capability int
	name       string
	reason     string
}

// kept are the capabilities that the service has. Everything else is given up
// before the first call is taken, in all five sets and for good. It needs none to
// signal a sentry, to read its /proc, or to arrange its namespaces: it owns their
// user namespaces. A service that is not root has none and needs none.
func kept() []privilege {
	if os.Geteuid() != 0 {
		return nil
	}
	return []privilege{
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "a mount namespace of its own; gVisor starts no sentry with an empty root without it"},
		{unix.CAP_SETUID, "CAP_SETUID", "each sentry is mapped to a user of the host that is not root"},
		{unix.CAP_SETGID, "CAP_SETGID", "the same for its group"},
		{unix.CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE", "the root of a cgroup hierarchy denies writing even to its owner, and programs and images may lie in a directory of the user who called sudo"},
	}
}

// capabilitySets are those of a thread that capget knows.
type capabilitySets struct{ effective, permitted, inheritable uint64 }

func capabilities() (capabilitySets, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return capabilitySets{}, err
	}
	join := func(low, high uint32) uint64 { return uint64(high)<<32 | uint64(low) }
	return capabilitySets{
		effective:   join(data[0].Effective, data[1].Effective),
		permitted:   join(data[0].Permitted, data[1].Permitted),
		inheritable: join(data[0].Inheritable, data[1].Inheritable),
	}, nil
}

func maskOf(kept []privilege) (mask uint64) {
	for _, k := range kept {
		mask |= 1 << k.capability
	}
	return mask
}

// giveUpPrivileges leaves the calling thread, and what it executes next, with
// the capabilities that are kept and no way to others: not by a setuid program,
// not by a file's capabilities, not by being root. The thread must be locked.
func giveUpPrivileges(kept []privilege) error {
	have, err := capabilities()
	if err != nil {
		return fmt.Errorf("cannot start: cannot read the own capabilities: %w", err)
	}
	var missing []string
	for _, k := range kept {
		if have.effective&(1<<k.capability) == 0 {
			missing = append(missing, fmt.Sprintf("%s (%s)", k.name, k.reason))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cannot start: missing %s; root was given less than this service needs: give it these capabilities", strings.Join(missing, ", "))
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot start: cannot clear the ambient capabilities: %w", err)
	}
	mask := maskOf(kept)
	if err := dropBounding(mask, have); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		word := uint32(mask >> (32 * i))
		data[i] = unix.CapUserData{Effective: word, Permitted: word}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("cannot start: cannot give up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot start: cannot set no_new_privs: %w", err)
	}
	return nil
}

// dropBounding limits what root gets when it executes a program. A capability
// that the host or the container around has already taken away stays away.
func dropBounding(mask uint64, have capabilitySets) error {
	if have.effective&(1<<unix.CAP_SETPCAP) == 0 && mask == 0 {
		return nil // no_new_privs is what keeps an ordinary user from them
	}
	for c := range 64 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel knows no more
		}
		if err != nil {
			return fmt.Errorf("cannot start: cannot read the bounding set: %w", err)
		}
		if has == 0 || mask&(1<<c) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("cannot start: cannot give up capability %d for good: %w; give it CAP_SETPCAP", c, err)
		}
	}
	return nil
}

// checkPrivileges refuses to serve with more than what is kept. The second life
// calls it: that it is the second life is only what an environment says.
func checkPrivileges(kept []privilege) error {
	have, err := capabilities()
	if err != nil {
		return fmt.Errorf("cannot start: cannot read the own capabilities: %w", err)
	}
	mask := maskOf(kept)
	if have.effective != mask || have.permitted != mask || have.inheritable != 0 {
		return fmt.Errorf("cannot start: capabilities are %x permitted, %x effective, %x inheritable, want %x, %x, 0; start agentdock-execd without setting its stage by hand",
			have.permitted, have.effective, have.inheritable, mask, mask)
	}
	for c := range 64 {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil || len(kept) == 0 {
			break
		}
		if has != 0 && mask&(1<<c) == 0 {
			return fmt.Errorf("cannot start: capability %d can still be had; start agentdock-execd without setting its stage by hand", c)
		}
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || nnp != 1 {
		return fmt.Errorf("cannot start: no_new_privs is %d, %v; start agentdock-execd without setting its stage by hand", nnp, err)
	}
	return nil
}
