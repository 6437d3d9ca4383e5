package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func checkProcesses(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	const tries = 96
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, "fork", strconv.Itoa(tries))
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, "fork", strconv.Itoa(tries))
	if err != nil {
		return f, err
	}
	limit := small().PIDs
	f.refused = inside.of("fork") == "EAGAIN" && inside.number("children") <= limit && inside.result.Outcome.Touched(run.LimitPIDs)
	f.bites = outside.of("fork") == "ok" && outside.number("children") == tries
	f.evidence = fmt.Sprintf("with a limit of %d: %d children, then %s", limit, inside.number("children"), inside.of("fork"))
	f.control = fmt.Sprintf("%d children", outside.number("children"))
	return f, nil
}

// writable are the places that a program can write to; each must have a quota.
var writable = []string{"/workspace", "/tmp", "/dev/shm"}

func checkDisk(ctx context.Context, s *session) (finding, error) {
	limit := small().DiskBytes
	return quota{
		limit: limit, touches: run.LimitDisk, sandbox: s.sandbox,
		program: "fill", file: "/fill", tries: 2 * limit, verb: "write", count: "written",
		limited: "bytes, written", unit: "bytes",
	}.check(ctx, s)
}

// checkInodes uses a sandbox whose disk is not full.
func checkInodes(ctx context.Context, s *session) (finding, error) {
	limit := small().Inodes
	return quota{
		limit: limit, touches: run.LimitInodes, sandbox: s.other,
		program: "touch", tries: 4 * limit, verb: "create", count: "made",
		limited: "files, made", unit: "files",
	}.check(ctx, s)
}

// quota is a limit of every writable place, and a program that passes it.
type quota struct {
	limit   int64
	touches run.Limit
	sandbox func(context.Context) (execenv.Sandbox, error)

	program, file string // what to run, and on what below the place
	tries         int64  // how much it is to try
	verb, count   string // what the program says of its last try, and how far it came
	limited, unit string // for people
}

func (q quota) check(ctx context.Context, s *session) (f finding, err error) {
	sb, err := q.sandbox(ctx)
	if err != nil {
		return f, err
	}
	tries := strconv.FormatInt(q.tries, 10)
	f.refused = true
	var seen []string
	for _, place := range writable {
		a, err := s.inside(ctx, sb, execenv.ExecSpec{}, q.program, place+q.file, tries)
		if err != nil {
			return f, err
		}
		f.refused = f.refused && a.of(q.verb) == "ENOSPC" && a.number(q.count) <= q.limit && a.result.Outcome.Touched(q.touches)
		seen = append(seen, fmt.Sprintf("%s %d", place, a.number(q.count)))
	}
	dir, err := s.scratch()
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, q.program, dir+q.file, tries)
	if err != nil {
		return f, err
	}
	f.bites = outside.of(q.verb) == "ok"
	f.evidence = fmt.Sprintf("with a limit of %d %s before ENOSPC: %s", q.limit, q.limited, strings.Join(seen, ", "))
	f.control = tries + " " + q.unit
	return f, nil
}

func checkOutput(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	const bytes = 1 << 20
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{}, "flood", strconv.Itoa(bytes))
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, "flood", strconv.Itoa(bytes))
	if err != nil {
		return f, err
	}
	kept := int64(len(strings.Join(inside.lines, "\n")))
	limit := small().OutputBytes
	f.refused = inside.result.Truncated && kept == limit && inside.result.StdoutBytes == bytes && inside.result.Outcome.Success()
	f.bites = outside.out == bytes
	f.evidence = fmt.Sprintf("of %d bytes %d were kept and the program ended by itself", inside.result.StdoutBytes, kept)
	f.control = fmt.Sprintf("%d bytes", outside.out)
	return f, nil
}

// checkProcessor compares processor time with the time that passed. The quota
// is far below what two busy threads get even on a busy machine.
func checkProcessor(ctx context.Context, s *session) (f finding, err error) {
	limits := small()
	limits.MilliCPU = 100
	sb, err := s.create(ctx, limits)
	if err != nil {
		return f, err
	}
	defer func() {
		if destroyErr := s.env.Destroy(ctx, sb.ID()); err == nil {
			err = destroyErr
		}
	}()
	before, err := sb.Usage(ctx)
	if err != nil {
		return f, err
	}
	began := time.Now()
	if _, err := s.inside(ctx, sb, execenv.ExecSpec{}, "burn", "1000"); err != nil {
		return f, err
	}
	after, err := sb.Usage(ctx)
	if err != nil {
		return f, err
	}
	cores := (after.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
	const most = 0.15 // the quota, and what the kernel hands out ahead
	var free float64
	for range 3 { // another program may be using the machine
		outside, err := s.outside(ctx, "burn", "500")
		if err != nil {
			return f, err
		}
		if free = max(free, outside.cpu.Seconds()/outside.took.Seconds()); free > 2*most {
			break
		}
	}
	return finding{
		refused: cores > 0 && cores <= most, bites: free > most,
		evidence: fmt.Sprintf("with a limit of 0.1, two busy threads used %.2f processors", cores),
		control:  fmt.Sprintf("%.2f", free),
	}, nil
}

func checkMemory(ctx context.Context, s *session) (f finding, err error) {
	limits := small()
	limits.MemoryBytes = 64 * run.MiB
	sb, err := s.create(ctx, limits)
	if err != nil {
		return f, err
	}
	defer func() {
		if destroyErr := s.env.Destroy(ctx, sb.ID()); err == nil {
			err = destroyErr
		}
	}()
	size := strconv.FormatInt(3*limits.MemoryBytes, 10)
	kind, err := bomb(ctx, sb, size)
	if err != nil {
		return f, err
	}
	outside, err := s.outside(ctx, "alloc", size)
	if err != nil {
		return f, err
	}
	return finding{
		refused: kind == run.OutOfMemory, bites: outside.of("allocated") == size,
		evidence: fmt.Sprintf("with a limit of 64 MiB, 192 MiB end as %s", kind),
		control:  "192 MiB are allocated",
	}, nil
}

// bomb allocates that much and says how it ended. The sandbox may be gone before
// the start of the program is reported; then its own end is the answer.
func bomb(ctx context.Context, sb execenv.Sandbox, size string) (run.Kind, error) {
	c, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{guestInside, "probe", "alloc", size}})
	if err == nil {
		r, err := c.Wait(ctx)
		return r.Outcome.Kind, err
	}
	info, infoErr := sb.Info(ctx)
	if !fault.Is(err, fault.Gone) || infoErr != nil || info.Outcome == nil {
		return "", err
	}
	return info.Outcome.Kind, nil
}

func checkClock(ctx context.Context, s *session) (f finding, err error) {
	sb, err := s.sandbox(ctx)
	if err != nil {
		return f, err
	}
	const limit = 200 * time.Millisecond
	inside, err := s.inside(ctx, sb, execenv.ExecSpec{Timeout: limit}, "hold")
	if err != nil {
		return f, err
	}
	cmd := s.command(ctx, "hold")
	if err := cmd.Start(); err != nil {
		return f, err
	}
	time.Sleep(limit)
	lives := cmd.Process.Signal(syscall.Signal(0)) == nil
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	took := inside.result.Duration
	return finding{
		refused: inside.result.Outcome.Kind == run.WallClock && took < limit+5*time.Second, bites: lives,
		evidence: fmt.Sprintf("with a limit of %s, a program that ignores signals ends as %s after %s", limit, inside.result.Outcome.Kind, took.Round(time.Millisecond)),
		control:  "it is still running then",
	}, nil
}
