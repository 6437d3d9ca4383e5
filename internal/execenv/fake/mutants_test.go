package fake_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// mutant is a defect an adapter could have, and the case that must catch it.
type mutant struct {
	caughtBy string
	defect   string
	bend     func(b *bend)
}

// result makes a defect of what Wait says.
func result(change func(*execenv.Result)) func(*bend) {
	return func(b *bend) {
		b.wait = func(x execenv.Exec, ctx context.Context) (execenv.Result, error) {
			r, err := x.Wait(ctx)
			if err == nil {
				change(&r)
			}
			return r, err
		}
	}
}

// becomes makes outcomes of one kind look like something else.
func becomes(kind run.Kind, other run.Outcome) func(*bend) {
	return result(func(r *execenv.Result) {
		if r.Outcome.Kind == kind {
			other.LimitsHit = r.Outcome.LimitsHit
			r.Outcome = other
		}
	})
}

// execSpec makes a defect of what is started.
func execSpec(change func(*execenv.ExecSpec)) func(*bend) {
	return func(b *bend) {
		b.exec = func(s execenv.Sandbox, ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
			change(&spec)
			return s.Exec(ctx, spec)
		}
	}
}

// prints makes a verb of the probe print what a defect would make it see.
func prints(verb, text string) func(*bend) {
	return execSpec(func(spec *execenv.ExecSpec) {
		if len(spec.Argv) > 1 && spec.Argv[1] == verb {
			spec.Argv = []string{spec.Argv[0], "echo", text}
		}
	})
}

// chunks makes a defect of what readers get.
func chunks(change func(*execenv.Chunk)) func(*bend) {
	return func(b *bend) {
		b.output = func(x execenv.Exec, ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
			return x.Output(ctx, from, func(ch execenv.Chunk) error { change(&ch); return yield(ch) })
		}
	}
}

// creating makes a defect of what is created.
func creating(change func(ctx context.Context, spec *execenv.Spec) context.Context) func(*bend) {
	return func(b *bend) {
		b.create = func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
			ctx = change(ctx, &spec)
			return e.Create(ctx, spec)
		}
	}
}

// mutants are the defects, in the protocol's order.
func mutants() []mutant {
	return slices.Concat(sandboxMutants, commandMutants, streamMutants)
}

