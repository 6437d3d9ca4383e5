package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/fixtures"
	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/dirpack"
	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/oneshot"
	"github.com/agentdock/agentdock/internal/quantity"
	"github.com/agentdock/agentdock/internal/run"
)

// runFlags are the flags as they were written. They are read in request, so
// that a malformed one is reported like any other error.
type runFlags struct {
	fixture                          bool
	dir                              string
	repo, ref                        string
	depth                            int
	image, imageDir                  string
	cpus, memory, pids, disk, inodes string
	timeout, maxOutput               string
	endAtLimit                       []string
	env                              []string
	allow, preset                    []string
	cwd                              string
	stdin                            string
	artifacts                        []string
	out, artifactBytes               string
	json, local                      bool
	// remote says that a server will run it, and fetch a repository.
	remote         bool
	idempotencyKey string
	// asked are the limits that were given, before defaults filled in the rest.
	asked run.Limits
	given func(flag string) bool
}

const defaultOut = "agentdock-artifacts"

func (f *runFlags) define(cmd *cobra.Command) {
	f.defineJob(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.imageDir, "image-dir", "", "`directory` of the image store; "+image.DirEnv+" sets the default")
	fl.StringVar(&f.out, "out", defaultOut, "`directory` to keep artifacts in")
	fl.StringVar(&f.artifactBytes, "artifact-bytes", "", "`size` of all artifacts together (default "+quantity.Size(artifact.DefaultLimits().TotalBytes)+")")
	fl.StringArrayVar(&f.allow, "allow", nil, "let the program reach this server, as `NAME[:PORT]` or *.NAME[:PORT]; repeatable")
	fl.StringArrayVar(&f.preset, "preset", nil, "let it reach what this `word` stands for: python, node, go, rust, debian, git, or what the operator's file has; repeatable")
	fl.BoolVar(&f.local, "local", false, "run on this machine although a server is configured")
	fl.BoolVar(&f.json, "json", false, "print one JSON object at the end instead of the program's output")
	completeImages(cmd, &f.imageDir)
}

// defineJob defines what a run here and a job on a server have in common.
func (f *runFlags) defineJob(cmd *cobra.Command) {
	d := run.DefaultLimits()
	fl := cmd.Flags()
	fl.SetInterspersed(false) // what follows the program's name is the program's
	fl.SortFlags = false
	fl.BoolVar(&f.fixture, "fixture", false, "start with a copy of the sample repository")
	fl.StringVar(&f.dir, "dir", "", "start with a copy of this `directory`; symlinks stay symlinks")
	fl.StringVar(&f.repo, "repo", "", "start with a checkout of the git repository at this HTTPS `URL`")
	fl.StringVar(&f.ref, "ref", "", "its branch, tag, pull/N, full ref or commit (default: its default branch)")
	fl.IntVar(&f.depth, "depth", 1, "`number` of commits of its history; 0 is all")
	fl.StringVar(&f.image, "image", image.Default, "root image, by `name` or digest")
	fl.StringVar(&f.cpus, "cpus", "", "processors, a `number` from 0.01 to 64 (default 1)")
	fl.StringVar(&f.memory, "memory", "", "`size` of memory, with the files in the workspace (default "+quantity.Size(d.MemoryBytes)+")")
	fl.StringVar(&f.pids, "pids", "", fmt.Sprintf("`number` of processes and threads at once (default %d)", d.PIDs))
	fl.StringVar(&f.disk, "disk", "", "`size` of what the workspace holds (default "+quantity.Size(d.DiskBytes)+" or half the memory)")
	fl.StringVar(&f.inodes, "inodes", "", fmt.Sprintf("`number` of files in the workspace (default %d)", d.Inodes))
	fl.StringVar(&f.timeout, "timeout", "", "`duration` the command may take (default "+d.WallClock.String()+")")
	fl.StringVar(&f.maxOutput, "max-output", "", fmt.Sprintf("`size` of what is kept of each of stdout and stderr (default %d)", d.OutputBytes))
	fl.StringSliceVar(&f.endAtLimit, "end-at-limit", nil, "end the command when it reaches one of these `limits`: pids, disk, inodes, output")
	fl.StringArrayVar(&f.env, "env", nil, "add `NAME=VALUE` to the program's environment; repeatable")
	fl.StringVar(&f.stdin, "stdin", "", "`file` the program reads as standard input; - is ours (default: empty)")
	fl.StringVar(&f.cwd, "cwd", "", "`directory` to run in, relative to the workspace")
	fl.StringArrayVar(&f.artifacts, "artifact", nil, "keep files that match this `pattern` (*, ?, […], **); repeatable")
	// An empty value was given too: --memory "$UNSET" must not mean the default.
	f.given = fl.Changed
}

