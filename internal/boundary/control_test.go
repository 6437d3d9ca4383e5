package boundary

import (
	"strings"
	"testing"
)

// The negative controls: a checker that accepts everything would pass
// TestModule too, so each rule is shown a graph that breaks it.

func TestViolationsAreFound(t *testing.T) {
	const gvisorKernel = "gvisor.dev/gvisor/pkg/sentry/kernel"
	for name, tc := range map[string]struct {
		path string
		pkg  pkg
		want string // of the one violation; empty for none
	}{
		"domain imports std":           {path: "./internal/run", pkg: pkg{Imports: []string{"fmt", "net/netip"}}},
		"domain imports ours":          {path: "./internal/run", pkg: pkg{Imports: []string{"./internal/fault"}}, want: "./internal/run imports ./internal/fault"},
		"domain imports SDK":           {path: "./internal/tenant", pkg: pkg{Imports: []string{"github.com/google/uuid"}}, want: "imports github.com/google/uuid"},
		"port imports domain":          {path: "./internal/store", pkg: pkg{Imports: []string{"context", "./internal/run"}}},
		"port imports SDK":             {path: "./internal/execenv", pkg: pkg{Imports: []string{"google.golang.org/protobuf/proto"}}, want: "imports google.golang.org/protobuf/proto"},
		"port imports adapter":         {path: "./internal/queue", pkg: pkg{Imports: []string{"./internal/execenv/fake"}}, want: "imports ./internal/execenv/fake"},
		"port imports std it must not": {path: "./internal/blob", pkg: pkg{Imports: []string{"net/http"}}, want: "imports net/http"},
		"adapter imports its SDK":      {path: "./internal/store/postgres", pkg: pkg{Imports: []string{"./internal/store", "github.com/jackc/pgx/v5"}}},
		"adapter imports own parts":    {path: "./internal/execenv/gvisor", pkg: pkg{Imports: []string{"./internal/execenv/gvisor/boot"}}},
		"adapter imports adapter":      {path: "./internal/store/sqlite", pkg: pkg{Imports: []string{"./internal/store/postgres"}}, want: "imports ./internal/store/postgres"},
		"adapter imports other port":   {path: "./internal/blob/dir", pkg: pkg{Imports: []string{"./internal/store"}}, want: "imports ./internal/store"},
		"new adapter is covered":       {path: "./internal/execenv/novel", pkg: pkg{Imports: []string{"./internal/execenv/fake"}}, want: "imports ./internal/execenv/fake"},
		"suite imports adapter":        {path: "./internal/execenv/execenvtest", pkg: pkg{Imports: []string{"./internal/execenv/fake"}}, want: "imports ./internal/execenv/fake"},
		"worker imports adapter":       {path: "./internal/worker", pkg: pkg{Imports: []string{"./internal/execenv/docker"}}, want: "imports ./internal/execenv/docker"},
		"control speaks HTTP":          {path: "./internal/control", pkg: pkg{Imports: []string{"net/http"}}, want: "imports net/http"},
		"e2e test takes back door":     {path: "./tests/e2e", pkg: pkg{TestImports: []string{"./internal/control"}}, want: "imports ./internal/control"},
		"execd links database":         {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{"database/sql"}}, want: "links database/sql"},
		"execd links driver":           {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{"github.com/jackc/pgx/v5/pgconn"}}, want: "links github.com/jackc/pgx/v5/pgconn"},
		"execd links checkout":         {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{"./internal/checkout"}}, want: "links ./internal/checkout"},
		"execd links std internals":    {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{"internal/queue", "internal/store"}}},
		"execd links gVisor":           {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{gvisorKernel, "./internal/execenv/gvisor"}}},
		"guest links HTTP":             {path: "./cmd/agentdock-guest", pkg: pkg{Deps: []string{"net/http"}}, want: "links net/http"},
		"API links adapter":            {path: "./cmd/agentdock-api", pkg: pkg{Deps: []string{"./internal/execenv/fake"}}, want: "depends on ./internal/execenv/fake"},
		"API links port":               {path: "./cmd/agentdock-api", pkg: pkg{Deps: []string{"./internal/execenv", "./internal/execenv/outlog"}}},
		"anyone links gVisor":          {path: "./internal/image", pkg: pkg{Deps: []string{gvisorKernel}}, want: "depends on " + gvisorKernel},
		"execd makes images":           {path: "./cmd/agentdock-execd", pkg: pkg{Deps: []string{"./internal/image", "./internal/image/ingest"}}, want: "links ./internal/image/ingest"},
		"execd knows an adapter":       {path: "./internal/execd", pkg: pkg{Imports: []string{"./internal/execenv/gvisor"}}, want: "imports ./internal/execenv/gvisor"},
		"wire knows the worker":        {path: "./internal/execrpc", pkg: pkg{Imports: []string{"./internal/worker"}}, want: "imports ./internal/worker"},
		"use case links a store":       {path: "./internal/httpapi", pkg: pkg{Deps: []string{"./internal/store/sqlite"}}, want: "depends on ./internal/store/sqlite"},
		"tests may reach adapters":     {path: "./internal/execd", pkg: pkg{TestImports: []string{"./internal/execenv/fake"}}},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph{tc.path: tc.pkg}
			found := append(checkImports(g, importRules), checkLinks(g, linkRules)...)
			found = append(found, checkOnly(g, onlyRules)...)
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("found %q in a graph that breaks no rule", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0], tc.want) {
				t.Errorf("found %q, want one violation that says %q", found, tc.want)
			}
		})
	}
}

