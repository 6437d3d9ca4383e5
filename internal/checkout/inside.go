package checkout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Into puts the repository into the workspace of a sandbox, which must be
// untouched, and checks it out there.
func (f *Fetched) Into(ctx context.Context, sb execenv.Sandbox) error {
	return reason.Line(f.into(ctx, sb))
}

func (f *Fetched) into(ctx context.Context, sb execenv.Sandbox) error {
	limited, cancel := context.WithDeadline(ctx, f.deadline)
	defer cancel()
	name, err := f.packName()
	if err != nil {
		return err
	}
	if err := f.send(limited, sb, name); err != nil {
		return timedOut(ctx, err, f.timeout)
	}
	return timedOut(ctx, f.checkOut(limited, sb, name), f.timeout)
}

// errNotTaken ends the writer of an archive whose reader has ended.
var errNotTaken = errors.New("the sandbox takes no more")

func (f *Fetched) send(ctx context.Context, sb execenv.Sandbox, packName string) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := f.write(ctx, packName, w)
		written <- err
		w.CloseWithError(err)
	}()
	putErr := sb.PutArchive(ctx, "", r)
	r.CloseWithError(errNotTaken)
	writeErr := <-written
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(putErr, fault.Exhausted):
		return doesNotFit(putErr)
	case putErr != nil:
		return fmt.Errorf("cannot send the repository into the sandbox: %w", putErr)
	}
	return writeErr
}

func doesNotFit(cause error) error {
	return reason.Wrap(reason.TooLarge, cause, "the repository does not fit into the workspace; raise the limit of disk, and of memory, which has to hold it")
}

// step is a run of git in the sandbox.
type step struct {
	args []string
	// says is what it must print; empty is anything.
	says string
	// otherwise is the reason if it fails or prints something else.
	otherwise string
}

func (f *Fetched) checkOut(ctx context.Context, sb execenv.Sandbox, packName string) error {
	for _, s := range []step{
		// Everything the server sent is looked at before anything is made of it.
		{args: []string{"index-pack", "--strict", ".git/objects/pack/" + packName + ".pack"},
			otherwise: "git refuses what the server sent"},
		{args: []string{"cat-file", "-t", f.target.Commit}, says: "commit",
			otherwise: "what was asked for is no commit"},
		// Files and index in one step that knows no branches, hooks or reflogs.
		{args: []string{"read-tree", "--reset", "-u", f.target.Commit},
			otherwise: "git cannot make the files"},
	} {
		if err := s.run(ctx, sb, f.deadline); err != nil {
			return err
		}
	}
	return nil
}

// gitConfig is what a repository and an image have no say in.
var gitConfig = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.logAllRefUpdates=false",
	"protocol.allow=never",
	"submodule.recurse=false",
	// Blobs above it are streamed to disk instead of being held in memory, of
	// which there is little.
	"core.bigFileThreshold=8m",
	"advice.detachedHead=false",
}

// gitEnv is the same for the environment. Filters such as Git LFS run only if
// some configuration defines them, and there is none.
var gitEnv = map[string]string{
	"GIT_DIR":               "/workspace/.git",
	"GIT_WORK_TREE":         "/workspace",
	"GIT_CONFIG_NOSYSTEM":   "1",
	"GIT_CONFIG_GLOBAL":     "/dev/null",
	"GIT_CONFIG_COUNT":      "0",
	"GIT_CONFIG_PARAMETERS": "",
	"GIT_ATTR_NOSYSTEM":     "1",
	"GIT_LFS_SKIP_SMUDGE":   "1",
	"GIT_TERMINAL_PROMPT":   "0",
	"HOME":                  "/nonexistent",
	"LC_ALL":                "C",
}

const maxSaid = 64 << 10

func (s step) run(ctx context.Context, sb execenv.Sandbox, deadline time.Time) error {
	argv := []string{"git"}
	for _, c := range gitConfig {
		argv = append(argv, "-c", c)
	}
	x, err := sb.Exec(ctx, execenv.ExecSpec{
		Argv: append(argv, s.args...), Env: gitEnv, OutputBytes: maxSaid, Timeout: max(time.Until(deadline), time.Millisecond),
	})
	if err != nil {
		return endedBy(ctx, fmt.Errorf("cannot run git in the sandbox: %w", err))
	}
	// Whatever becomes of the caller, nothing may go on in the workspace.
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
		defer cancel()
		_ = x.Kill(last) // if that fails, destroying the sandbox does it
	})()
	var stdout, stderr bytes.Buffer
	if err := x.Output(ctx, 0, func(c execenv.Chunk) error {
		if c.Stream == execenv.Stdout {
			stdout.Write(c.Data)
		} else {
			stderr.Write(c.Data)
		}
		return nil
	}); err != nil {
		return endedBy(ctx, fmt.Errorf("cannot follow git in the sandbox: %w", err))
	}
	res, err := x.Wait(ctx)
	if err != nil {
		return endedBy(ctx, fmt.Errorf("cannot learn how git ended in the sandbox: %w", err))
	}
	return s.judge(res.Outcome, strings.TrimSpace(stdout.String()), stderr.String())
}

func endedBy(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// judge turns the end of git into an end of the checkout.
func (s step) judge(o run.Outcome, stdout, stderr string) error {
	switch o.Kind {
	case run.Exited:
		switch {
		case o.Success() && (s.says == "" || stdout == s.says):
			return nil
		case o.Touched(run.LimitDisk):
			return doesNotFit(nil)
		case o.Touched(run.LimitInodes):
			return reason.New(reason.TooLarge, "the repository has more files than the workspace may hold; raise the limit of inodes")
		case o.Touched(run.LimitPIDs):
			return reason.New(reason.TooLarge, "git needs more processes than the sandbox may have; raise their limit")
		case strings.Contains(stderr, "out of memory"), strings.Contains(stderr, "malloc failed"), strings.Contains(stderr, "Cannot allocate memory"):
			return outOfMemory()
		}
		if said := why(stderr); said != "" {
			return reason.New(reason.Malformed, "%s: %s", s.otherwise, said)
		}
		return reason.New(reason.Malformed, "%s", s.otherwise)
	case run.NotStarted:
		return reason.Wrap(reason.NoGit, errors.New(o.Evidence), "the image has no git, which checks the files out; use one that has it")
	case run.OutOfMemory:
		return outOfMemory()
	case run.WallClock:
		return reason.New(reason.TimedOut, "git ran into a time limit (%s)", o.Evidence)
	case run.Signalled:
		return reason.New(reason.Malformed, "%s: it ended by %s", s.otherwise, o.Signal)
	}
	return fault.New(fault.Unavailable, "the sandbox ended during the checkout: %s", o.String())
}

func outOfMemory() error {
	return reason.New(reason.TooLarge, "unpacking the repository takes more memory than the sandbox has; raise its limit of memory")
}

// why is the line in which git says what is wrong, which is its first error and
// else its last line. It may quote the repository.
func why(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for _, l := range lines {
		if text, ok := strings.CutPrefix(l, "error: "); ok {
			return reason.Clean(text)
		}
	}
	return reason.Clean(lines[len(lines)-1])
}