var sandboxMutants = []mutant{
	{"P1_create_is_idempotent", "Create makes a new sandbox of the same ID", func(b *bend) {
		b.create = func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
			_ = e.Destroy(ctx, spec.ID)
			return e.Create(ctx, spec)
		}
	}},
	{"P1_different_spec_conflicts", "Create returns whatever has the ID", func(b *bend) {
		b.create = func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
			if s, err := e.Attach(ctx, spec.ID); err == nil {
				return s, nil
			}
			return e.Create(ctx, spec)
		}
	}},
	{"P2_ended_context_leaves_nothing", "Create ignores its context", creating(func(ctx context.Context, _ *execenv.Spec) context.Context {
		return context.WithoutCancel(ctx)
	})},
	{"P2_failure_half_way_leaves_nothing", "a Create that failed stays listed", func(b *bend) {
		var mu sync.Mutex
		var failed []execenv.Info
		b.create = func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
			s, err := e.Create(ctx, spec)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, execenv.Info{ID: spec.ID})
			}
			return s, err
		}
		b.list = func(infos []execenv.Info) []execenv.Info {
			mu.Lock()
			defer mu.Unlock()
			return append(infos, failed...)
		}
	}},
	{"P3_malformed_specs_are_invalid", "an ID that is missing is made up", creating(func(ctx context.Context, spec *execenv.Spec) context.Context {
		if spec.ID == "" {
			spec.ID = "made-up"
		}
		return ctx
	})},
	{"P3_limits_below_the_floor_are_invalid", "limits that are missing are filled in", creating(func(ctx context.Context, spec *execenv.Spec) context.Context {
		spec.Limits = spec.Limits.Or(run.DefaultLimits())
		return ctx
	})},
	{"P3_unenforceable_limits_are_unsupported", "a limit that does not hold is accepted", func(b *bend) {
		b.capabilities = func(caps execenv.Capabilities) execenv.Capabilities { caps.Enforces.Inodes = false; return caps }
	}},
	{"P4_attach_unknown_is_not_found", "Attach to an unknown ID is another error", func(b *bend) {
		b.attach = func(s execenv.Sandbox, err error) (execenv.Sandbox, error) {
			if err != nil {
				err = fault.New(fault.Internal, "no such container")
			}
			return s, err
		}
	}},
	{"P5_list_describes_every_sandbox", "List forgets labels", func(b *bend) {
		b.list = func(infos []execenv.Info) []execenv.Info {
			for i := range infos {
				infos[i].Labels = nil
			}
			return infos
		}
	}},
	{"P5_failed_destroy_stays_listed_and_is_retried", "Destroy reports success that it had not", func(b *bend) {
		b.destroy = func(e execenv.Environment, ctx context.Context, id string) error { _ = e.Destroy(ctx, id); return nil }
	}},
	{"P6_destroy_twice", "Destroy returns nil and leaves the sandbox", func(b *bend) {
		b.destroy = func(execenv.Environment, context.Context, string) error { return nil }
	}},
	{"P6_destroy_unknown_is_no_error", "Destroy of an unknown ID fails", func(b *bend) {
		b.destroy = func(e execenv.Environment, ctx context.Context, id string) error {
			if _, err := e.Attach(ctx, id); err != nil {
				return err
			}
			return e.Destroy(ctx, id)
		}
	}},
	{"P6_destroy_with_ended_context_still_frees", "Destroy stops with its context", func(b *bend) {
		b.destroy = func(e execenv.Environment, ctx context.Context, id string) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return e.Destroy(ctx, id)
		}
	}},
	{"P6_destroy_while_running_cancels", "commands of a destroyed sandbox look lost", becomes(run.Cancelled, run.Outcome{Kind: run.InfrastructureLost})},
	{"P7_nothing_survives_under_the_same_id", "the workspace is not empty", func(b *bend) {
		b.create = func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
			s, err := e.Create(ctx, spec)
			if err == nil {
				var buf bytes.Buffer
				w := tar.NewWriter(&buf)
				_ = w.WriteHeader(&tar.Header{Name: "secret", Mode: 0o644, Size: 3})
				_, _ = w.Write([]byte("old"))
				_ = w.Close()
				_ = s.PutArchive(ctx, "", &buf)
			}
			return s, err
		}
	}},
	{"P8_sandbox_that_was_lost_stays_listed", "List hides what ended", func(b *bend) {
		b.list = func(infos []execenv.Info) []execenv.Info {
			return slices.DeleteFunc(infos, func(i execenv.Info) bool { return i.State == execenv.StateEnded })
		}
	}},
	{"P9_extended_sandbox_lives_on", "an extension is promised and forgotten", func(b *bend) {
		b.extend = func(execenv.Sandbox, context.Context, time.Duration) error { return nil }
	}},
	{"P9_shortened_sandbox_ends", "a lifetime only ever grows", func(b *bend) {
		b.extend = func(s execenv.Sandbox, ctx context.Context, lifetime time.Duration) error {
			return s.Extend(ctx, max(lifetime, time.Hour))
		}
	}},
	{"P9_extension_that_is_none", "an extension by nothing is taken for one", func(b *bend) {
		b.extend = func(s execenv.Sandbox, ctx context.Context, lifetime time.Duration) error {
			return s.Extend(ctx, max(lifetime, time.Second))
		}
	}},
	{"G4_capabilities_are_constant", "capabilities change", func(b *bend) {
		var n atomic.Int32
		b.capabilities = func(caps execenv.Capabilities) execenv.Capabilities { caps.Version = fmt.Sprint(n.Add(1)); return caps }
	}},
}

