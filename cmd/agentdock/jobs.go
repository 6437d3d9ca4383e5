package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/quantity"
)

func newJobs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Submit jobs to a server, follow them, and fetch what they leave",
		Long: `Submit jobs to a server, follow them, and fetch what they leave. The server is the
one that AGENTDOCK_URL names, with the key in AGENTDOCK_API_KEY, or the one in the
config file (` + "~/.config/agentdock/config.json" + `, mode 0600).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newJobsSubmit(), newJobsList(), newJobsGet(), newJobsLogs(), newJobsCancel(), newJobsArtifacts(), newJobsReceipt())
	return cmd
}

func newJobsList() *cobra.Command {
	var asJSON bool
	var states, labels []string
	var since string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Example: `  agentdock jobs list --state running --state queued
  agentdock jobs list --label branch=main --since 24h --json`,
		Args: cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			q := client.JobQuery{PageSize: min(limit, 100)}
			for _, s := range states {
				q.States = append(q.States, api.JobState(s))
			}
			var err error
			if q.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			if since != "" {
				d, err := quantity.ParseDuration(since)
				if err != nil {
					return fault.New(fault.Invalid, "cannot use --since: %v", err)
				}
				q.CreatedAfter = time.Now().Add(-d)
			}
			found := []api.Job{}
			for job, err := range c.Jobs(cmd.Context(), q) {
				if err != nil {
					return fmt.Errorf("cannot list jobs: %w", err)
				}
				if found = append(found, job); len(found) >= limit {
					break
				}
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			rows := make([][]string, len(found))
			for i, j := range found {
				rows[i] = []string{j.ID, string(j.State), outcomeText(j.Outcome), when(j.CreatedAt), took(j), firstCommand(j)}
			}
			return writeTable(cmd.OutOrStdout(), []string{"ID", "STATE", "OUTCOME", "CREATED", "TOOK", "COMMAND"}, rows)
		}),
	}
	cmd.Flags().StringArrayVar(&states, "state", nil, "only jobs in this `state`; repeatable")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only jobs with this label, `NAME=VALUE`; repeatable")
	cmd.Flags().StringVar(&since, "since", "", "only jobs made within this `duration`")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this `number` of jobs")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"queued", "starting", "running", "succeeded", "failed", "cancelled"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newJobsGet() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "get ID",
		Short:             "Show one job",
		Example:           `  agentdock jobs get 019b…  --json | jq .outcome`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			job, err := c.Job(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("cannot show the job: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), job)
			}
			return showJob(cmd, job)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func showJob(cmd *cobra.Command, j *api.Job) error {
	facts := [][]string{
		{"id", j.ID}, {"state", string(j.State)}, {"outcome", outcomeText(j.Outcome)},
		{"created", when(j.CreatedAt)}, {"started", when(j.StartedAt)}, {"finished", when(j.FinishedAt)},
		{"attempt", fmt.Sprint(j.Attempt)}, {"image", strings.TrimSpace(j.Spec.Image + " " + j.Resolved.ImageDigest)},
		{"source", sourceText(j)},
	}
	if peak := j.Usage.PeakMemoryBytes; peak > 0 { // else nobody measured it
		facts = append(facts, []string{"peak memory", quantity.Size(peak)})
	}
	if j.Outcome != nil {
		facts = append(facts, []string{"evidence", j.Outcome.Evidence})
	}
	if j.Waiting != "" {
		facts = append(facts, []string{"waiting", j.Waiting})
	}
	if why := j.Resolved.ArtifactsIncomplete; why != "" {
		facts = append(facts, []string{"artifacts", why})
	}
	for i, command := range j.Spec.Commands {
		state := "not started"
		for _, s := range j.Steps {
			if s.Index == i {
				state = "running"
				if s.Outcome != nil {
					state = outcomeText(s.Outcome) + " in " + quantity.Duration(time.Duration(s.DurationMS)*time.Millisecond)
				}
			}
		}
		facts = append(facts, []string{fmt.Sprintf("command %d", i), strings.Join(command.Argv, " ") + ": " + state})
	}
	return writeTable(cmd.OutOrStdout(), []string{"JOB", ""}, facts)
}

func sourceText(j *api.Job) string {
	s := j.Spec.Source
	parts := []string{string(s.Kind), s.Repository, s.Ref, j.Resolved.Commit}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

func newJobsCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID...",
		Short: "End jobs, now or soon",
		Long: `End jobs. One that is queued is cancelled at once; of one that runs, the command is
killed. A job that has ended is left as it is.`,
		Example:           `  agentdock jobs cancel 019b…`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			for _, id := range args {
				job, err := c.CancelJob(cmd.Context(), id)
				if err != nil {
					return fmt.Errorf("cannot cancel the job: %w", err)
				}
				said := string(job.State)
				if job.CancelRequested && job.Outcome == nil {
					said += ", is being cancelled"
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", job.ID, said)
			}
			return nil
		}),
	}
}

// completionContext ends soon: a shell waits for it.
func completionContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}

// completeJobs offers the ids of recent jobs, with what they run.
func completeJobs(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	c, err := dial()
	if err != nil {
		return nil, none
	}
	ctx, cancel := completionContext()
	defer cancel()
	page, err := c.JobPage(ctx, client.JobQuery{PageSize: 20})
	if err != nil {
		return nil, none
	}
	var ids []string
	for _, j := range page.Jobs {
		ids = append(ids, cobra.CompletionWithDesc(j.ID, printable(string(j.State)+": "+firstCommand(j))))
	}
	return ids, none
}

func outcomeText(o *api.Outcome) string {
	if o == nil {
		return ""
	}
	return outcomeOf(*o).String()
}

func firstCommand(j api.Job) string {
	if len(j.Spec.Commands) == 0 {
		return ""
	}
	text := strings.Join(j.Spec.Commands[0].Argv, " ")
	if r := []rune(text); len(r) > 40 {
		text = string(r[:39]) + "…"
	}
	if n := len(j.Spec.Commands); n > 1 {
		text += fmt.Sprintf(" (+%d)", n-1)
	}
	return text
}

func took(j api.Job) string {
	if j.StartedAt.IsZero() {
		return ""
	}
	end := j.FinishedAt
	if end.IsZero() {
		end = time.Now()
	}
	return quantity.Duration(end.Sub(j.StartedAt))
}

// pairs reads NAME=VALUE.
func pairs(flag string, values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Invalid, "cannot use --%s %q: write NAME=VALUE", flag, v)
		}
		m[name] = value
	}
	return m, nil
}
