package hostile

import (
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// Limits of a sandbox of the case's own.
func same(*run.Limits)      {}
func tiny(l *run.Limits)    { l.MemoryBytes, l.DiskBytes = 64*run.MiB, 16*run.MiB }
func small(l *run.Limits)   { l.MemoryBytes = 96 * run.MiB }
func halves(l *run.Limits)  { l.MemoryBytes, l.DiskBytes = 96*run.MiB, 48*run.MiB }
func onDisk(l *run.Limits)  { l.MemoryBytes, l.DiskBytes = 96*run.MiB, 128*run.MiB }
func roomy(l *run.Limits)   { l.MemoryBytes = 512 * run.MiB }
func fewPIDs(l *run.Limits) { l.PIDs = 32 }

// short is a time limit that is over soon.
func short(e *execenv.ExecSpec) { e.Timeout = 500 * time.Millisecond }

// endAt makes a limit end the command.
func endAt(l run.Limit) func(*execenv.ExecSpec) {
	return func(e *execenv.ExecSpec) { e.EndAtLimit = []run.Limit{l} }
}

// more is above the limits of the sandbox; enough is a limit above it.
const (
	more   = "200000000"
	enough = 400 * run.MiB
)

// forever runs until the clock ends it.
var forever = want(ended(run.WallClock), within(20*time.Second))

// kept looks at a daemon that the host keeps, and ends it.
var kept = shown("a daemon of the host outlives its parent", func(b *bench) {
	out := b.through(b.user(), do("daemon"))
	var pid int
	if _, err := fmt.Sscanf(out, "daemon %d", &pid); err != nil {
		b.Fatal(err)
	}
	if err := killAlive(pid); err != nil {
		b.Errorf("the control does not bite: the daemon is gone: %v", err)
	}
})

var processCases = []attack{
	{what: "fork_bomb", own: same, do: do("fork", "200"), want: want(blocked("EAGAIN"), hit(run.LimitPIDs)), bites: asUser},
	// gVisor counts living processes only; what is dead is bounded by memory.
	{what: "zombies", own: same, do: do("zombies", "200"), want: want(exited(0)), accepted: zombiesUncounted},
	{what: "thread_bomb", own: same, do: do("threads", "200"), want: want(exited(2), hit(run.LimitPIDs), prints("errno=11|pthread_create failed")), bites: asUser},
	{what: "fork_bomb_in_a_user_namespace", own: same, do: do("in-namespaces", "fork", "200"), want: want(blocked("EAGAIN", "EPERM"))},
	// A limit that a program gave itself is not the sandbox's.
	{what: "own_process_limit", own: same, do: do("fork-within", "40", "200"), want: want(blocked("EAGAIN"), unhit(run.LimitPIDs))},
	{what: "fork_storm", own: fewPIDs, with: short, do: do("storm"), want: append(want(hit(run.LimitPIDs)), forever...)},
	{what: "fork_storm_ends_in_time", own: fewPIDs, with: short, do: do("storm"), want: want(ended(run.WallClock), within(12*time.Second))},
	{what: "fork_storm_to_its_limit", own: fewPIDs, with: endAt(run.LimitPIDs), do: do("storm"), want: want(ended(run.PIDs), hit(run.LimitPIDs), within(20*time.Second))},
	{what: "respawning_chain", do: do("chain"), want: want(exited(0))},
	{what: "exec_loop", with: short, do: do("exec-loop"), want: forever},
	{what: "many_short_lives", do: do("spawn", "100"), want: want(exited(0))},
	{what: "daemon", do: do("daemon"), want: want(exited(0), within(20*time.Second)), bites: kept},
	{what: "daemon_in_namespaces", do: do("in-namespaces", "daemon"), want: want(blocked("EPERM"))},
	{what: "daemon_holding_output", do: do("daemon", "holding"), want: want(exited(0), within(20*time.Second))},
	{what: "stopped_daemon", do: do("daemon", "stopped"), want: want(exited(0), within(20*time.Second))},
	{what: "ignores_signals", with: short, do: do("stubborn"), want: forever},
	{what: "kill_everything", do: do("kill-all"), want: want(either(want(ended(run.Signalled)), want(exited(0)), want(blocked("ESRCH", "EPERM"))))},
	{what: "kill_init", do: do("kill", "$victim", "9"), want: want(blocked("EPERM")), bites: asOwner},
	{what: "stop_init", do: do("kill", "$victim", "19"), want: want(blocked("EPERM")), bites: asOwner},
	{what: "kill_host_process", do: do("kill", "$hostpid", "0"), want: want(blocked("ESRCH")), bites: instead(asUser, "kill", "$victim", "0")},
	{what: "big_arguments", do: do("big-arguments", "200000"), want: want(blocked("E2BIG", "ENOMEM", "ENAMETOOLONG"))},
	{what: "raise_process_limit", do: do("raise-rlimit", "7"), want: want(blocked("EPERM", "EINVAL")), bites: instead(asRoot, "raise-rlimit", "9")},
	{what: "raise_priority", run: niceIsNothing, bites: shown("root of the host gets it", func(b *bench) { b.through(b.root(), do("nice", "-20")) }), accepted: priorityIgnored},
	{what: "realtime", do: do("realtime"), want: want(blocked("EPERM", "ENOSYS", "EINVAL")), bites: asRoot},
	{what: "exits_137_by_itself", do: do("exit", "137"), want: want(exited(137))},
	{what: "kills_itself", do: do("raise", "9"), want: want(signalled("SIGKILL"))},
	{what: "kill_helpers_of_the_service", run: killHelpers},
}

// bomb ends the sandbox for its memory; what asks beforehand and is refused is
// bounded too.
var bomb = want(ended(run.OutOfMemory), hit(run.LimitMemory))

// bounded is either.
var bounded = want(either(bomb, want(blocked("ENOMEM", "EPERM", "EAGAIN", "ENOSPC", "EMFILE", "ENFILE", "ENOBUFS"))))

// What gets through and is accepted, because it is bounded or has no effect.
const (
	zombiesUncounted = "the process limit counts living processes; dead ones that nobody waits for are bounded by the memory limit"
	priorityIgnored  = "a program may give itself any priority; it has no effect on the host"
	timersDelay      = "timers that fire all the time keep the sandbox's kernel busy: such a program may end a few seconds after its time limit; its sandbox is ended from outside once it has used one second of processor time, and 5 ms for each process it may have, without ending it"
	tunnelOpens      = "/dev/net/tun can be opened; it makes no interface"
)

var memoryCases = []attack{
	{what: "private", own: small, do: do("alloc", more), want: bomb, bites: withMemory(enough)},
	{what: "shared", own: small, do: do("alloc-shared", more), want: bomb, bites: withMemory(enough)},
	{what: "populated", own: small, do: do("alloc-populate", more), want: bounded, bites: withMemory(enough)},
	{what: "many_children", own: small, do: do("alloc-children", "12", "20000000"), want: bomb, bites: withMemory(enough)},
	{what: "after_lowering_its_score", own: small, do: do("alloc-unkillable", more), want: bomb, bites: withMemory(enough)},
	{what: "memfd", own: small, do: do("memfd", more), want: bounded, bites: withMemory(enough)},
	{what: "locked", own: small, do: do("mlock", more), want: bounded, bites: withMemory(enough)},
	{what: "huge_pages", own: small, do: do("hugepages", more), want: want(either(bomb, bounded, want(exited(0))))},
	{what: "pipe_buffers", own: small, do: do("pipes", "300"), want: bounded, bites: withMemory(enough)},
	{what: "socket_buffers", own: small, do: do("sockets", "80"), want: bounded, bites: withMemory(2 * run.GiB)},
	{what: "descriptors", own: same, do: do("descriptors", "100000"), want: want(blocked("EMFILE"))},
	{what: "mappings", own: tiny, do: do("mappings", "2000000"), want: bounded},
	{what: "stack", own: small, do: do("stack"), want: want(either(bomb, want(exited(2), prints("stack overflow|stack exceeds"))))},
	{what: "files_in_both_places", own: halves, do: do("fill-both", "bomb", "/tmp/bomb", more), want: bomb, bites: withMemoryTmpfs},
	{what: "files_beside_memory", own: halves, do: do("fill-then", "bomb", more, "alloc", more), want: bomb},
	{what: "private_beside_files_on_disk", own: onDisk, do: do("fill-then", "bomb", more, "alloc", more), want: bomb},
	{what: "memfd_beside_files_on_disk", own: onDisk, do: do("fill-then", "bomb", more, "memfd", more), want: bounded},
	{what: "tmpfs_of_a_user_namespace", own: small, do: do("in-namespaces", "on-tmpfs", "fill", "bomb", more), want: want(blocked("EPERM"))},
}

var withMemoryTmpfs = control{"in a control group with more memory", func(b *bench, _ []string) {
	withMemory(enough).run(b, do("on-tmpfs", "fill", "bomb", more))
}}

var timeCases = []attack{
	{what: "spin", with: short, do: do("spin", "1"), want: forever},
	{what: "spin_many", own: same, with: short, do: do("spin", "20"), want: forever},
	{what: "processor_quota", own: func(l *run.Limits) { l.MilliCPU = 100 }, run: quotaHolds, bites: shown("the same without a quota uses more", quotaOnHost)},
	{what: "sleep", with: short, do: do("sleep"), want: forever},
	{what: "stop_self", with: short, do: do("stop-self"), want: forever},
	{what: "blocked_open", with: short, do: do("open-fifo", "a-fifo"), want: forever},
	{what: "yield_storm", with: short, do: do("yield-storm"), want: forever},
	{what: "futex_storm", with: short, do: do("futex-storm"), want: forever},
	{what: "timer_storm", own: same, with: short, do: do("timer-storm"), want: append(want(within(8*time.Second)), forever...), accepted: timersDelay},
	{what: "signal_storm", with: short, do: do("signal-storm"), want: forever},
	{what: "limit_wins_over_timeout", own: func(l *run.Limits) { l.WallClock = time.Second }, with: func(e *execenv.ExecSpec) { e.Timeout = time.Hour }, do: do("stubborn"), want: forever},
	{what: "settimeofday", do: do("settimeofday"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
	{what: "clock_settime", do: do("clock-settime"), want: want(blocked("EPERM", "ENOSYS", "EINVAL")), dangerous: true},
	{what: "adjtimex", do: do("adjtimex"), want: want(blocked("EPERM", "ENOSYS")), dangerous: true},
}
