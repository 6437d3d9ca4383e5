package main

import (
	"context"
	"os"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/oneshot"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/version"
)

// oneSource refuses two sources of files, and flags without theirs.
func (f *runFlags) oneSource() error {
	sources := 0
	for _, given := range []bool{f.fixture, f.given("dir"), f.given("repo")} {
		if given {
			sources++
		}
	}
	switch {
	case sources > 1:
		return fault.New(fault.Invalid, "--fixture, --dir and --repo exclude each other; give one")
	case !f.given("repo") && (f.given("ref") || f.given("depth")):
		return fault.New(fault.Invalid, "--ref and --depth are of a repository; name it with --repo")
	case f.depth < 0:
		return fault.New(fault.Invalid, "cannot use --depth %d: it is a number of commits, or 0 for all", f.depth)
	}
	return nil
}

// checkOut has the repository checked out in the sandbox, from this process:
// the execution service never sees where it comes from. The user is the
// operator here, so the GitHub App reads all that it can.
func (f *runFlags) checkOut(req *oneshot.Request) error {
	if f.remote {
		return nil
	}
	s, err := settings.LoadCheckout(os.Environ())
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	what := checkout.Request{
		Repository: f.repo, Ref: f.ref, Depth: f.depth, MaxBytes: req.Limits.DiskBytes,
		AppReads: func(string, string) bool { return true },
	}
	if f.depth == 0 {
		what.Depth = -1 // the whole history
	}
	if err := what.Validate(); err != nil {
		return err
	}
	repositories, err := checkout.Open(s, "agentdock/"+version.Get().Commit)
	if err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	req.FilesNote = "checking out " + f.repo
	req.Checkout = func(ctx context.Context, sb execenv.Sandbox) (string, error) {
		result, err := repositories.Into(ctx, sb, what)
		return result.Commit, err
	}
	return nil
}
