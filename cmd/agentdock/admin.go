package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/quantity"
)

func newAdmin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Make and change tenants and keys of a server",
		Long:  `Make and change tenants and keys of a server. The key in AGENTDOCK_API_KEY needs the scope admin.`,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	tenants := group("tenant", "Make, list and change tenants", newTenantCreate(), newTenantList(), newTenantSet())
	keys := group("key", "Make, list and revoke API keys", newKeyCreate(), newKeyList(), newKeyRevoke())
	cmd.AddCommand(tenants, keys, newAudit())
	return cmd
}

func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(commands...)
	return cmd
}

// quotaFlags are what a tenant may use at once. Only what is given is sent.
type quotaFlags struct {
	running, queued, sandboxes, requests int
	cpus, memory, artifacts, uploads     string
	shell                                bool
	repositories                         []string
}

func (q *quotaFlags) define(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&q.running, "running", 0, "`number` of jobs that run at once; 0 does not bound, as with the others")
	fl.IntVar(&q.queued, "queued", 0, "`number` of jobs that wait")
	fl.IntVar(&q.sandboxes, "sandboxes", 0, "`number` of live sandboxes at once")
	fl.StringVar(&q.cpus, "cpus", "", "`number` of processors of all jobs that run and all live sandboxes")
	fl.StringVar(&q.memory, "memory", "", "`size` of memory of all jobs that run and all live sandboxes")
	fl.StringVar(&q.artifacts, "artifact-bytes", "", "`size` of all artifacts that are kept")
	fl.StringVar(&q.uploads, "upload-bytes", "", "`size` of all uploaded archives that are kept")
	fl.IntVar(&q.requests, "requests-per-minute", 0, "`number` of requests in a minute")
	fl.BoolVar(&q.shell, "grant-shell", false, "allow commands that are shells")
	fl.StringArrayVar(&q.repositories, "grant-repository", nil, "let the GitHub App read this `OWNER/NAME` for the tenant; repeatable")
}

func (q *quotaFlags) change(cmd *cobra.Command) (c api.QuotaChange, grants api.GrantsChange, err error) {
	given := cmd.Flags().Changed
	for flag, to := range map[string]struct {
		from *int
		to   **int
	}{"running": {&q.running, &c.Running}, "queued": {&q.queued, &c.Queued}, "sandboxes": {&q.sandboxes, &c.Sandboxes}, "requests-per-minute": {&q.requests, &c.RequestsPerMinute}} {
		if given(flag) {
			*to.to = to.from
		}
	}
	for _, p := range []struct {
		flag, text string
		parse      func(string) (int64, error)
		to         **int64
	}{
		{"cpus", q.cpus, quantity.ParseCPUs, &c.MilliCPU},
		{"memory", q.memory, quantity.ParseSize, &c.MemoryBytes},
		{"artifact-bytes", q.artifacts, quantity.ParseSize, &c.ArtifactBytes},
		{"upload-bytes", q.uploads, quantity.ParseSize, &c.UploadBytes},
	} {
		if !given(p.flag) {
			continue
		}
		var n int64
		if p.text != "0" {
			if n, err = p.parse(p.text); err != nil {
				return c, grants, fault.New(fault.Invalid, "cannot use --%s: %v", p.flag, err)
			}
		}
		*p.to = &n
	}
	if given("grant-shell") {
		grants.Shell = &q.shell
	}
	if given("grant-repository") {
		grants.Repositories = &q.repositories
	}
	return c, grants, nil
}

