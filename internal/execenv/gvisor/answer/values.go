package answer

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is what init says of one writable place.
type Place struct{ Used, Free, UsedInodes, FreeInodes int64 }

// ParsePlaces reads init's answer to "usage": four numbers for each writable
// place, the workspace first.
func ParsePlaces(words []string) ([]Place, error) {
	const most = 16
	if len(words) == 0 || len(words)%4 != 0 || len(words) > 4*most {
		return nil, fmt.Errorf("init answered with %d numbers about its writable places", len(words))
	}
	places := make([]Place, len(words)/4)
	for i, word := range words {
		v, err := parseAmount(word)
		if err != nil {
			return nil, fmt.Errorf("cannot read init's answer: %w", err)
		}
		p := &places[i/4]
		*[]*int64{&p.Used, &p.Free, &p.UsedInodes, &p.FreeInodes}[i%4] = v
	}
	return places, nil
}

// Refusals is what a sandbox's kernel counted for a slot since the sandbox began.
type Refusals struct {
	Disk, Inodes, PIDs int64
	// Unseen counts requests for writing whose refusal could not be counted.
	Unseen int64
}

// ParseRefusals reads init's answer to "refused".
func ParseRefusals(words []string) (Refusals, error) {
	var r Refusals
	counters := []*int64{&r.Disk, &r.Inodes, &r.PIDs, &r.Unseen}
	if len(words) != len(counters) {
		return r, fmt.Errorf("init answered with %d numbers about what was refused", len(words))
	}
	for i, word := range words {
		v, err := parseAmount(word)
		if err != nil {
			return r, fmt.Errorf("cannot read init's answer: %w", err)
		}
		*counters[i] = v
	}
	return r, nil
}

// ParseAccount reads init's answer to "account N": that to "refused N" and that to
// "usage".
func ParseAccount(words []string) (Refusals, []Place, error) {
	const counters = 4
	if len(words) < counters {
		return Refusals{}, nil, fmt.Errorf("init answered with %d numbers about a command", len(words))
	}
	r, err := ParseRefusals(words[:counters])
	if err != nil {
		return Refusals{}, nil, err
	}
	places, err := ParsePlaces(words[counters:])
	return r, places, err
}

// Since is what was counted after an earlier reading.
func (r Refusals) Since(o Refusals) Refusals {
	return Refusals{Disk: r.Disk - o.Disk, Inodes: r.Inodes - o.Inodes, PIDs: r.PIDs - o.PIDs, Unseen: r.Unseen - o.Unseen}
}

// ParsePIDsHits reads pids.events of a cgroup in the sandbox.
func ParsePIDsHits(events string) (int64, error) {
	for _, line := range strings.Split(events, "\n") {
		if v, ok := strings.CutPrefix(line, "max "); ok {
			return parseAmount(strings.TrimSpace(v))
		}
	}
	return 0, nil
}

func parseAmount(word string) (int64, error) {
	n, err := strconv.ParseInt(word, 10, 64)
	if err == nil && n < 0 {
		err = fmt.Errorf("%d is no amount", n)
	}
	return n, err
}

// CheckStatus refuses a wait status that no ended process has, which an outcome
// would otherwise be made up from.
func CheckStatus(status unix.WaitStatus) error {
	const core, lastSignal = 0x80, 64
	switch s := uint32(status); {
	case s&^0xff00 == 0: // exited
		return nil
	case s&^0xff == 0 && s&^core != 0 && s&^core <= lastSignal: // ended by a signal
		return nil
	default:
		return fmt.Errorf("the sandbox's kernel gave the impossible wait status 0x%x", s)
	}
}
