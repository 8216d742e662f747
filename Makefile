# `make` lists what there is. Go is all that is needed.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --warn-undefined-variables
.DELETE_ON_ERROR:

export GOTOOLCHAIN := local
export PATH        := $(PATH):/usr/sbin
CI      ?=
VERSION ?=

STATICCHECK := go tool -modfile=tools/go.mod staticcheck
# Allocations are counted without the race detector, which allocates itself; the
# 100,000 bodies of the fidelity test have no goroutines to watch.
NO_RACE     := -run 'Allocations|EveryLegIsTheClientsBody' ./actors/... ./cmd/assembly/... ./transport/media/... ./transport/kwargs/... ./transport/wire/...
FUZZ_TIME   ?= 60s
CHAOS_TIME  ?= 10m
OVERHEAD    ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

.PHONY: build
build: ## build bin/coordinator
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.released=$(VERSION)" -o bin/coordinator ./cmd/coordinator

.PHONY: run
run: build ## start the demo: a coordinator and a simulated cluster on loopback
	@exec bin/coordinator demo

.PHONY: test
test: needs lint ## everything: gofmt, vet, staticcheck, all tests under the race detector, those that must run without, and the modules beside this one
	@for program in $(PROGRAMS); do command -v $$program >/dev/null || \
	  echo "!!! LEFT OUT: what needs $$program (Debian: apt-get install $$program)."; done
	@if [ -z "$(RACE)" ]; then echo "!!! LEFT OUT: the race detector. It needs a C compiler (Debian: apt-get install gcc libc6-dev)."; fi
	go test $(RACE) -timeout 40m ./...
	go test -count=1 $(NO_RACE)
	@$(MAKE) --no-print-directory k6 deploy-check release-check

# What tests run beside Go; what is missing is left out.
PROGRAMS := chromium curl haproxy nginx npm redis-server systemd-analyze
RACE      = $(shell if command -v gcc >/dev/null || command -v clang >/dev/null; then echo -race; fi)

.PHONY: quick
quick: ## vet and all tests but the long ones, without the race detector: under 3 minutes
	go vet ./...
	go test -short ./...

.PHONY: lint
lint: ## gofmt, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...

# System packages are installed in CI and nowhere else; elsewhere `make test`
# says what is missing and leaves out what needs it. The servers among them are
# not to start by themselves: tests start their own.
.PHONY: needs
needs:
	@missing=; \
	if ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then missing="gcc libc6-dev"; fi; \
	for program in $(PROGRAMS); do \
	  command -v $$program >/dev/null || missing="$$missing $$(echo $$program | sed 's/-analyze//')"; \
	done; \
	if [ "$(CI)" = true ] && [ -n "$$missing" ]; then \
	  apt-get update -q && RUNLEVEL=1 apt-get install -y -q --no-install-recommends $$missing; \
	fi

.PHONY: k6
k6: ## the k6 scripts: their types (needs npm), and each one run in the engine that k6 embeds, against a demo
	@if command -v npm >/dev/null; then cd loadtest/k6 && npm ci --no-audit --no-fund && npx tsc -p .; fi
	go -C loadtest/k6/enginetest vet ./...
	go -C loadtest/k6/enginetest test $(RACE) -count=1 -timeout 10m ./...

.PHONY: deploy-check
deploy-check: ## manifests, Envoy's configuration, the systemd unit and the image's contents, checked offline
	go -C deploy/check vet ./...
	go -C deploy/check test -count=1 -timeout 20m ./...

.PHONY: e2e
e2e: ## whole ways through real HAProxy and nginx, which must be installed
	go test $(RACE) -count=1 -v -timeout 10m ./e2e

.PHONY: waiters
waiters: ## what a client that waits for a queued request costs, beside a bare handler: 10,000 at once; needs redis-server
	ASYNC_WAITERS=10000 go test ./cmd/assembly -run 'TestAsyncWaiters$$' -count=1 -v

.PHONY: docs
docs: ## write docs/configuration.md from conf/coordinator.toml, and check the links of all pages
	go run ./cmd/docs

.PHONY: release
release: ## static binaries, bills of materials and checksums in dist: make release VERSION=v0.1.0
	@case "$(VERSION)" in v?*) ;; *) echo "make release takes a version: make release VERSION=v1.2.3"; exit 1;; esac
	rm -rf dist
	go -C tools/release run . -version "$(VERSION)"

.PHONY: release-check
release-check:
	go -C tools/release vet ./...
	go -C tools/release test -count=1 -timeout 20m ./...

.PHONY: page
page: ## the operators' page in a headless Chromium, which must be installed
	go test -race -count=1 -v -timeout 300s -run '^TestPage$$' ./cmd/assembly

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_TIME (default 60s)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 10x $$pkg; \
	  done; \
	done

.PHONY: chaos
chaos: ## clients of all kinds under waves of every fault there is, for CHAOS_TIME (default 10m), under the race detector
	CHAOS_TIME=$(CHAOS_TIME) go test -race -count=1 -v -run '^TestChaos$$' -timeout 15m ./cmd/assembly

.PHONY: bench
bench: ## benchmarks beside the code
	go test -run '^$$' -bench . -benchmem ./actors/... ./transport/...

.PHONY: overhead
overhead: build ## what a coordinator costs beside a floor, as in docs/performance.md: 4 minutes (OVERHEAD=-quick: one)
	go build -trimpath -o bin/floor ./loadtest/floor
	go build -trimpath -o bin/loadtest ./loadtest/run
	bin/loadtest overhead -coordinator bin/coordinator -floor bin/floor $(OVERHEAD)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
