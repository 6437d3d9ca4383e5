package gvisor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

// Sentries run as users of the host that nobody else is, one for each sandbox
// that is alive, so that not even a broken-out sentry may touch another. The
// range is far above what systems and their subordinate ID files hand out. It is
// divided into blocks, and each Environment of a host claims one.
const (
	firstHostID = 1_879_048_192
	blockSize   = 1 << 16
	blocks      = 1 << 10
)

// hostUsers hands out the users of one block. The lock of Environment.boxes guards it.
type hostUsers struct {
	claim int // the descriptor that holds the block
	first uint32
	slots slots
}

// claimHostUsers takes a block that no other process has. The claim is the name
// of a socket without a file: the kernel hands each name out once and takes it
// back when its holder ends, however it ends.
func claimHostUsers() (*hostUsers, error) {
	for block := range blocks {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot claim users of the host: %w", err)
		}
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@agentdock-host-users-%d", block)})
		if err == nil {
			return &hostUsers{claim: fd, first: firstHostID + uint32(block)*blockSize}, nil
		}
		unix.Close(fd)
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("cannot claim users of the host: %w", err)
		}
	}
	return nil, fault.New(fault.Exhausted, "cannot claim users of the host: %d execution services have one block each", blocks)
}

func (u *hostUsers) take() uint32 { return u.first + uint32(u.slots.take()) }

func (u *hostUsers) release(id uint32) { u.slots.release(int(id - u.first)) }

func (u *hostUsers) close() { unix.Close(u.claim) }
