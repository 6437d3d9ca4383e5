package guest

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// CheckpointCall is a system call that AgentDock adds to the sandbox's kernel, for
// process 1 alone: what has to be done in the kernel before a checkpoint and after
// a restore, so that commands outlive both.
const CheckpointCall = 1901

// What CheckpointCall is told to do.
const (
	CheckpointKeep = iota // a file of the host, by its key, will be there again
	CheckpointArm         // that was all of them: get ready
	CheckpointDone        // after the restore
)

// hold gets the sandbox's kernel ready for a checkpoint.
func hold(keys []string) (string, error) {
	for _, k := range keys {
		key, err := strconv.ParseUint(k, 10, 63)
		if err != nil {
			return "", err
		}
		if err := checkpointCall(CheckpointKeep, uintptr(key)); err != nil {
			return "", err
		}
	}
	return "ok", checkpointCall(CheckpointArm, 0)
}

func checkpointCall(what, key uintptr) error {
	if _, _, errno := unix.RawSyscall(CheckpointCall, what, key, 0); errno != 0 {
		return fmt.Errorf("cannot get ready for a checkpoint: %w", errno)
	}
	return nil
}
