module github.com/agentdock/agentdock

go 1.26.3

require github.com/google/licensecheck v0.3.1

require (
	connectrpc.com/connect v1.21.1 // indirect
	github.com/caarlos0/env/v11 v11.4.2 // indirect
	github.com/erofs/go-erofs v0.3.1 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-containerregistry v0.22.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	golang.org/x/sys v0.50.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // indirect
)