// request turns the flags into what is to be run, and refuses what cannot be
// before anything is started. cleanup is never nil.
func (f *runFlags) request(ctx context.Context, argv []string, stdin io.Reader, console *console) (req oneshot.Request, cleanup func(), err error) {
	var undo []func()
	cleanup = func() {
		for _, u := range undo {
			u()
		}
	}
	if len(argv) == 0 {
		return req, cleanup, fault.New(fault.Invalid, "there is no program to run; name it after --, for example: agentdock run -- python3 -V")
	}
	req = oneshot.Request{
		ID: oneshot.NewID(), Image: f.image, Argv: argv, Dir: f.cwd, EndAtLimit: limitNames(f.endAtLimit),
		Artifacts: f.artifacts, Out: f.out, ArtifactLimits: artifact.DefaultLimits(),
	}
	if req.Limits, err = f.limits(); err != nil {
		return req, cleanup, err
	}
	if req.Env, err = parseEnv(f.env); err != nil {
		return req, cleanup, err
	}
	if req.Network, err = f.network(); err != nil {
		return req, cleanup, err
	}
	if err := f.checkArtifacts(&req); err != nil {
		return req, cleanup, err
	}
	if f.given("end-at-limit") && len(f.endAtLimit) == 0 {
		return req, cleanup, fault.New(fault.Invalid, "cannot use --end-at-limit: it is empty; name some of %v, with commas between them, or leave it out", run.AtLimits())
	}
	// The port's own rules, now instead of after the start.
	spec := execenv.Spec{ID: req.ID, Image: req.Image, Env: req.Env, Limits: req.Limits, Network: req.Network}
	if err := spec.Validate(); err != nil {
		return req, cleanup, err
	}
	if err := (execenv.ExecSpec{Argv: argv, Dir: f.cwd, EndAtLimit: req.EndAtLimit}).Validate(); err != nil {
		return req, cleanup, err
	}
	if err := f.oneSource(); err != nil {
		return req, cleanup, err
	}
	switch {
	case f.fixture:
		req.FilesNote = "copying the sample repository"
		req.Files = func(ctx context.Context, w io.Writer) error {
			return dirpack.PackFS(ctx, fixtures.SampleRepo(), w)
		}
	case f.given("repo"):
		if err := f.checkOut(&req); err != nil {
			return req, cleanup, err
		}
	case f.given("dir"):
		dir, err := dirpack.Open(f.dir)
		if err != nil {
			return req, cleanup, err
		}
		undo = append(undo, func() { dir.Close() })
		if err := f.sendDir(ctx, dir, &req, console); err != nil {
			return req, cleanup, err
		}
	}
	if f.given("stdin") {
		in, closeIn, err := openStdin(ctx, f.stdin, stdin)
		if err != nil {
			return req, cleanup, err
		}
		undo = append(undo, closeIn)
		req.Stdin = in
	}
	return req, cleanup, nil
}

