package gvisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
)

// call asks the sentry one thing: see answer.Call. gVisor's own client is used to
// start a sandbox and to resume it, and for nothing else: it reads an answer
// without a bound on its size (SECURITY.md).
//
// A call waits while the sandbox is paused.
func (b *box) call(method string, patience time.Duration, arg any, files []*os.File, result any) error {
	leave, err := b.gate.pass(b.Ended())
	if err != nil {
		return err
	}
	defer leave()
	return b.ask(method, patience, arg, files, result)
}

// request asks init one thing, and waits while the sandbox is paused.
func (b *box) request(line string) ([]string, error) {
	leave, err := b.gate.pass(b.Ended())
	if err != nil {
		return nil, err
	}
	defer leave()
	return b.control.Request(line)
}

// ask is call for whoever has the gate.
func (b *box) ask(method string, patience time.Duration, arg any, files []*os.File, result any) error {
	path := b.sentry.GetControlSocketPath()
	if path == "" {
		return errNoSocket
	}
	err := answer.Call(path, method, patience, arg, files, result)
	var refused *answer.Refused
	if err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("asking the sandbox's kernel for %s: %w", method, err)
	}
	return err
}

// execute starts a process, whose standard files become the sentry's user's, as
// it opens them again by name.
func (b *box) execute(args *control.ExecArgs) (pid int32, err error) {
	for _, f := range args.Files[:min(3, len(args.Files))] {
		err := f.Chown(b.sentry.UID, b.sentry.GID)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EROFS) {
			return 0, err
		}
	}
	err = b.call(boot.ContMgrExecuteAsync, answer.Timeout, args, args.Files, &pid)
	return pid, err
}

var errNoSocket = errors.New("the sandbox's kernel has no control socket any more")

// readGroupFile and writeGroupFile work on the cgroups inside the sandbox.
func (b *box) readGroupFile(file control.CgroupControlFile) (string, error) {
	args := control.CgroupsReadArgs{Args: []control.CgroupsReadArg{{File: file}}}
	var out control.CgroupsResults
	if err := b.call(boot.CgroupsReadControlFiles, killTimeout, &args, nil, &out); err != nil {
		return "", err
	}
	if len(out.Results) != 1 {
		return "", fmt.Errorf("the sandbox's kernel gave %d answers for one", len(out.Results))
	}
	return out.Results[0].Unpack()
}

func (b *box) writeGroupFile(file control.CgroupControlFile, value string) error {
	args := control.CgroupsWriteArgs{Args: []control.CgroupsWriteArg{{File: file, Value: value}}}
	var out control.CgroupsResults
	if err := b.call(boot.CgroupsWriteControlFiles, killTimeout, &args, nil, &out); err != nil {
		return err
	}
	if len(out.Results) != 1 {
		return fmt.Errorf("the sandbox's kernel gave %d answers for one", len(out.Results))
	}
	return out.Results[0].AsError()
}
