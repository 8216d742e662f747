# `make` lists what there is. Go is all that is needed.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules --warn-undefined-variables
.DELETE_ON_ERROR:

export GOTOOLCHAIN := local
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
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

.PHONY: build
build: ## build bin/coordinator
	go build -trimpath -ldflags "-X main.released=$(VERSION)" -o bin/coordinator ./cmd/coordinator

.PHONY: run
run: build ## start the demo: a coordinator and a simulated cluster on loopback
	@exec bin/coordinator demo

.PHONY: test
test: needs lint ## everything: gofmt, vet, staticcheck, all tests under the race detector, then those that must run without
	@if ! command -v chromium >/dev/null; then \
	  echo "!!! LEFT OUT: the operators' page in a browser. It needs chromium (Debian: apt-get install chromium)."; \
	fi
	@if command -v gcc >/dev/null || command -v clang >/dev/null; then \
	  go test -race -timeout 20m ./...; \
	else \
	  echo "!!! LEFT OUT: the race detector. It needs a C compiler (Debian: apt-get install gcc libc6-dev)."; \
	  go test -timeout 20m ./...; \
	fi
	go test -count=1 $(NO_RACE)

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
# says what is missing and leaves out what needs it.
.PHONY: needs
needs:
	@missing=; \
	if ! command -v gcc >/dev/null && ! command -v clang >/dev/null; then missing="gcc libc6-dev"; fi; \
	if ! command -v chromium >/dev/null; then missing="$$missing chromium"; fi; \
	if [ "$(CI)" = true ] && [ -n "$$missing" ]; then \
	  apt-get update -q && apt-get install -y -q --no-install-recommends $$missing; \
	fi

.PHONY: page
page: ## the operators' page in a headless Chromium, which must be installed
	go test -race -count=1 -v -timeout 300s -run '^TestPage$$' ./cmd/assembly

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZ_TIME (default 60s)
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZ_TIME) $$pkg; \
	  done; \
	done

.PHONY: chaos
chaos: ## clients of all kinds under waves of every fault there is, for CHAOS_TIME (default 10m), under the race detector
	CHAOS_TIME=$(CHAOS_TIME) go test -race -count=1 -v -run '^TestChaos$$' -timeout 15m ./cmd/assembly

.PHONY: bench
bench: ## benchmarks beside the code
	go test -run '^$$' -bench . -benchmem ./actors/... ./transport/...

.PHONY: overhead
overhead: build ## what a coordinator costs beside a floor, as in docs/performance.md: 3 minutes (OVERHEAD=-quick: one)
	go build -trimpath -o bin/floor ./loadtest/floor
	go build -trimpath -o bin/loadtest ./loadtest/run
	bin/loadtest overhead -coordinator bin/coordinator -floor bin/floor $(OVERHEAD)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