// sendDir looks through the directory: what cannot be read or does not fit is
// better known now.
func (f *runFlags) sendDir(ctx context.Context, dir *dirpack.Dir, req *oneshot.Request, console *console) error {
	ended := console.phase("looking through " + f.dir)
	survey, err := dir.Survey(ctx)
	ended()
	if err != nil {
		return err
	}
	for _, s := range survey.Skipped {
		console.line("warning: not copied: " + s)
	}
	if more := survey.Unsent - len(survey.Skipped); more > 0 {
		console.line(fmt.Sprintf("warning: not copied: %d more sockets, fifos and devices", more))
	}
	l := req.Limits
	switch {
	case survey.Blocks > l.DiskBytes:
		return fault.New(fault.Exhausted, "cannot copy %q: its %s files take %s of disk, more than the limit of %s; raise --disk",
			f.dir, quantity.Count(survey.Entries), quantity.Size(survey.Blocks), quantity.Size(l.DiskBytes))
	case survey.Entries >= l.Inodes:
		return fault.New(fault.Exhausted, "cannot copy %q: it holds %s files, more than the limit of %s; raise --inodes",
			f.dir, quantity.Count(survey.Entries), quantity.Count(l.Inodes))
	}
	req.FilesNote = fmt.Sprintf("copying %s files (%s)", quantity.Count(survey.Entries), quantity.Size(survey.Bytes))
	req.Files = dir.Pack
	return nil
}

func (f *runFlags) limits() (run.Limits, error) {
	var l run.Limits
	wallClock := func(s string) (int64, error) {
		d, err := quantity.ParseDuration(s)
		return int64(d), err
	}
	var err error
	for _, p := range []struct {
		flag, text string
		to         *int64
		parse      func(string) (int64, error)
	}{
		{"cpus", f.cpus, &l.MilliCPU, quantity.ParseCPUs},
		{"memory", f.memory, &l.MemoryBytes, quantity.ParseSize},
		{"pids", f.pids, &l.PIDs, quantity.ParseCount},
		{"disk", f.disk, &l.DiskBytes, quantity.ParseSize},
		{"inodes", f.inodes, &l.Inodes, quantity.ParseCount},
		{"timeout", f.timeout, (*int64)(&l.WallClock), wallClock},
		{"max-output", f.maxOutput, &l.OutputBytes, quantity.ParseSize},
	} {
		if !f.given(p.flag) {
			continue
		}
		if *p.to, err = p.parse(p.text); err != nil {
			return l, fault.New(fault.Invalid, "cannot use --%s: %v", p.flag, err)
		}
	}
	d := run.DefaultLimits()
	if l.DiskBytes == 0 && l.MemoryBytes > 0 {
		l.DiskBytes = min(d.DiskBytes, l.MemoryBytes/2)
	}
	f.asked = l
	l = l.Or(d)
	if err := l.Validate(); err != nil {
		return l, fault.New(fault.Invalid, "cannot use these limits: %v", err)
	}
	most := run.Ceiling()
	for _, m := range []struct {
		flag       string
		asked, max int64
		text       string
	}{
		{"cpus", l.MilliCPU, most.MilliCPU, fmt.Sprint(most.MilliCPU / 1000)},
		{"memory", l.MemoryBytes, most.MemoryBytes, quantity.Size(most.MemoryBytes)},
		{"disk", l.DiskBytes, most.DiskBytes, quantity.Size(most.DiskBytes)},
		{"inodes", l.Inodes, most.Inodes, fmt.Sprint(most.Inodes)},
		{"pids", l.PIDs, most.PIDs, fmt.Sprint(most.PIDs)},
		{"max-output", l.OutputBytes, most.OutputBytes, quantity.Size(most.OutputBytes)},
		{"timeout", int64(l.WallClock), int64(most.WallClock), most.WallClock.String()},
	} {
		if m.asked > m.max {
			return l, fault.New(fault.Invalid, "cannot use --%s: more than %s is never given", m.flag, m.text)
		}
	}
	return l, nil
}

