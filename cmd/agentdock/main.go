// Command agentdock is the command line of AgentDock: it runs what a coding
// agent wants to run in a kernel-isolated sandbox.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// exitOurs is the exit status for every failure that is not the user's
// program's own.
const exitOurs = 125

// exitStatus carries a program's exit status through cobra. It prints
// nothing: the outcome line has said it already.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := execute(ctx, newRoot(), os.Stderr)
	stop() // not deferred: os.Exit does not wait for that
	os.Exit(status)
}

func execute(ctx context.Context, root *cobra.Command, stderr *os.File) int {
	err := root.ExecuteContext(ctx)
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	default:
		fmt.Fprintf(stderr, "agentdock: %v\n", err)
		return exitOurs
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "agentdock",
		Short:         "Run what a coding agent wants to run, in a kernel-isolated sandbox",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newUp(), newRun(), newJobs(), newSandbox(), newMCP(), newReceipt(), newAdmin(), newImage(), newDoctor(), newVersion())
	return root
}