func newTenantCreate() *cobra.Command {
	var q quotaFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a tenant",
		Example: `  agentdock admin tenant create team-a --running 4 --memory 8g
  agentdock admin key create --tenant TENANT_ID ci`,
		Args: cobra.ExactArgs(1),
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			quota, grants, err := q.change(cmd)
			if err != nil {
				return err
			}
			spec := api.TenantSpec{Name: args[0], Quota: quota, Grants: grants}
			t, err := c.CreateTenant(cmd.Context(), spec)
			if err != nil {
				return fmt.Errorf("cannot make the tenant: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), t)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), t.ID)
			return err
		}),
	}
	q.define(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func newTenantList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tenants",
		Example: `  agentdock admin tenant list --json`,
		Args:    cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			list, err := c.Tenants(cmd.Context())
			if err != nil {
				return fmt.Errorf("cannot list tenants: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			rows := make([][]string, len(list))
			for i, t := range list {
				state := "active"
				if t.Disabled {
					state = "disabled"
				}
				rows[i] = []string{t.ID, t.Name, state, bound(int64(t.Quota.Running)), bound(int64(t.Quota.Queued)), when(t.CreatedAt)}
			}
			return writeTable(cmd.OutOrStdout(), []string{"ID", "NAME", "STATE", "RUNNING", "QUEUED", "CREATED"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func bound(n int64) string {
	if n == 0 {
		return "any"
	}
	return fmt.Sprint(n)
}

func newTenantSet() *cobra.Command {
	var q quotaFlags
	var disable, enable bool
	var name string
	cmd := &cobra.Command{
		Use:               "set ID",
		Short:             "Change a tenant; what is not given stays",
		Example:           `  agentdock admin tenant set ID --running 8`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTenants,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			quota, grants, err := q.change(cmd)
			if err != nil {
				return err
			}
			change := api.TenantChange{Name: name, Quota: quota, Grants: grants}
			if disable != enable {
				change.Disabled = &disable
			}
			t, err := c.UpdateTenant(cmd.Context(), args[0], change)
			if err != nil {
				return fmt.Errorf("cannot change the tenant: %w", err)
			}
			return writeJSON(cmd.OutOrStdout(), t)
		}),
	}
	q.define(cmd)
	cmd.Flags().StringVar(&name, "name", "", "another `name`")
	cmd.Flags().BoolVar(&disable, "disable", false, "keep the record and let it do nothing")
	cmd.Flags().BoolVar(&enable, "enable", false, "let it work again")
	cmd.MarkFlagsMutuallyExclusive("disable", "enable")
	return cmd
}

func newKeyCreate() *cobra.Command {
	var tenant, expires string
	var scopes []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a key; its secret is printed once and kept nowhere",
		Example: `  agentdock admin key create --tenant TENANT_ID ci
  agentdock admin key create --tenant TENANT_ID --scope jobs:read --expires 720h dashboard`,
		Args: cobra.ExactArgs(1),
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			spec := api.KeySpec{Name: args[0]}
			for _, s := range scopes {
				spec.Scopes = append(spec.Scopes, api.Scope(s))
			}
			if expires != "" {
				d, err := quantity.ParseDuration(expires)
				if err != nil {
					return fault.New(fault.Invalid, "cannot use --expires: %v", err)
				}
				spec.ExpiresAt = time.Now().Add(d).UTC()
			}
			k, err := c.CreateKey(cmd.Context(), tenant, spec)
			if err != nil {
				return fmt.Errorf("cannot make the key: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), k)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), k.Secret)
			return err
		}),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "`id` of the tenant")
	_ = cmd.MarkFlagRequired("tenant")
	_ = cmd.RegisterFlagCompletionFunc("tenant", completeTenants)
	cmd.Flags().StringSliceVar(&scopes, "scope", []string{"jobs:read", "jobs:write"}, "what it may do: jobs:read, jobs:write, sandboxes:read, sandboxes:write, admin")
	cmd.Flags().StringVar(&expires, "expires", "", "`duration` after which it opens nothing")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object with the secret")
	return cmd
}

func newKeyList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "list TENANT_ID",
		Short:             "List the keys of a tenant",
		Example:           `  agentdock admin key list TENANT_ID`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeTenants,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			list, err := c.Keys(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("cannot list keys: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			rows := make([][]string, len(list))
			for i, k := range list {
				scopes := make([]string, len(k.Scopes))
				for j, s := range k.Scopes {
					scopes[j] = string(s)
				}
				state := "valid"
				switch {
				case !k.RevokedAt.IsZero():
					state = "revoked"
				case !k.ExpiresAt.IsZero() && time.Now().After(k.ExpiresAt):
					state = "expired"
				}
				rows[i] = []string{k.ID, k.Name, k.Prefix + "…", strings.Join(scopes, ","), state, when(k.LastUsedAt)}
			}
			return writeTable(cmd.OutOrStdout(), []string{"ID", "NAME", "SECRET", "SCOPES", "STATE", "LAST USED"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func newKeyRevoke() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke TENANT_ID KEY_ID",
		Short:             "Take a key away at once",
		Example:           `  agentdock admin key revoke TENANT_ID KEY_ID`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeTenants,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if err := c.RevokeKey(cmd.Context(), args[0], args[1]); err != nil {
				return fmt.Errorf("cannot revoke the key: %w", err)
			}
			return nil
		}),
	}
}

func newAudit() *cobra.Command {
	var tenant string
	var after int64
	var limit int
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "Print who did what, one JSON object a line, oldest first",
		Example: `  agentdock admin audit --tenant TENANT_ID | jq 'select(.result != "ok")'`,
		Args:    cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			entries, err := c.AuditLog(cmd.Context(), tenant, after, limit)
			if err != nil {
				return fmt.Errorf("cannot read the audit log: %w", err)
			}
			for _, e := range entries {
				if err := writeJSON(cmd.OutOrStdout(), e); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only of this tenant, by `id`")
	cmd.Flags().Int64Var(&after, "after", 0, "only after this `seq`")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most this `number`")
	_ = cmd.RegisterFlagCompletionFunc("tenant", completeTenants)
	return cmd
}

func completeTenants(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	c, err := dial()
	if err != nil || len(args) > 0 {
		return nil, none
	}
	ctx, cancel := completionContext()
	defer cancel()
	list, err := c.Tenants(ctx)
	if err != nil {
		return nil, none
	}
	var ids []string
	for _, t := range list {
		ids = append(ids, cobra.CompletionWithDesc(t.ID, printable(t.Name)))
	}
	return ids, none
}
