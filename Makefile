# The commands that a person types. `make` or `make help` lists them.
# Everything that CI runs is a target here; .ci/run calls `make ci`.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO      ?= go
PREFIX  ?= /usr/local
DESTDIR ?=
TIME    ?= 30s
COUNT   ?= 10
KERNEL  ?=
BASE    ?=
SUITE   ?= critest
RUNTIME ?= ibex
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
VERSION_FLAGS = -X github.com/ibex-run/ibex/shim.Version=$(VERSION) \
	-X github.com/ibex-run/ibex/shim.Revision=$(COMMIT) -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# sudo forgets where Go is.
export PATH := $(PATH):/usr/local/go/bin
# What ships is static and has no cgo in it.
export CGO_ENABLED = 0

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the shim (and every other command) into bin/
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '-s -w $(VERSION_FLAGS)' -o bin/ ./cmd/...

.PHONY: install
install: build ## install to DESTDIR and PREFIX (/usr/local): containerd finds the shim there
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 bin/* $(DESTDIR)$(PREFIX)/bin/

.PHONY: demo
demo: ## one container's life in a private containerd (root; builds containerd if there is none)
	@tests/apt.sh ca-certificates busybox-static
	@echo "demo: building ibex, up to 2 minutes the first time"
	@$(MAKE) --no-print-directory build
	@tests/demo/demo.sh

##@ Test (all as root; each installs and builds what it needs)

.PHONY: test
test: ## everything: lint, builds, unit and integration tests
	@tests/run.sh lint builds unit integration

.PHONY: test-unit
test-unit: ## the tests beside the code, and the import rules
	@tests/run.sh unit

.PHONY: test-integration
test-integration: ## the shim in a real containerd
	@tests/run.sh integration

.PHONY: test-vm
test-vm: ## the tests in virtual machines with other kernels (KERNEL=name for one of tests/vm/matrix.txt)
	@tests/run.sh prepare
	@tests/vm/run.sh $(if $(KERNEL),RUN='$(KERNEL)')

.PHONY: conformance
conformance: ## an outside suite, against the incumbent's results (SUITE=critest, client, cri; RUNTIME=ibex, runc)
	@tests/run.sh prepare
	@tests/conformance/run.sh $(SUITE) $(RUNTIME)

.PHONY: lint
lint: ## go vet, golangci-lint, shell syntax
	@tests/run.sh lint

.PHONY: fuzz
fuzz: ## every fuzz target for TIME (30s)
	@tests/fuzz.sh $(TIME)

.PHONY: bench
bench: ## ibex beside containerd-shim-runc-v2 and runc, in turn on one containerd (see docs/performance.md)
	@tests/run.sh prepare
	@tests/tools/build.sh containerd ctr containerd-shim-runc-v2 runc
	$(GO) run ./tests/bench

.PHONY: bench-micro
bench-micro: ## the benchmarks beside the code, COUNT (10) times; BASE=FILE compares with an older out/micro.txt
	@tests/tools/build.sh benchstat
	@mkdir -p out
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) $$($(GO) list ./... | grep -v /tests/) | tee out/micro.txt
	@"$$(tests/tools/build.sh --bin)/benchstat" $(BASE) out/micro.txt

.PHONY: ci
ci: test test-critest ## what CI runs

##@ Work

.PHONY: fmt
fmt: ## format the Go code
	@tests/tools/build.sh golangci-lint
	@"$$(tests/tools/build.sh --bin)/golangci-lint" fmt

.PHONY: tools
tools: ## build all pinned tools into ~/.cache/ibex (or IBEX_CACHE)
	@tests/tools/build.sh all

.PHONY: clean
clean: ## remove what was built here, and what crashed test runs left on this machine
	rm -rf bin out
	@$(GO) run ./tests/clean -v
	@$(GO) run ./tests/clean -v -prefix ibex-demo-

##@ Outside suites (as root; built on first use; results compared by name with those of runc's shim)

.PHONY: test-critest
test-critest: ## the CRI validation suite, in a containerd whose runtime is ibex: about 2 minutes
	@tests/conformance/run.sh critest ibex

.PHONY: test-client
test-client: ## containerd's client suite, with ibex by its name and in the place of runc's shim: about 4 minutes
	@tests/conformance/run.sh client ibex
	@tests/conformance/run.sh client dropin

.PHONY: test-cri
test-cri: ## containerd's CRI suite: about 6 minutes, not in CI
	@tests/conformance/run.sh cri ibex

.PHONY: bench-critest
bench-critest: ## critest's benchmarks, with ibex and with runc's shim
	@NET=bare tests/conformance/run.sh bench ibex
	@NET=bare tests/conformance/run.sh bench runc

.PHONY: test-oci
test-oci: ## the OCI runtime-tools validation programs, with ibex as the command line: about 2 minutes
	@tests/conformance/oci/run.sh ibex

.PHONY: test-bats
test-bats: ## runc's own command-line tests, with ibex in runc's place: about 6 minutes, not in CI
	@tests/conformance/bats/run.sh ibex
