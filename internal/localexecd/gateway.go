package localexecd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

const (
	gatewayProgram = "agentdock-egress"
	gatewaySocket  = "egress.sock"
)

// gateway is the way out of the service's sandboxes: a process beside it, which
// becomes a user of its own and ends when exitWith is closed.
type gateway struct {
	cmd      *exec.Cmd
	exitWith *os.File
	done     chan struct{}
}

// gatewayEnv are the settings of ours that it is told.
var gatewayEnv = []string{"AGENTDOCK_NETWORK_FILE", "AGENTDOCK_EGRESS_DNS"}

// startGateway starts it and waits until it takes calls.
func (c Config) startGateway(ctx context.Context, i *instance) (*gateway, error) {
	failed := func(err error) (*gateway, error) {
		return nil, fault.Wrap(fault.Unsupported, err, "cannot start the network gateway %s", c.gatewayBinary())
	}
	ready, theirReady, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	defer ready.Close()
	defer theirReady.Close()
	theirExit, exitWith, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	defer theirExit.Close()
	said := &tail{}
	g := &gateway{exitWith: exitWith, done: make(chan struct{})}
	g.cmd = exec.Command(c.gatewayBinary(), "--ready-fd", "3", "--exit-with-fd", "4")
	g.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "AGENTDOCK_EGRESS_SOCKET=" + i.gateway()}
	for _, name := range gatewayEnv {
		if value := os.Getenv(name); value != "" {
			g.cmd.Env = append(g.cmd.Env, name+"="+value)
		}
	}
	g.cmd.Dir, g.cmd.Stderr, g.cmd.WaitDelay = "/", said, time.Second
	g.cmd.ExtraFiles = []*os.File{theirReady, theirExit}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := g.cmd.Start(); err != nil {
		exitWith.Close()
		return failed(err)
	}
	theirReady.Close()
	go func() {
		_ = g.cmd.Wait()
		close(g.done)
	}()
	stop := context.AfterFunc(ctx, func() { _ = g.cmd.Process.Kill() })
	defer stop()
	_ = ready.SetReadDeadline(time.Now().Add(c.StartTimeout))
	line, err := io.ReadAll(io.LimitReader(ready, 6))
	if string(line) != "ready\n" {
		g.stop()
		return failed(errors.Join(fmt.Errorf("it did not start: %s", strings.TrimPrefix(said.last(), gatewayProgram+": ")), err))
	}
	return g, nil
}

// gatewayBinary is beside the service's program.
func (c Config) gatewayBinary() string { return filepath.Join(filepath.Dir(c.Binary), gatewayProgram) }

// stop ends it.
func (g *gateway) stop() {
	if g == nil {
		return
	}
	_ = g.exitWith.Close()
	select {
	case <-g.done:
	case <-time.After(5 * time.Second):
		_ = g.cmd.Process.Kill()
		<-g.done
	}
}
