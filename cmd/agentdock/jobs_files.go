package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/fault"
)

func newJobsLogs() *cobra.Command {
	var follow, asJSON bool
	var after int64
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print what a job's commands wrote",
		Long: `Print what a job's commands wrote: their standard output on standard output, and
their standard error on standard error. With -f the log is followed until the job
has ended; a connection that breaks is taken up where it broke.`,
		Example: `  agentdock jobs logs -f 019b…
  agentdock jobs logs --json 019b… | jq -r 'select(.output) | .output.text'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			for event, err := range c.Log(cmd.Context(), args[0], client.LogOptions{After: after, NoFollow: !follow}) {
				if err != nil {
					return fmt.Errorf("cannot read the log: %w", err)
				}
				if asJSON {
					err = writeJSON(cmd.OutOrStdout(), event)
				} else {
					err = passOn(event, cmd.OutOrStdout(), cmd.ErrOrStderr())
				}
				if err != nil {
					return fmt.Errorf("cannot pass on the log: %w", err)
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the piece with this `seq`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each piece")
	return cmd
}

func passOn(event api.LogEvent, stdout, stderr io.Writer) error {
	if event.Output == nil {
		return nil
	}
	to := stdout
	if event.Output.Stream == "stderr" {
		to = stderr
	}
	_, err := to.Write(client.OutputBytes(event.Output))
	return err
}

func newJobsArtifacts() *cobra.Command {
	var out string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "artifacts ID [PATH...]",
		Short: "List the files a job left, or fetch them",
		Long: `List the files a job left. With --out they are fetched into a directory: those that
are named, or all. Each is compared with its digest.`,
		Example: `  agentdock jobs artifacts 019b…
  agentdock jobs artifacts 019b… --out build
  agentdock jobs artifacts 019b… --out build dist/report.json`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			list, err := c.Artifacts(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("cannot list the artifacts: %w", err)
			}
			if list, err = chosen(list, args[1:]); err != nil {
				return err
			}
			if cmd.Flags().Changed("out") {
				if _, err := fetch(cmd.Context(), c, args[0], list, out); err != nil {
					return err
				}
			}
			if asJSON {
				if list == nil {
					list = []api.Artifact{}
				}
				return writeJSON(cmd.OutOrStdout(), list)
			}
			rows := make([][]string, len(list))
			for i, a := range list {
				rows[i] = []string{a.Path, fmt.Sprint(a.Bytes), a.SHA256}
			}
			return writeTable(cmd.OutOrStdout(), []string{"PATH", "BYTES", "SHA256"}, rows)
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "fetch them into this `directory`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func chosen(list []api.Artifact, paths []string) ([]api.Artifact, error) {
	if len(paths) == 0 {
		return list, nil
	}
	var some []api.Artifact
	for _, p := range paths {
		found := false
		for _, a := range list {
			if a.Path == p {
				some, found = append(some, a), true
			}
		}
		if !found {
			return nil, fault.New(fault.NotFound, "the job left no file %q", p)
		}
	}
	return some, nil
}

// fetch writes artifacts below a directory. Their names were chosen by a hostile
// program: none leads out of it, through a symlink either. A file that did not
// come whole is removed.
func fetch(ctx context.Context, c *client.Client, job string, list []api.Artifact, dir string) ([]artifact.Artifact, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the directory for artifacts: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the directory for artifacts: %w", err)
	}
	defer root.Close()
	var fetched []artifact.Artifact
	for _, a := range list {
		if err := fetchOne(ctx, c, job, a.Path, root); err != nil {
			return fetched, fmt.Errorf("cannot fetch the artifact %q: %w", a.Path, err)
		}
		fetched = append(fetched, artifact.Artifact{Path: a.Path, Bytes: a.Bytes, SHA256: a.SHA256})
	}
	return fetched, nil
}

func fetchOne(ctx context.Context, c *client.Client, job, path string, root *os.Root) error {
	if !filepath.IsLocal(path) {
		return errors.New("its name leads out of the directory")
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Not into what is there: it may be a link, or something that blocks.
	if err := root.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	err = errors.Join(c.DownloadArtifact(ctx, job, path, f), f.Close())
	if err != nil {
		err = errors.Join(err, root.Remove(path))
	}
	return err
}
