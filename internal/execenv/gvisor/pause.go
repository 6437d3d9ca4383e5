package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// checkpointTimeout bounds one checkpoint or restore. Both take as long as
	// reading or writing the sandbox's memory does.
	checkpointTimeout = 3 * time.Minute
	// busyTimeout is how long a Pause waits for transfers to end.
	busyTimeout = time.Second
	// mostNamed bounds the files that are handed over at a Resume. Each command
	// that lives over a Pause adds up to three for good.
	mostNamed = 600
)

// Pause implements execenv.Sandbox. The sandbox's kernel stops all programs, writes
// its state, and is killed before any of them has run again: so what is resumed is
// what was stopped, and nothing is done twice.
func (b *box) Pause(ctx context.Context, keep time.Duration) error {
	if err := execenv.ValidateLifetime(keep); err != nil {
		return err
	}
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.Awake() != nil {
		b.SetLifetime(keep)
		return nil
	}
	if err := b.Alive(); err != nil {
		return err
	}
	if b.Spec.Network.Open() {
		return fault.New(fault.Unsupported, "cannot pause sandbox %s: it has a network, whose connections would not be there again", b.Spec.ID)
	}
	if b.env.disk == nil {
		return fault.Wrap(fault.Unsupported, b.env.noDisk, "cannot pause sandbox %s: states cannot be kept on disk here", b.Spec.ID)
	}
	if b.onDisk {
		return fault.New(fault.Unsupported, "cannot pause sandbox %s: its workspace is on disk, because its disk limit is above half of its memory limit", b.Spec.ID)
	}
	if len(b.named) > mostNamed {
		return fault.New(fault.Exhausted, "cannot pause sandbox %s any more: too many commands have lived over a pause in it", b.Spec.ID)
	}
	// Before the wait for transfers: what begins may have to wait for that too.
	defer b.NoStarts()()
	if !b.quiet(ctx) {
		return fault.New(fault.Conflict, "cannot pause sandbox %s while files are transferred; try again", b.Spec.ID)
	}
	defer b.gate.busy.Unlock()
	b.startMu.Lock() // init is not in the group of a command
	defer b.startMu.Unlock()
	if err := b.hold(); err != nil {
		return b.lost(err)
	}
	ctx, cancel := b.whileWanted(ctx)
	defer cancel()
	b.gate.close()
	b.StopClocks()
	if err := b.putAway(ctx); err != nil {
		b.goOn()
		if gone := b.Alive(); gone != nil {
			return gone
		}
		var known *fault.Error
		if errors.As(err, &known) {
			return fault.Wrap(known.Code, err, "cannot pause sandbox %s: %s", b.Spec.ID, fault.Public(err))
		}
		return fault.Wrap(fault.Internal, err, "cannot pause sandbox %s", b.Spec.ID)
	}
	if !b.Paused(keep) { // it was destroyed, or its lifetime passed meanwhile
		b.endPaused()
		b.forgetState()
		return b.Alive()
	}
	return nil
}