var commandMutants = []mutant{
	{"X1_environment_is_exactly_environ", "a variable of ours leaks", execSpec(func(spec *execenv.ExecSpec) {
		spec.Env = map[string]string{"MINE": "=$HOME", "DATABASE_URL": "postgres://secret"}
	})},
	{"X2_unprivileged_user_without_capabilities", "programs are root", prints("id", "uid 0 0\ngid 0 0\nno_new_privs 0")},
	{"X2_starts_in_the_workspace_or_below", "the directory is ignored", execSpec(func(spec *execenv.ExecSpec) { spec.Dir = "" })},
	{"X3_what_cannot_start_is_not_started", "a missing program is an error", func(b *bend) {
		b.exec = func(s execenv.Sandbox, ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
			x, err := s.Exec(ctx, spec)
			if err == nil {
				short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
				defer cancel()
				if r, err := x.Wait(short); err == nil && r.Outcome.Kind == run.NotStarted {
					return nil, fault.New(fault.NotFound, "no such program")
				}
			}
			return x, err
		}
	}},
	{"X3_what_cannot_start_is_not_started", "a missing program exits with 127", becomes(run.NotStarted, run.ExitedWith(127, ""))},
	{"X3_exec_is_idempotent_by_id", "Exec ignores its ID", execSpec(func(spec *execenv.ExecSpec) { spec.ID = "" })},
	{"X4_wait_gives_everyone_the_same_result", "each Wait measures anew", func(b *bend) {
		var n atomic.Int64
		result(func(r *execenv.Result) { r.Duration += time.Duration(n.Add(1)) })(b)
	}},
	{"X4_wait_with_ended_context_says_nothing", "Wait that was cut off says exit 0", func(b *bend) {
		b.wait = func(x execenv.Exec, ctx context.Context) (execenv.Result, error) {
			r, err := x.Wait(ctx)
			if err != nil {
				return execenv.Result{Outcome: run.ExitedWith(0, "stream ended")}, nil
			}
			return r, nil
		}
	}},
	{"X5_exit_codes_are_the_programs_own", "every end of a stream is exit 0", becomes(run.Exited, run.ExitedWith(0, "stream ended"))},
	{"X5_exit_codes_are_the_programs_own", "exit 137 is taken for a kill", result(func(r *execenv.Result) {
		if r.Outcome.ExitCode != nil && *r.Outcome.ExitCode == 137 {
			r.Outcome = run.SignalledBy(syscall.SIGKILL, "137")
		}
	})},
	{"X5_signals_stay_apart_from_exit_codes", "a signal shows as 128+n", result(func(r *execenv.Result) {
		if n, ok := run.SignalNumber(r.Outcome.Signal); ok {
			r.Outcome = run.ExitedWith(128+int(n), "shell")
		}
	})},
	{"X6_timeout_wins_over_a_larger_limit", "the timeout is ignored", execSpec(func(spec *execenv.ExecSpec) { spec.Timeout = 0 })},
	{"X6_limit_wins_over_a_larger_timeout", "the time limit shows as a kill", becomes(run.WallClock, run.SignalledBy(syscall.SIGKILL, "killed"))},
	{"X7_daemon_with_stdout_delays_nothing_and_dies", "a daemon outlives its command", func(b *bend) {
		b.exec = func(s execenv.Sandbox, ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
			if len(spec.Argv) > 2 && spec.Argv[1] == "daemon" {
				_, _ = s.Exec(ctx, execenv.ExecSpec{Argv: []string{spec.Argv[0], "family", spec.Argv[2]}})
			}
			return s.Exec(ctx, spec)
		}
	}},
	{"X7_daemon_with_stdout_delays_nothing_and_dies", "Wait waits for the end of stdout", func(b *bend) {
		b.wait = func(x execenv.Exec, ctx context.Context) (execenv.Result, error) {
			<-ctx.Done()
			return x.Wait(ctx)
		}
	}},
	{"X8_kill_is_cancelled", "Kill only asks", func(b *bend) {
		b.kill = func(x execenv.Exec, ctx context.Context) error { return x.Signal(ctx, syscall.SIGTERM) }
	}},
	{"X8_signal_that_ends_it_is_signalled", "Signal kills", func(b *bend) {
		b.signal = func(x execenv.Exec, ctx context.Context, _ syscall.Signal) error { return x.Kill(ctx) }
	}},
	{"X9_memory_bomb_is_out_of_memory", "out of memory shows as exit 137", becomes(run.OutOfMemory, run.ExitedWith(137, "137"))},
	{"X9_fork_bomb_sees_EAGAIN", "limits hit are not named", result(func(r *execenv.Result) { r.Outcome.LimitsHit = nil })},
	{"X9_limits_that_a_command_coped_with_are_named", "a program that ended well is said to have met no limit", result(func(r *execenv.Result) {
		if r.Outcome.Success() {
			r.Outcome.LimitsHit = nil
		}
	})},
	{"X9_limits_that_another_touched_are_not_named", "limits are the sandbox's, not the command's", func(b *bend) {
		var mu sync.Mutex
		var hit []run.Limit
		result(func(r *execenv.Result) {
			mu.Lock()
			defer mu.Unlock()
			hit = append(hit, r.Outcome.LimitsHit...)
			r.Outcome.LimitsHit = slices.Clone(hit)
		})(b)
	}},
	{"X9_limits_that_were_not_touched_are_not_named", "a limit is always named", result(func(r *execenv.Result) {
		r.Outcome.LimitsHit = []run.Limit{run.LimitPIDs}
	})},
	{"X11_command_ends_at_the_limits_it_names", "a command goes on at every limit", execSpec(func(spec *execenv.ExecSpec) { spec.EndAtLimit = nil })},
	{"X11_command_goes_on_at_other_limits", "one limit to end at means all", execSpec(func(spec *execenv.ExecSpec) {
		if len(spec.EndAtLimit) > 0 {
			spec.EndAtLimit = run.AtLimits()
		}
	})},
	{"X11_own_end_does_not_hide_the_limit", "a program that ends before the kill has its own end", func(b *bend) {
		b.exec = func(s execenv.Sandbox, ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
			if len(spec.Argv) > 3 && spec.Argv[3] == "cope" {
				spec.EndAtLimit = nil
			}
			return s.Exec(ctx, spec)
		}
	}},
	{"X11_limits_that_always_end_are_invalid", "limits that mean nothing there are passed over", execSpec(func(spec *execenv.ExecSpec) {
		spec.EndAtLimit = slices.DeleteFunc(spec.EndAtLimit, func(l run.Limit) bool { return !slices.Contains(run.AtLimits(), l) })
	})},
	{"X12_execs_names_running_and_ended", "commands that ended are not in the list", func(b *bend) {
		b.execs = func(all []execenv.ExecInfo) []execenv.ExecInfo {
			return slices.DeleteFunc(all, func(i execenv.ExecInfo) bool { return i.Result != nil })
		}
	}},
	{"X10_lost_sandbox_ends_its_commands", "a lost sandbox shows as cancelled", becomes(run.InfrastructureLost, run.Outcome{Kind: run.Cancelled})},
	{"G1_no_interface_but_loopback_and_no_way_out", "there is a network", prints("net", "interface lo\ninterface eth0\ntry tcp:8.8.8.8:53 fast ok")},
	{"G2_only_three_places_are_writable", "/etc is writable", prints("writable", "dir /workspace\ndir /tmp\ndir /dev/shm\ndir /etc")},
	{"G5_disk_beyond_memory_can_be_filled_and_read", "the memory limit bounds the disk too", creating(func(ctx context.Context, spec *execenv.Spec) context.Context {
		spec.Limits.DiskBytes = min(spec.Limits.DiskBytes, spec.Limits.MemoryBytes)
		return ctx
	})},
	{"G5_disk_beyond_memory_can_be_filled_and_read", "what is read is not what was written", prints("intact", "changed after 16384")},
	{"G5_disk_beyond_memory_leaves_the_other_limits", "a large disk has no inode limit", creating(func(ctx context.Context, spec *execenv.Spec) context.Context {
		if spec.Limits.DiskBytes > spec.Limits.MemoryBytes {
			spec.Limits.Inodes = 1 << 20
		}
		return ctx
	})},
	{"G5_disk_beyond_memory_leaves_the_other_limits", "a large disk raises the memory limit", creating(func(ctx context.Context, spec *execenv.Spec) context.Context {
		if spec.Limits.DiskBytes > spec.Limits.MemoryBytes {
			spec.Limits.MemoryBytes = 4 * run.GiB
		}
		return ctx
	})},
}

