package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/quantity"
)

func newSandbox() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Make live sandboxes on a server, and run commands in them",
		Long: `Make live sandboxes on a server, and run commands in them, call by call, until they
are killed or their time is over. The server is the one that AGENTDOCK_URL names,
with the key in AGENTDOCK_API_KEY, or the one in the config file (see agentdock
jobs); agentdock up starts one.`,
		Example: `  id=$(agentdock sandbox create --ttl 30m)
  agentdock sandbox cp . $id:app
  agentdock sandbox exec --dir app $id -- python3 -m pytest
  agentdock sandbox exec -it $id -- python3
  agentdock sandbox kill $id`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSandboxCreate(), newSandboxList(), newSandboxExec(), newSandboxCopy(), newSandboxExtend(), newSandboxPause(), newSandboxResume(), newSandboxKill(), newSandboxLogs())
	return cmd
}

func newSandboxCreate() *cobra.Command {
	var cpus, memory, disk, ttl, image string
	var env, labels []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Make a sandbox and print its id",
		Example: `  agentdock sandbox create --ttl 30m --memory 1g --label agent=a1`,
		Args:    cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			spec := api.SandboxSpec{Image: image}
			for _, p := range []struct {
				flag, text string
				parse      func(string) (int64, error)
				to         *int64
			}{
				{"cpus", cpus, quantity.ParseCPUs, &spec.Limits.MilliCPU},
				{"memory", memory, quantity.ParseSize, &spec.Limits.MemoryBytes},
				{"disk", disk, quantity.ParseSize, &spec.Limits.DiskBytes},
				{"ttl", ttl, parseMilliseconds, &spec.TTLMS},
			} {
				if !cmd.Flags().Changed(p.flag) {
					continue
				}
				var err error
				if *p.to, err = p.parse(p.text); err != nil {
					return fault.New(fault.Invalid, "cannot use --%s: %v", p.flag, err)
				}
			}
			var err error
			if spec.Env, err = pairs("env", env); err != nil {
				return err
			}
			if spec.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			box, err := c.CreateSandbox(cmd.Context(), spec)
			if err != nil {
				return fmt.Errorf("cannot make the sandbox: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), box)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), box.ID)
			return err
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&image, "image", "", "root image by `name` or digest (default: the server's)")
	fl.StringVar(&cpus, "cpus", "", "`number` of processors")
	fl.StringVar(&memory, "memory", "", "`size` of memory, with the files in the workspace")
	fl.StringVar(&disk, "disk", "", "`size` of what the workspace holds")
	fl.StringVar(&ttl, "ttl", "", "`duration` after which it ends (default: the server's, 5m)")
	fl.StringArrayVar(&env, "env", nil, "set a variable for every command, `NAME=VALUE`; repeatable")
	fl.StringArrayVar(&labels, "label", nil, "label it, `NAME=VALUE`; repeatable")
	fl.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func parseMilliseconds(text string) (int64, error) {
	d, err := quantity.ParseDuration(text)
	return d.Milliseconds(), err
}

func newSandboxList() *cobra.Command {
	var all, asJSON bool
	var labels []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List sandboxes, newest first",
		Example: `  agentdock sandbox list --label agent=a1 --json`,
		Args:    cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			q := client.SandboxQuery{PageSize: 100}
			if !all {
				q.States = []api.SandboxState{api.SandboxStateCreating, api.SandboxStateRunning, api.SandboxStateEnding}
			}
			var err error
			if q.Labels, err = pairs("label", labels); err != nil {
				return err
			}
			found := []api.Sandbox{}
			for box, err := range c.Sandboxes(cmd.Context(), q) {
				if err != nil {
					return fmt.Errorf("cannot list sandboxes: %w", err)
				}
				found = append(found, box)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), found)
			}
			rows := make([][]string, len(found))
			for i, b := range found {
				rows[i] = []string{b.ID, string(b.State), outcomeText(b.Outcome), when(b.CreatedAt), when(b.ExpiresAt), b.Image}
			}
			return writeTable(cmd.OutOrStdout(), []string{"ID", "STATE", "OUTCOME", "CREATED", "EXPIRES", "IMAGE"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that have ended, as long as they are on record")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "only sandboxes with this label, `NAME=VALUE`; repeatable")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func newSandboxExtend() *cobra.Command {
	var ttl string
	cmd := &cobra.Command{
		Use:               "extend ID",
		Short:             "Move the end of a sandbox's time",
		Example:           `  agentdock sandbox extend --ttl 1h ID`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			d, err := quantity.ParseDuration(ttl)
			if err != nil {
				return fault.New(fault.Invalid, "cannot use --ttl: %v", err)
			}
			box, err := c.ExtendSandbox(cmd.Context(), args[0], d, false)
			if err != nil {
				return fmt.Errorf("cannot extend the sandbox: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s ends at %s\n", box.ID, when(box.ExpiresAt))
			return err
		}),
	}
	cmd.Flags().StringVar(&ttl, "ttl", "5m", "`duration` from now after which it ends")
	return cmd
}

func newSandboxPause() *cobra.Command {
	return &cobra.Command{
		Use:               "pause ID",
		Short:             "Put a sandbox away, with its files and commands",
		Example:           `  agentdock sandbox pause ID`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			box, err := c.PauseSandbox(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("cannot pause the sandbox: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is paused and kept until %s\n", box.ID, when(box.ExpiresAt))
			return err
		}),
	}
}

