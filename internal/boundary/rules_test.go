package boundary

// planned lists what rules name before it exists. The rules hold from the
// moment a package appears; the test then asks for its line here to go, so
// that a later rename cannot leave a rule guarding nothing.
var planned = []string{
	"./internal/console/...",
	"./internal/execenv/kubernetes/...",
	"./internal/execenv/microvm/...",
	"./internal/undo",
}

// importRules is the table "who may import whom".
var importRules = []importRule{
	{
		Packages: []string{"./internal/run", "./internal/tenant", "./internal/fault"},
		Reason:   "the words of the domain depend on nothing, so that everything can depend on them",
	},
	{
		Packages: []string{"./internal/strictjson", "./internal/clauses"},
		Reason:   "what it reads has no meaning to it",
	},
	{
		Packages: []string{"./internal/service"},
		Reason:   "everything that runs keeps this contract, so it knows nothing of what runs",
	},
	{
		Packages: []string{"./internal/settings"},
		Ours:     []string{"./internal/run", "./internal/quantity"},
		SDKs:     []string{"github.com/caarlos0/env/..."},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "every process reads its settings with it, the execution service too, so it can use none of what it reads",
	},
	{
		Packages: []string{"./internal/logging"},
		SDKs:     []string{"go.opentelemetry.io/otel/trace"},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "every process logs with it, the execution service too; trace ids are read and nothing is sent",
	},
	{
		Packages: []string{"./internal/telemetry"},
		Ours: []string{"./internal/store", "./internal/execenv", "./internal/run", "./internal/tenant", "./internal/fault",
			"./internal/version"},
		SDKs:   []string{anySDK},
		Reason: "what is measured is measured at the ports, so that nothing that works knows of it",
	},
	{
		Packages: []string{"./internal/undo"},
		Ours:     []string{"./internal/fault"},
		Reason:   "clean-up must work everywhere, so it rests on the standard library alone",
	},
	{
		Packages: []string{"./internal/execenv", "./internal/execenv/outlog"},
		Ours:     []string{"./internal/execenv", "./internal/run", "./internal/fault", "./internal/egress/policy"},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "a port that knows an adapter, an SDK or the wire cannot have a second implementation",
	},
	{
		Packages: []string{"./internal/store", "./internal/queue", "./internal/blob"},
		Ours:     []string{"./internal/run", "./internal/tenant", "./internal/fault"},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "a port that knows an adapter, an SDK or the wire cannot have a second implementation",
	},
	{
		Packages: []string{"./internal/execenv/execenvtest/..."},
		Ours:     []string{"./internal/clauses", "./internal/execenv", "./internal/execenv/outlog", "./internal/run", "./internal/fault", "./internal/undo"},
		SDKs:     []string{"github.com/google/go-cmp/...", "golang.org/x/sys/..."},
		Reason:   "a contract suite that knows an adapter tests the adapter, not the contract",
	},
	{
		Packages: []string{"./internal/store/storetest/...", "./internal/queue/queuetest/...", "./internal/blob/blobtest/..."},
		Ours:     []string{"./internal/clauses", "./internal/store", "./internal/queue", "./internal/blob", "./internal/run", "./internal/tenant", "./internal/fault"},
		SDKs:     []string{"github.com/google/go-cmp/..."},
		Reason:   "a contract suite that knows an adapter tests the adapter, not the contract",
	},
	{
		// Whatever is added below the port is an adapter, unless it is excepted.
		Packages: []string{"./internal/execenv/..."},
		Except:   []string{"./internal/execenv", "./internal/execenv/outlog", "./internal/execenv/execenvtest/...", "./internal/execenv/fake/simprobe"},
		Ours: []string{"./internal/execenv", "./internal/execenv/outlog", "./internal/run", "./internal/fault", "./internal/undo",
			// What adapters on this host have in common.
			"./internal/execenv/lifecycle", "./internal/execenv/stdio", "./internal/execenv/transfer",
			// The root image and the protocol of the helper inside the sandbox
			// belong to no single environment, nor do the host's control groups.
			"./internal/image", "./internal/guest/...", "./internal/cgroup"},
		SDKs:   []string{anySDK},
		Reason: "an environment adapter that uses another adapter or port drags that into every host that runs it",
	},
	{
		Packages: []string{"./internal/store/sqlstore"},
		Ours:     []string{"./internal/store", "./internal/run", "./internal/tenant", "./internal/fault"},
		Reason:   "what the databases have in common knows none of them: no driver, no dialect's errors",
	},
	{
		Packages: []string{"./internal/store/..."},
		Except:   []string{"./internal/store", "./internal/store/storetest/...", "./internal/store/sqlstore"},
		Ours:     []string{"./internal/store", "./internal/store/sqlstore", "./internal/run", "./internal/tenant", "./internal/fault", "./internal/undo"},
		SDKs:     []string{anySDK},
		Reason:   "a store adapter knows its own port and its database, and can be replaced alone",
	},
	{
		Packages: []string{"./internal/queue/..."},
		Except:   []string{"./internal/queue", "./internal/queue/queuetest/..."},
		Ours:     []string{"./internal/queue", "./internal/run", "./internal/fault", "./internal/undo"},
		SDKs:     []string{anySDK},
		Reason:   "a queue adapter knows its own port and its broker, and can be replaced alone",
	},
	{
		Packages: []string{"./internal/blob/..."},
		Except:   []string{"./internal/blob", "./internal/blob/blobtest/..."},
		Ours:     []string{"./internal/blob", "./internal/run", "./internal/fault", "./internal/undo"},
		SDKs:     []string{anySDK},
		Reason:   "an artifact adapter knows its own port and its storage, and can be replaced alone",
	},
	{
		Packages: []string{"./internal/execd/..."},
		Ours: []string{"./internal/execenv", "./internal/execenv/outlog", "./internal/run", "./internal/fault", "./internal/undo",
			"./internal/service", "./internal/image",
			// It serves the port, so it knows the wire; the wire knows nothing
			// of it.
			"./internal/execrpc"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "the execution service handles any environment through the port and knows nothing of who asks (A3)",
	},
	{
		Packages: []string{"./internal/execrpc/..."},
		Ours: []string{"./api/execd/...", "./internal/peersocket", "./internal/execenv", "./internal/execenv/outlog", "./internal/run", "./internal/fault",
			"./internal/undo", "./internal/service"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "the wire carries the port and adds nothing to it; both sides of the trust line link it",
	},
	{
		Packages: []string{"./internal/image/..."},
		Ours: []string{"./internal/image", "./internal/run", "./internal/fault", "./internal/undo",
			"./infrastructure/sandbox"}, // the recipe of the default image
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "root images are made and kept apart from what runs them",
	},
	{
		Packages: []string{"./internal/artifact/...", "./internal/dirpack/..."},
		Ours:     []string{"./internal/fault"},
		SDKs:     []string{"github.com/bmatcuk/doublestar/...", "golang.org/x/sys/..."},
		NeverStd: []string{"net/http/..."},
		Reason:   "what touches files of the host for a sandbox knows nothing else, so that it can be read as a whole",
	},
	{
		Packages: []string{"./internal/compat/..."},
		Ours: []string{"./internal/compat/...", "./internal/httpapi", "./internal/live", "./internal/livefiles", "./internal/interpreter", "./internal/guest/filewire",
			"./internal/control", "./internal/store", "./internal/tenant", "./internal/run", "./internal/fault", "./internal/execenv"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/...", "os/..."},
		Reason:   "clients of others get what the use cases give, through the same gate, and nothing else",
	},
	{
		Packages: []string{"./internal/interpreter"},
		Ours:     []string{"./internal/guest/filewire"},
		NeverStd: []string{"net/...", "os/..."},
		Reason:   "every way in speaks to the same interpreter, so it knows none of them",
	},
	{
		Packages: []string{"./internal/guest/filewire"},
		NeverStd: []string{"net/..."},
		Reason:   "both sides of the sandbox's boundary speak it, so it rests on the standard library alone",
	},
	{
		Packages: []string{"./internal/livefiles/..."},
		Ours:     []string{"./internal/execenv", "./internal/guest/filewire", "./internal/fault", "./internal/run"},
		NeverStd: []string{"net/http/...", "os/..."},
		Reason:   "files of a sandbox are reached through the port, and no file of the host is",
	},
	{
		Packages: []string{"./internal/receipt"},
		Ours:     []string{"./internal/run", "./internal/strictjson"},
		SDKs:     []string{"github.com/secure-systems-lab/go-securesystemslib/dsse"},
		NeverStd: []string{"net/http/..."},
		Reason:   "what is signed is the record and nothing else, and whoever verifies needs no part of the platform",
	},
	{
		Packages: []string{"./internal/enginesocket"},
		Ours:     []string{"./internal/fault"},
		SDKs:     []string{"golang.org/x/sys/..."},
		NeverStd: []string{"net/..."},
		Reason:   "what looks for a container engine must not be able to speak to one (A2)",
	},
	{
		Packages: []string{"./internal/checkout/..."},
		Ours: []string{"./internal/execenv", "./internal/run", "./internal/fault", "./internal/quantity", "./internal/settings",
			"./internal/checkout/reason", "./internal/checkout/egress", "./internal/egress/address",
			"./internal/dirpack", "./fixtures"}, // the sample repository
		SDKs:     []string{"golang.org/x/sys/..."},
		NeverStd: []string{"database/sql/...", "os/exec/..."},
		Except:   []string{"./internal/checkout/checkouttest/..."},
		Reason:   "what holds a token and reads what hostile servers send starts no program and knows no store (B5, C4)",
	},
	{
		Packages: []string{"./internal/tunnel"},
		NeverStd: []string{"net/..."},
		Reason:   "the helper inside sandboxes links it, and a hostile one is at the other end: it must stay small and be read as a whole",
	},
	{
		Packages: []string{"./internal/peersocket"},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "who may connect is decided before anything is said",
	},
	{
		Packages: []string{"./internal/egress/address"},
		NeverStd: []string{"net/http/...", "os/..."},
		Reason:   "what is a public address is one answer for everything that connects",
	},
	{
		Packages: []string{"./internal/egress/policy"},
		Ours:     []string{"./internal/run", "./internal/egress/address"},
		NeverStd: []string{"net/http/..."},
		Reason:   "what may be reached is decided by words alone, the same wherever it is asked",
	},
	{
		Packages: []string{"./internal/egress/link"},
		Ours:     []string{"./internal/run", "./internal/fault"},
		NeverStd: []string{"net/http/..."},
		Reason:   "the execution service links it, and needs to know nothing of what the gateway does",
	},
	{
		Packages: []string{"./internal/egress"},
		Ours: []string{"./internal/egress/address", "./internal/egress/policy", "./internal/egress/link", "./internal/tunnel",
			"./internal/run", "./internal/fault"},
		SDKs:     []string{"golang.org/x/time/..."},
		NeverStd: []string{"database/sql/...", "os/exec/..."},
		Reason:   "what reads hostile bytes and may reach the network knows nothing else",
	},
	{
		Packages: []string{"./internal/oneshot/..."},
		Ours:     []string{"./internal/execenv", "./internal/run", "./internal/fault", "./internal/artifact", "./internal/quantity"},
		NeverStd: []string{"net/http/..."},
		Reason:   "a watched run is the same over any environment, near or far",
	},
	{
		Packages: []string{"./internal/localexecd/..."},
		Ours:     []string{"./internal/fault"},
		SDKs:     []string{"golang.org/x/sys/..."},
		NeverStd: []string{"net/http/..."},
		Reason:   "what starts the execution service hands it nothing, so it has nothing to hand over",
	},
	{
		Packages: []string{"./internal/doctor/..."},
		Ours: []string{"./internal/execenv", "./internal/execrpc", "./internal/localexecd", "./internal/image", "./internal/cgroup",
			"./internal/run", "./internal/fault"},
		SDKs:   []string{"golang.org/x/sys/..."},
		Reason: "what judges the boundary looks at it from where its users are, through the port and the host's kernel",
	},
	{
		Packages: []string{"./internal/control/..."},
		Ours: []string{"./internal/run", "./internal/tenant", "./internal/fault", "./internal/undo", "./internal/service",
			"./internal/store", "./internal/queue", "./internal/blob",
			// What a sandbox's port would refuse is refused before it is on record.
			"./internal/execenv"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "use cases are the same behind HTTP, MCP or a test, and over any store",
	},
	{
		Packages: []string{"./internal/live/..."},
		Ours: []string{"./internal/run", "./internal/tenant", "./internal/fault", "./internal/store", "./internal/execenv", "./internal/livefiles",
			// Who asks, and what every way in refuses.
			"./internal/control"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "use cases are the same behind every protocol, over any store and any execution service",
	},
	{
		Packages: []string{"./internal/worker/..."},
		Ours: []string{"./internal/run", "./internal/tenant", "./internal/fault", "./internal/undo", "./internal/service",
			"./internal/store", "./internal/queue", "./internal/blob", "./internal/execenv", "./internal/execenv/outlog",
			"./internal/checkout/...",
			// What comes out of a sandbox and what goes in, as streams.
			"./internal/artifact", "./internal/dirpack", "./fixtures"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "the worker talks to ports, so that no process holds both its credentials and a sandbox (A3)",
	},
	{
		Packages: []string{"./internal/httpapi/..."},
		Ours: []string{"./api", "./internal/control", "./internal/live", "./internal/livefiles", "./internal/run", "./internal/tenant", "./internal/fault", "./internal/service",
			// Commands of live sandboxes are the port's.
			"./internal/execenv",
			"./internal/strictjson",
			// The questions that use cases pass on are the store's.
			"./internal/store"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "what comes over HTTP reaches a use case or nothing",
	},
	{
		Packages: []string{"./api"},
		Reason:   "the contract is what others build on, so it rests on the standard library alone",
	},
	{
		Packages: []string{"./client/..."},
		Ours:     []string{"./api"},
		Reason:   "a public client that drags in our internals, or a library, is one nobody can use",
	},
	{
		// By direct import: through allinone the command line contains a store.
		Packages: []string{"./cmd/agentdock"},
		Ours: []string{"./client", "./api", "./internal/mcpserver", "./internal/allinone", "./internal/receipt",
			// What it does on this machine, without a server.
			"./internal/oneshot", "./internal/localexecd", "./internal/execrpc", "./internal/execenv", "./internal/image/...",
			"./internal/doctor", "./internal/checkout", "./internal/dirpack", "./internal/artifact", "./fixtures", "./internal/egress/policy",
			"./internal/settings", "./internal/logging", "./internal/telemetry", "./internal/quantity", "./internal/version",
			"./internal/run", "./internal/fault"},
		SDKs:     []string{anySDK},
		NeverStd: []string{"database/sql/..."},
		Reason:   "the command line is a client: it reaches the record through the API, but for the one package that up starts",
	},
	{
		Packages: []string{"./internal/backends"},
		Ours: []string{"./internal/settings", "./internal/store", "./internal/store/postgres", "./internal/queue", "./internal/queue/redis",
			"./internal/blob", "./internal/blob/dir", "./internal/blob/s3"},
		NeverStd: []string{"net/http/...", "database/sql/..."},
		Reason:   "it opens what settings name, once for both processes, and does nothing with it",
	},
	{
		Packages: []string{"./internal/allinone"},
		Ours: []string{"./internal/httpapi", "./internal/compat/e2b", "./internal/control", "./internal/live", "./internal/worker", "./internal/service", "./internal/settings",
			"./internal/telemetry", "./internal/receipt", "./internal/checkout", "./internal/enginesocket", "./internal/localexecd",
			"./internal/execrpc", "./internal/image/...", "./internal/store", "./internal/store/sqlite", "./internal/queue/memory",
			"./internal/blob/dir", "./internal/fault"},
		NeverStd: []string{"database/sql/..."},
		Reason:   "it puts together what there is, with the adapters of one machine, and does nothing by itself",
	},
	{
		Packages: []string{"./internal/mcpserver/...", "./internal/console/...", "./tests/e2e/..."},
		Ours: []string{"./client/...", "./api", "./internal/version", "./internal/testenv/...",
			// How the interpreter of a sandbox is spoken to, over commands alone.
			"./internal/interpreter"},
		SDKs:   []string{anySDK},
		Tests:  true,
		Reason: "what people can do is what the public client can do; a back door would go untested",
	},
}

const (
	noSecrets  = "the execution service holds no secret, so it has no use for code that needs one (A3)"
	noDatabase = "sandboxes must not be able to reach a database, so the process that runs them cannot speak to one (A3, B3)"
	noQueue    = "execd is called, it does not pull work: a queue would need a credential (A3)"
	noBlob     = "artifacts leave as a stream over the port; execd has no object-store credential (A3)"
	noCloud    = "a cloud SDK finds credentials by itself: files, variables, the metadata service (A3, A8)"
	noGitHub   = "checkout happens on the worker, where the token is (B5); execd never sees a repository's origin (C4)"
	noCaller   = "this is on the other side of the trust line"
)

var linkRules = []linkRule{
	{
		Binary: "./cmd/agentdock-execd",
		Never: []ban{
			{"./internal/tenant", "execd knows sandboxes, not who owns them; " + noCaller},
			{"./internal/store/...", noDatabase},
			{"./internal/queue/...", noQueue},
			{"./internal/blob/...", noBlob},
			{"./internal/checkout/...", noGitHub},
			{"./internal/control/...", noCaller},
			{"./internal/live/...", noCaller},
			{"./internal/worker/...", noCaller},
			{"./internal/receipt/...", noSecrets + ": the signing key stays above the trust line (C1)"},
			{"./internal/httpapi/...", noCaller},
			{"./internal/mcpserver/...", noCaller},
			{"./internal/console/...", noCaller},
			{"./client/...", "execd calls nobody; " + noCaller},
			{"./internal/image/ingest/...", "making an image takes registry credentials and unpacks hostile archives; execd only opens finished images"},
			{"database/sql/...", noDatabase},
			{"github.com/jackc/...", noDatabase},
			{"github.com/lib/pq/...", noDatabase},
			{"github.com/go-sql-driver/...", noDatabase},
			{"github.com/mattn/go-sqlite3/...", noDatabase},
			{"github.com/ncruces/go-sqlite3/...", noDatabase},
			{"modernc.org/sqlite/...", noDatabase},
			{"zombiezen.com/go/sqlite/...", noDatabase},
			{"github.com/pressly/goose/...", noDatabase},
			{"github.com/redis/...", noQueue},
			{"github.com/minio/...", noBlob},
			{"github.com/aws/...", noCloud},
			{"cloud.google.com/go/...", noCloud},
			{"github.com/Azure/...", noCloud},
			{"github.com/google/go-github/...", noGitHub},
			{"github.com/bradleyfalzon/ghinstallation/...", noGitHub},
			{"github.com/go-git/...", noGitHub},
			{"./internal/telemetry", "execd sends nothing to anybody: an exporter has a collector's address and often its token, and a metrics endpoint is one more way in; it logs the ids of its callers' traces"},
			{"go.opentelemetry.io/otel/sdk/...", "the same; the words of the API are enough to pass a trace on"},
			{"go.opentelemetry.io/otel/exporters/...", "the same"},
			{"github.com/prometheus/...", "the same"},
			{"github.com/golang-jwt/...", noSecrets + ": signing tokens takes a key"},
		},
	},
	{
		Binary: "./cmd/agentdock",
		Never: []ban{
			{"gvisor.dev/gvisor/...", "the CLI starts sandboxes through execd, in another process; a sentry in the caller's process would run hostile code beside the caller's credentials"},
		},
	},
	{
		Binary: "./cmd/agentdock-egress",
		Never: []ban{
			{"gvisor.dev/gvisor/...", "the gateway knows streams, and no sandboxes"},
			{"./internal/store/...", noDatabase},
			{"./internal/blob/...", noBlob},
			{"./internal/queue/...", noQueue},
			{"./internal/checkout/...", noGitHub},
			{"./internal/receipt/...", "the gateway holds no secret: a sandbox's bytes are parsed in it"},
			{"./internal/execenv/...", "the same"},
			{"./internal/execrpc/...", "the same"},
			{"database/sql/...", noDatabase},
			{"./internal/telemetry", "the same: an exporter has a collector's address and often its token"},
		},
	},
	{
		Binary: "./cmd/agentdock-guest",
		Never: []ban{
			{"gvisor.dev/gvisor/...", "the helper runs inside the sandbox, next to hostile code: it must stay small"},
			{"./internal/execenv/gvisor/...", "nothing of the host side may be found inside the sandbox"},
			{"net/http/...", "the helper has no network and its start-up time is part of every run"},
			{"database/sql/...", noDatabase},
			{"./internal/execd/...", "nothing of the host side may be found inside the sandbox"},
			{"./internal/execrpc/...", "nothing of the host side may be found inside the sandbox"},
			{"./internal/worker/...", noCaller},
			{"./internal/checkout/...", noGitHub},
		},
	},
}

var onlyRules = []onlyRule{
	{
		Target: []string{"gvisor.dev/gvisor/..."},
		Users:  []string{"./cmd/agentdock-execd", "./internal/execenv/gvisor/..."},
		Reason: "only the execution service may hold a sandbox runtime, on the far side of the trust line (A3)",
	},
	{
		Target: []string{"github.com/moby/moby/...", "github.com/moby/profiles/..."},
		Users:  []string{"./cmd/agentdock-execd", "./internal/execenv/docker"},
		Reason: "whoever speaks to a container engine has its host: the execution service alone may, and only to run sandboxes (A2)",
	},
	{
		Target: []string{"./internal/execenv/..."},
		Except: []string{"./internal/execenv", "./internal/execenv/outlog"},
		Users:  []string{"./cmd/agentdock-execd"},
		Reason: "environment adapters and their suite are linked by agentdock-execd alone; everyone else uses the port (A1, A3)",
	},
	{
		Target: []string{"./internal/store/...", "./internal/queue/...", "./internal/blob/..."},
		Except: []string{"./internal/store", "./internal/queue", "./internal/blob"},
		Users:  []string{"./cmd/agentdock-api", "./cmd/agentdock-worker", "./internal/backends", "./internal/allinone", "./cmd/agentdock"},
		Reason: "which store, queue or artifact adapter is used is decided where a binary is wired, and nowhere else",
	},
}

// adapters names the environments the design has, so that a rename shows up
// as a rule that guards nothing. The rules above cover others as well.
var adapters = []string{
	"./internal/execenv/fake/...",
	"./internal/execenv/gvisor/...",
	"./internal/execenv/docker/...",
	"./internal/execenv/microvm/...",
	"./internal/execenv/kubernetes/...",
}

// named returns every pattern the rules use.
func named() []string {
	patterns := append([]string(nil), adapters...)
	for _, r := range importRules {
		patterns = append(patterns, r.Packages...)
		patterns = append(patterns, r.Except...)
		patterns = append(patterns, r.Ours...)
	}
	for _, r := range linkRules {
		patterns = append(patterns, r.Binary)
		for _, b := range r.Never {
			patterns = append(patterns, b.Pattern)
		}
	}
	for _, r := range onlyRules {
		patterns = append(patterns, r.Target...)
		patterns = append(patterns, r.Except...)
		patterns = append(patterns, r.Users...)
	}
	return patterns
}
