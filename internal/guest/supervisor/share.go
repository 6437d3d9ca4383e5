package supervisor

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Where the kernel cannot bound the processes of one sandbox, it bounds those of
// all together, being of one user, and one sandbox could take what there is for
// all. So the first process keeps its sandbox to a share: when it has more, what is
// in it can make no more of them from then on, and sees the kernel's own EAGAIN.
// How far a storm gets before that depends on how busy the machine is. For that
// moment it may take what others would need; one that got too far is ended.

// lookTime is how often is looked whether processes were made.
const lookTime = 5 * time.Millisecond

// share is what a sandbox may have, and what was seen of it.
type share struct {
	most int
	// At the last count: the number of the last process that was made, and how
	// many there were.
	last, counted int
	watching      bool // guarded by supervisor.mu
}

// keepShare watches as long as there are commands. Called with the lock held.
func (s *supervisor) keepShare() {
	if s.share.most == 0 || s.share.watching {
		return
	}
	s.share.watching = true
	go func() {
		// A thread of its own, which is to run at once when it is its time, however
		// many others are. Where the kernel does not know that, it comes later.
		runtime.LockOSThread()
		_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Runtime: uint64(shortSlice), Nice: 0}, 0)
		pause := unix.NsecToTimespec(int64(lookTime))
		for s.look() {
			_ = unix.Nanosleep(&pause, nil) // not the runtime's, which wakes another thread first
		}
	}()
}

// shortSlice is how long the watching thread asks to run at a time, which is what
// the kernel goes by when it picks the next (Linux 6.12 and later).
const shortSlice = 100 * time.Microsecond

// look counts if there can be too many by now, and says whether to go on.
func (s *supervisor) look() bool {
	if !s.forking.TryLock() {
		return true // a shepherd is being started, which must not be held back
	}
	defer s.forking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flock) == 0 {
		s.share.watching = false
		return false
	}
	last, err := lastProcess()
	if err == nil && !s.share.due(last) {
		return true
	}
	pids, err := numbers()
	if err != nil {
		return true
	}
	if len(pids) > s.share.most {
		// At once, whatever anybody had stopped in there: a storm doubles while it
		// is looked at.
		_ = frozenSince(nil, s.holdBack)
		return true
	}
	// Threads have numbers too, and are not listed.
	all, err := processes()
	if err != nil {
		return true
	}
	s.share.last, s.share.counted = last, s.tasks(all)
	if s.share.counted > s.share.most {
		_ = frozen(s.holdBack)
	}
	return true
}

// due says whether as many were made since the last count as it takes to be over
// the share. Each time that it is over, a few more count as many.
func (h share) due(last int) bool {
	const few = 16
	made := last - h.last
	return made < 0 || made > max(h.most-h.counted, few)
}

// tasks counts what programs have: processes and threads, as the kernel does.
func (s *supervisor) tasks(all map[int]process) (n int) {
	for pid, p := range all {
		if s.flock[pid] == nil {
			n += p.threads
		}
	}
	return n
}

// tooFar is how many times its share a sandbox must have to be more than held back.
const tooFar = 2

// holdBack takes from everything in the sandbox that it can make processes. If it
// has got too far, that leaves others without, and the dead count until they are
// collected: then the command that has most of them is ended. Shepherds stay as
// they are, and what they start is counted again.
func (s *supervisor) holdBack(all map[int]process) {
	had := s.tasks(all)
	s.share.counted = had
	s.share.last, _ = lastProcess()
	remark := fmt.Sprintf("the sandbox had %d processes and threads, and may have %d here: ", had, s.share.most)
	if had > tooFar*s.share.most {
		h, most := s.largest(all)
		kill(all, most)
		if h != nil {
			h.remark = remark + "this command had most of them, and was killed"
		}
		return
	}
	none := unix.Rlimit{}
	for pid := range all {
		if s.flock[pid] == nil {
			_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &none, nil) // else it is gone
		}
	}
	for _, h := range s.flock {
		h.remark = remark + "it could make no more"
	}
}

// largest is the command with the most processes, or nil and what belongs to none,
// if that is more.
func (s *supervisor) largest(all map[int]process) (of *herding, most []int) {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
	}
	below := func(found []int) []int {
		for i := 0; i < len(found); i++ {
			if s.flock[found[i]] == nil {
				found = append(found, children[found[i]]...)
			}
		}
		return found
	}
	for _, pid := range children[1] {
		h, mine := s.flock[pid], []int{pid}
		if h != nil {
			mine = children[pid]
		}
		if mine = below(slices.Clone(mine)); len(mine) > len(most) {
			of, most = h, mine
		}
	}
	return of, most
}

// lastProcess is the number of the last process or thread that was made in the PID
// namespace. It counts up, and begins again after the highest.
func lastProcess() (int, error) {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data))
	if len(fields) != 5 {
		return 0, fmt.Errorf("cannot read the last process out of %q", data)
	}
	return strconv.Atoi(fields[4])
}