// network is what --allow and --preset say together.
func (f *runFlags) network() (run.Network, error) {
	if len(f.allow)+len(f.preset) == 0 {
		return run.Network{}, nil
	}
	n := run.Network{Mode: run.NetworkAllow, Allow: f.allow}
	file, err := policy.Open(cmp.Or(os.Getenv("AGENTDOCK_NETWORK_FILE"), policy.DefaultFile))
	if err != nil {
		return n, err
	}
	for _, name := range f.preset {
		servers, err := file.Preset(name)
		if err != nil {
			return n, fault.New(fault.Invalid, "cannot use --preset: %v", err)
		}
		n.Allow = append(n.Allow, servers...)
	}
	if _, err := policy.Compile(n); err != nil {
		return n, fault.New(fault.Invalid, "cannot use --allow: %v", err)
	}
	return n, nil
}

func limitNames(names []string) []run.Limit {
	var limits []run.Limit
	for _, n := range names {
		limits = append(limits, run.Limit(n))
	}
	return limits
}

func parseEnv(pairs []string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Invalid, "cannot use --env %q: %s; write NAME=VALUE", mask(p), envFault(ok))
		}
		env[name] = value
	}
	return env, nil
}

// envFault says what is wrong with a variable.
func envFault(hasValue bool) string {
	if hasValue {
		return "it has no name before the ="
	}
	return "it has no value, and one is never taken from your own environment"
}

// mask leaves out a value: it may be a secret.
func mask(pair string) string {
	name, _, ok := strings.Cut(pair, "=")
	if ok {
		return name + "=…"
	}
	return name
}

func (f *runFlags) checkArtifacts(req *oneshot.Request) error {
	for i, p := range f.artifacts {
		// People write a directory and mean what is in it.
		switch clean := path.Clean(p); {
		case p == "" || strings.HasPrefix(p, "/"):
		case strings.HasSuffix(p, "/"):
			f.artifacts[i] = path.Join(clean, "**")
		default:
			f.artifacts[i] = clean
		}
	}
	req.Artifacts = f.artifacts
	if err := (execenv.ArchiveRequest{Patterns: f.artifacts}).Validate(); err != nil {
		return fault.New(fault.Invalid, "cannot use --artifact: %v", err)
	}
	if f.given("artifact-bytes") {
		n, err := quantity.ParseSize(f.artifactBytes)
		if err != nil {
			return fault.New(fault.Invalid, "cannot use --artifact-bytes: %v", err)
		}
		req.ArtifactLimits.TotalBytes, req.ArtifactLimits.FileBytes = n, n
	}
	if len(f.artifacts) == 0 {
		if f.given("out") {
			return fault.New(fault.Invalid, "--out is for artifacts; say which with --artifact")
		}
		return nil
	}
	switch info, err := os.Stat(f.out); {
	case f.out == "":
		return fault.New(fault.Invalid, "cannot use --out: it is empty")
	case os.IsNotExist(err):
	case err != nil:
		return fault.Wrap(fault.Invalid, err, "cannot use --out")
	case !info.IsDir():
		return fault.New(fault.Invalid, "cannot use --out %q: it is not a directory", f.out)
	}
	return nil
}

func openStdin(ctx context.Context, name string, ours io.Reader) (io.Reader, func(), error) {
	if name == "-" {
		return ours, func() {}, nil
	}
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() { // a fifo opens only when somebody writes to it
		file, err := os.Open(name)
		done <- opened{file, err}
	}()
	var o opened
	select {
	case o = <-done:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if o.err == nil {
		var info fs.FileInfo
		if info, o.err = o.file.Stat(); o.err == nil && info.IsDir() {
			o.err = fmt.Errorf("%s is a directory", name)
		}
		if o.err != nil {
			o.file.Close()
		}
	}
	if o.err != nil {
		return nil, nil, fault.Wrap(fault.Invalid, o.err, "cannot use --stdin")
	}
	return o.file, func() { o.file.Close() }, nil
}

// completeImages offers the names of the images there are.
func completeImages(cmd *cobra.Command, dir *string) {
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("image", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		store, err := image.Open(cmp.Or(*dir, os.Getenv(image.DirEnv), image.DefaultDir))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		images, err := store.List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, img := range images {
			if img.Name != "" {
				names = append(names, img.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// phaseAfter is how long something takes before the user is told what it is.
const phaseAfter = time.Second