// whileWanted is for as long as a checkpoint or restore may take, and not longer
// than anybody wants the sandbox.
func (b *box) whileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, checkpointTimeout)
	select {
	case <-b.GivenUp():
		cancel()
	default:
		go func() {
			select {
			case <-b.GivenUp():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// quiet waits a little until no transfer runs, and keeps new ones out.
func (b *box) quiet(ctx context.Context) bool {
	for deadline := time.Now().Add(busyTimeout); ; time.Sleep(5 * time.Millisecond) {
		if b.gate.busy.TryLock() {
			return true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
}

// hold tells the sandbox's kernel which files of commands will be there again.
func (b *box) hold() error {
	line := []string{"hold"}
	for _, p := range b.Running() {
		for _, key := range p.(*program).keys {
			line = append(line, fmt.Sprint(key))
			b.named[int(key)] = true
		}
	}
	_, err := b.request(strings.Join(line, " "))
	return err
}

// putAway writes the state and ends the kernel. When it fails, the kernel goes on if
// it is there. The gate is closed.
func (b *box) putAway(ctx context.Context) error {
	// Held open, so that nothing that a command writes to or reads from ends.
	peers := b.peers()
	file, err := b.env.disk.TakeGrowing()
	if err != nil {
		closeFiles(peers)
		return err
	}
	image := &stateImage{file: file}
	err = b.checkpoint(ctx, image)
	if err == nil {
		b.mu.Lock()
		select {
		case <-b.gone: // by itself, just now
			err = errEnded
		default:
			b.away = true
		}
		gone := b.gone
		b.mu.Unlock()
		if err == nil {
			b.kill()
			<-gone
			b.saved, b.held = image, peers
			if err := b.container.Destroy(); err != nil {
				b.env.log.Error("cannot remove what is left of a sandbox's kernel", "sandbox", b.Spec.ID, "error", err)
			}
			b.container = nil
			b.control.Close()
			return nil
		}
	}
	closeFiles(peers)
	return errors.Join(err, file.Close())
}

// checkpoint stops all programs and has the state written. They stay stopped if that
// worked.
func (b *box) checkpoint(ctx context.Context, image *stateImage) error {
	if err := b.ask(boot.ContMgrPause, checkpointTimeout, nil, nil, nil); err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	_, _ = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	saved := make(chan error, 1)
	go func() {
		defer write.Close()
		saved <- b.ask(boot.ContMgrCheckpoint, checkpointTimeout, &control.SaveOpts{
			Metadata:                       map[string]string{"compression": "none"},
			AppMFExcludeCommittedZeroPages: true,
			FilePayload:                    urpc.FilePayload{Files: []*os.File{write}},
			Resume:                         true, // it is stopped, and stays so
		}, []*os.File{write}, nil)
	}()
	stop := context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })
	err = image.receive(read, mostState(b.Spec.Limits))
	stop()
	read.Close()
	if saveErr := <-saved; err == nil {
		err = saveErr
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fault.Wrap(fault.Unavailable, err, "it was given up or took too long")
	}
	if goErr := b.ask(boot.ContMgrResume, checkpointTimeout, nil, nil, nil); goErr != nil {
		b.abandon(fmt.Sprintf("it could not be paused, and does not go on: %v", goErr))
	}
	return err
}

// goOn opens the gate.
func (b *box) goOn() {
	b.StartClocks()
	b.gate.open()
}

// endPaused ends a sandbox that has no kernel.
func (b *box) endPaused() {
	b.endOnce.Do(b.end)
}

// dropState removes what is kept of a paused sandbox, and ends it if it was one.
func (b *box) dropState() error {
	if b.saved == nil {
		return nil
	}
	b.endPaused()
	closeFiles(b.held)
	b.held = nil
	image := b.saved
	b.saved = nil
	return image.file.Close()
}

// Resume implements execenv.Sandbox.
func (b *box) Resume(ctx context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.Awake() == nil {
		if err := b.Alive(); err != nil {
			return err
		}
		b.SetLifetime(lifetime)
		return nil
	}
	// Not with its caller: what is put away is used once.
	if err := b.bringBack(context.WithoutCancel(ctx)); err != nil {
		b.env.log.Error("cannot resume a sandbox", "sandbox", b.Spec.ID, "error", err)
		b.unusable(err)
		return errors.Join(b.Alive())
	}
	if !b.Resumed(lifetime) { // it was destroyed, or its time passed meanwhile
		b.kill()
	}
	b.goOn()
	return b.Alive()
}

// unusable ends a sandbox whose state cannot be used.
func (b *box) unusable(cause error) {
	b.mu.Lock()
	if b.abandoned == "" {
		b.abandoned = fmt.Sprintf("its state could not be resumed: %v", cause)
	}
	away := b.away
	b.mu.Unlock()
	if away {
		b.endPaused()
	} else {
		b.kill()
		<-b.Ended()
	}
	b.forgetState()
}

// forgetState removes what is kept of a sandbox that has ended, without waiting for
// its destruction, for which its owner may take his time.
func (b *box) forgetState() {
	if err := b.dropState(); err != nil {
		b.env.log.Error("cannot remove the state of a sandbox", "sandbox", b.Spec.ID, "error", err)
	}
}

func (b *box) bringBack(ctx context.Context) error {
	ctx, cancel := b.whileWanted(ctx)
	defer cancel()
	if err := b.saved.check(ctx); err != nil {
		return err
	}
	ours, theirs, err := newInitPipes()
	if err != nil {
		return err
	}
	for key, f := range b.held {
		theirs[key] = f
	}
	b.held = nil
	b.control = answer.NewInit(ours)
	if err := b.startSentry(theirs); err != nil {
		return err
	}
	if err := b.watch(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { b.abandon("its state is not read in time, or not wanted any more") })
	defer stop()
	dir := filepath.Join(b.dir(), "paused")
	if err := b.saved.name(dir); err != nil {
		return err
	}
	if err := b.container.Restore(b.env.conf, dir, false, false, nil); err != nil {
		return err
	}
	if _, err := b.control.Request("held"); err != nil {
		return err
	}
	image := b.saved
	b.saved = nil
	return errors.Join(os.RemoveAll(dir), image.file.Close())
}