var streamMutants = []mutant{
	{"O1_both_streams_complete_and_in_order", "offsets are wrong", chunks(func(ch *execenv.Chunk) { ch.Offset++ })},
	{"O1_both_streams_complete_and_in_order", "stderr goes to stdout", chunks(func(ch *execenv.Chunk) { ch.Stream = execenv.Stdout })},
	{"O1_readable_from_every_offset", "reading starts at 0", func(b *bend) {
		b.output = func(x execenv.Exec, ctx context.Context, _ int64, yield func(execenv.Chunk) error) error {
			return x.Output(ctx, 0, yield)
		}
	}},
	{"O1_output_ends_with_its_context", "Output that was cut off says the command ended", func(b *bend) {
		b.output = func(x execenv.Exec, ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
			_ = x.Output(ctx, from, yield)
			return nil
		}
	}},
	{"O2_output_is_cut_at_the_limit_and_counted", "truncation is not told", result(func(r *execenv.Result) { r.Truncated = false })},
	{"O2_output_is_cut_at_the_limit_and_counted", "only what is kept is counted", result(func(r *execenv.Result) {
		r.StdoutBytes = min(r.StdoutBytes, 100_000)
	})},
	{"O2_command_can_lower_the_limit_not_raise_it", "a command's output limit is ignored", execSpec(func(spec *execenv.ExecSpec) { spec.OutputBytes = 0 })},
	{"O3_stuck_reader_holds_up_nothing", "the end waits for readers", func(b *bend) {
		var reading sync.Mutex
		b.output = func(x execenv.Exec, ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
			reading.Lock()
			defer reading.Unlock()
			return x.Output(ctx, from, yield)
		}
	}},
	{"O4_bytes_are_kept_as_they_are", "output is made UTF-8", chunks(func(ch *execenv.Chunk) { ch.Data = bytes.ToValidUTF8(ch.Data, []byte("?")) })},
	{"O5_write_blocks_while_the_program_does_not_read", "stdin is dropped when full", func(b *bend) {
		b.write = func(x execenv.Exec, ctx context.Context, p []byte) (int, error) {
			go func() { _, _ = x.WriteStdin(ctx, p) }()
			return len(p), nil
		}
	}},
	{"O5_without_stdin_the_program_reads_end_of_file", "stdin is left open", execSpec(func(spec *execenv.ExecSpec) { spec.Stdin = true })},
	{"O6_resize_raises_SIGWINCH", "Resize does nothing", func(b *bend) {
		b.resize = func(execenv.Exec, context.Context, execenv.WindowSize) error { return nil }
	}},
	{"A1_hostile_entries_are_invalid", "bad entries are passed over in silence", func(b *bend) {
		b.put = func(s execenv.Sandbox, ctx context.Context, dir string, r io.Reader) error {
			_ = s.PutArchive(ctx, dir, r)
			return nil
		}
	}},
	{"A2_archive_larger_than_the_disk_is_exhausted", "a full disk is an internal error", func(b *bend) {
		b.put = func(s execenv.Sandbox, ctx context.Context, dir string, r io.Reader) error {
			if err := s.PutArchive(ctx, dir, r); err != nil {
				return fault.Wrap(fault.Internal, err, "cannot unpack")
			}
			return nil
		}
	}},
	{"A3_patterns_choose_files", "patterns are ignored", func(b *bend) {
		b.get = func(s execenv.Sandbox, ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
			req.Patterns = nil
			return s.GetArchive(ctx, req, w)
		}
	}},
	{"A3_more_than_max_bytes_is_exhausted", "the bound is ignored", func(b *bend) {
		b.get = func(s execenv.Sandbox, ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
			req.MaxBytes = 0
			return s.GetArchive(ctx, req, w)
		}
	}},
	{"A3_incomplete_stream_is_an_error", "an archive that was cut off is a success", func(b *bend) {
		b.get = func(s execenv.Sandbox, ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
			_ = s.GetArchive(ctx, req, w)
			return nil
		}
	}},
	{"G3_stuck_archives_return_soon_after_their_context_ends", "PutArchive ignores its context", func(b *bend) {
		b.put = func(s execenv.Sandbox, ctx context.Context, dir string, r io.Reader) error {
			return s.PutArchive(context.WithoutCancel(ctx), dir, r)
		}
	}},
}