func newSandboxResume() *cobra.Command {
	var ttl string
	cmd := &cobra.Command{
		Use:               "resume ID",
		Short:             "Go on with a sandbox that is paused",
		Example:           `  agentdock sandbox resume --ttl 1h ID`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			d, err := quantity.ParseDuration(ttl)
			if err != nil {
				return fault.New(fault.Invalid, "cannot use --ttl: %v", err)
			}
			box, err := c.ResumeSandbox(cmd.Context(), args[0], d)
			if err != nil {
				return fmt.Errorf("cannot resume the sandbox: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s runs and ends at %s\n", box.ID, when(box.ExpiresAt))
			return err
		}),
	}
	cmd.Flags().StringVar(&ttl, "ttl", "5m", "`duration` from now after which it ends")
	return cmd
}

func newSandboxKill() *cobra.Command {
	return &cobra.Command{
		Use:               "kill ID…",
		Short:             "End sandboxes and everything in them",
		Example:           `  agentdock sandbox kill ID`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			for _, id := range args {
				box, err := c.KillSandbox(cmd.Context(), id)
				if err != nil {
					return fmt.Errorf("cannot kill the sandbox: %w", err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", box.ID, box.State)
			}
			return nil
		}),
	}
}

func newSandboxLogs() *cobra.Command {
	return &cobra.Command{
		Use:   "logs ID [COMMAND]",
		Short: "Follow what a command in a sandbox writes, from its beginning to its end",
		Long: `Follow what a command in a sandbox writes, from its beginning to its end. Without its
id it is the one that was started last. The exit status is that of sandbox exec.`,
		Example:           `  agentdock sandbox logs ID server`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			exec := ""
			if len(args) == 2 {
				exec = args[1]
			} else {
				execs, err := c.Execs(cmd.Context(), args[0])
				if err != nil {
					return fmt.Errorf("cannot list the commands of the sandbox: %w", err)
				}
				if len(execs) == 0 {
					return fault.New(fault.NotFound, "no command was started in sandbox %s", args[0])
				}
				exec = slices.MaxFunc(execs, func(a, b api.Exec) int { return a.StartedAt.Compare(b.StartedAt) }).ID
			}
			return followToEnd(cmd, c.FollowExec(cmd.Context(), args[0], exec, 0))
		}),
	}
}

// completeSandboxes offers those that live, if the server answers soon.
func completeSandboxes(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c, err := dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.CloseIdleConnections()
	ctx, cancel := completionContext()
	defer cancel()
	page, err := c.SandboxPage(ctx, client.SandboxQuery{States: []api.SandboxState{api.SandboxStateRunning}, PageSize: 50})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, box := range page.Sandboxes {
		ids = append(ids, box.ID)
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