// TestCLILinksGVisor is apart because two rules forbid it.
func TestCLILinksGVisor(t *testing.T) {
	g := graph{"./cmd/agentdock": {Deps: []string{"gvisor.dev/gvisor/pkg/log"}}}
	if len(checkLinks(g, linkRules)) != 1 || len(checkOnly(g, onlyRules)) != 1 {
		t.Error("a CLI that links gVisor was accepted")
	}
}

func TestNames(t *testing.T) {
	g := graph{"./internal/here": {}}
	for name, tc := range map[string]struct {
		named, planned []string
		want           string
	}{
		"present":             {named: []string{"./internal/here"}},
		"gone":                {named: []string{"./internal/gone"}, want: "does not exist"},
		"gone below":          {named: []string{"./internal/here/more/..."}, want: "does not exist"},
		"planned":             {named: []string{"./internal/later"}, planned: []string{"./internal/later"}},
		"planned has arrived": {named: []string{"./internal/here"}, planned: []string{"./internal/here"}, want: "delete it"},
		"not ours":            {named: []string{"github.com/jackc/...", "database/sql"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checkNames(g, tc.named, tc.planned)
			if got := strings.Join(found, "\n"); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}

// TestDecode shows the reader what the go command prints, whose own internal
// packages must not pass for ours.
func TestDecode(t *testing.T) {
	g, err := decode(strings.NewReader(`
		{"ImportPath": "example.test/m/internal/a", "Module": {"Path": "example.test/m"},
		 "Imports": ["internal/abi", "example.test/m/internal/b", "example.test/more"],
		 "TestImports": ["testing"], "XTestImports": ["example.test/m/internal/c"], "Deps": ["unsafe"]}
		{"ImportPath": "example.test/m/internal/b", "Module": {"Path": "example.test/m"}}`))
	if err != nil {
		t.Fatal(err)
	}
	a := g["./internal/a"]
	if got := strings.Join(a.Imports, " "); got != "internal/abi ./internal/b example.test/more" {
		t.Errorf("imports are %q", got)
	}
	if got := strings.Join(a.TestImports, " "); got != "testing ./internal/c" {
		t.Errorf("test imports are %q", got)
	}
	if len(g) != 2 || len(a.Deps) != 1 {
		t.Errorf("graph is %v", g)
	}
}
