package guest

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RefusalsCall is a system call that AgentDock adds to the sandbox's kernel, for
// process 1 alone. Given the number of a command's slot and a counter, it returns
// what was counted for that slot since the sandbox began.
const RefusalsCall = 1900

// What is counted for each slot, in the order in which init reports it.
const (
	RefusedDisk   = iota // calls that found no byte left
	RefusedInodes        // calls that found no inode left
	RefusedPIDs          // processes and threads that the process limit refused
	// UnseenWrites are requests for writing in a way whose refusal no call
	// returns: through a shared mapping, or asynchronously.
	UnseenWrites
	Counters // is how many there are
)

// refused reports what was counted for a slot.
func refused(slot string) (string, error) {
	n, err := strconv.ParseUint(slot, 10, 31)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("ok")
	for counter := range uintptr(Counters) {
		count, _, errno := unix.RawSyscall(RefusalsCall, uintptr(n), counter, 0)
		if errno != 0 {
			return "", fmt.Errorf("cannot read what was refused: %w", errno)
		}
		fmt.Fprintf(&b, " %d", count)
	}
	return b.String(), nil
}
