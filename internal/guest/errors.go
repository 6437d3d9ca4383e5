package guest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Exit statuses of the archive commands. What they mean is known to the host's
// side; what they say is only believed as far as a sandbox can be.
const (
	ExitInvalid   = 3
	ExitExhausted = 4
	ExitOther     = 5
	ExitMissing   = 6
	ExitDenied    = 7
)

// Invalid is an archive or request that can never succeed.
type Invalid struct{ Reason string }

func (e *Invalid) Error() string { return e.Reason }

func invalid(format string, args ...any) error {
	return &Invalid{Reason: fmt.Sprintf(format, args...)}
}

// ErrMissing says that what was asked for does not exist.
var ErrMissing = errors.New("it does not exist")

// ErrTooLarge says that there is more to pack than was allowed.
var ErrTooLarge = errors.New("the files are larger than the limit")

// ExitStatus is the exit status that tells the host about err.
func ExitStatus(err error) int {
	var inv *Invalid
	switch {
	case err == nil:
		return 0
	case errors.As(err, &inv):
		return ExitInvalid
	case errors.Is(err, ErrTooLarge), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return ExitExhausted
	case errors.Is(err, ErrMissing):
		return ExitMissing
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return ExitDenied
	default:
		return ExitOther
	}
}
