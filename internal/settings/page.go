package settings

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// CLI is what the command line reads besides its flags.
type CLI struct {
	URL         string `env:"AGENTDOCK_URL" help:"address of the API; without it, and without a config file, run works on this machine"`
	Key         Secret `env:"AGENTDOCK_API_KEY" help:"key that opens the API"`
	Config      string `env:"AGENTDOCK_CONFIG" help:"config file with url and api_key, mode 0600; empty for agentdock/config.json in the user's config directory"`
	RuntimeDir  string `env:"AGENTDOCK_RUNTIME_DIR" help:"directory for what a private execution service needs"`
	DiskDir     string `env:"AGENTDOCK_DISK_DIR" help:"directory in which a private execution service keeps workspaces on disk"`
	ExecdBinary string `env:"AGENTDOCK_EXECD_BINARY" help:"the agentdock-execd program; empty for the one beside agentdock, or in PATH"`
	ImageDir    string `env:"AGENTDOCK_IMAGE_DIR" help:"image store"`
	NetworkFile string `env:"AGENTDOCK_NETWORK_FILE" help:"file with presets of servers and with mirrors that may be private; without that file the presets that are shipped hold"`
	// What a private execution service is told.
	Auth
	Runtime
}

// DefaultCLI is what it does when nothing is set.
func DefaultCLI() CLI {
	return CLI{RuntimeDir: "/run/agentdock", DiskDir: "/var/lib/agentdock", ImageDir: "/var/lib/agentdock/images", NetworkFile: "/etc/agentdock/network.conf", Auth: Auth{Mode: AuthAPIKey}, Runtime: Runtime{RuntimeGVisor}}
}

// process is a program and what it reads.
type process struct {
	name     string
	settings []Setting
}

// openTelemetry are the variables of its own standard that matter most.
func openTelemetry() []Setting {
	return []Setting{
		{Name: "OTEL_TRACES_EXPORTER", Default: "none", Meaning: "otlp: send traces; also on when an endpoint is set"},
		{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Meaning: "collector that takes OTLP over HTTP, as http://HOST:4318"},
		{Name: "OTEL_EXPORTER_OTLP_HEADERS", Meaning: "headers for the collector", Secret: true},
		{Name: "OTEL_RESOURCE_ATTRIBUTES", Meaning: "attributes of every span"},
		{Name: "OTEL_TRACES_SAMPLER", Default: "parentbased_always_on", Meaning: "which traces are kept"},
	}
}

func processes() []process {
	return []process{
		{"agentdock-api", append(Describe(DefaultAPI()), openTelemetry()...)},
		{"agentdock-worker", append(Describe(DefaultWorker()), openTelemetry()...)},
		{"agentdock up", append(Describe(DefaultUp()), openTelemetry()...)},
		{"agentdock", append(Describe(DefaultCLI()), Describe(DefaultCheckout())...)},
		{"agentdock-execd", Describe(DefaultExecd())},
		{"agentdock-egress", Describe(DefaultEgress())},
	}
}

// row is a variable with all processes that read it.
type row struct {
	Setting
	processes []string
}

func all() []row {
	var rows []row
	for _, p := range processes() {
		for _, s := range p.settings {
			i := slices.IndexFunc(rows, func(r row) bool { return r.Setting == s })
			if i < 0 {
				i = len(rows)
				rows = append(rows, row{Setting: s})
			}
			rows[i].processes = append(rows[i].processes, p.name)
		}
	}
	return rows
}

// Page is docs/settings.md.
func Page() string {
	var b strings.Builder
	b.WriteString(`# Settings

Generated from ` + "`internal/settings`" + ` (` + "`go test ./internal/settings -update`" + `). A process reads its environment once, when it starts; what is wrong with it is said all at once, by the name of the variable.

Sizes are written 512m, 4g or in bytes; lengths of time 90s, 1m30s or 2h. A variable that begins with SANDBOX_ or AGENTDOCK_EXECD_ and is not in this table is refused.
A secret may lie in a file instead, whose path is in the variable with _FILE behind its name. No secret is ever printed, and ` + "`agentdock-execd`" + ` refuses to start with one.

Quotas of tenants are no settings but on record (` + "`agentdock admin tenant`" + `), and hold over all processes. The exception is requests per minute: each API process counts for itself, so n of them behind a balancer allow up to n times as many.

| variable | read by | default | meaning |
|---|---|---|---|
`)
	for _, r := range all() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, strings.Join(r.processes, ", "), orNone(r.Default), cell(r.Meaning))
	}
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return "`" + s + "`"
}

// WriteHelp prints the variables that one process reads.
func WriteHelp(w io.Writer, name string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, p := range processes() {
		if p.name != name {
			continue
		}
		for _, s := range p.settings {
			def := s.Default
			if def == "" {
				def = "-"
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\n", s.Name, def, s.Meaning)
		}
	}
	return t.Flush()
}
