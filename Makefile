# What can be done here; "make" alone prints it. Long recipes are in scripts/.

export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help
.PHONY: help run build deps test test-fast chaos fuzz bench lint generate notices clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: deps build ## run the sample repository's checks in a real sandbox (root, Linux)
	@scripts/run.sh

build: ## compile the binaries into bin/
	@scripts/build.sh

deps: ## install the Debian packages that are missing (root, Debian or Ubuntu)
	@scripts/deps.sh

test: deps build ## run everything that must hold, on real sandboxes (root, Linux)
	@scripts/test.sh

test-fast: ## run what needs neither root nor services, in under a minute
	@scripts/test-fast.sh

chaos: build ## kill everything, and write the tables in docs/benchmarks (root, Linux)
	@scripts/chaos.sh

fuzz: ## run every fuzz target for FUZZTIME (10s) each
	@scripts/fuzz.sh

bench: build ## run the benchmarks
	@scripts/bench.sh

lint: ## run golangci-lint, built from source at a pinned version
	@scripts/lint.sh

generate: ## write generated code and documents again
	@scripts/go.sh generate ./...

notices: ## write THIRD_PARTY_NOTICES.md again
	@scripts/go.sh run ./tools/notices

clean: ## delete what the other targets have built
	rm -rf bin dist build-output-dir
