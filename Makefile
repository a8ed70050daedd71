# `make` lists the targets. What they build or leave behind is under .dev/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: help build run test unit check integration bench fuzz deps clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

build: ## the programs, into bin/
	go build -o bin/ ./examples/...

run: ## a node on a containerd of its own, with demo pods; RUNTIME=fake needs no root and no Linux
ifneq ($(RUNTIME),fake)
	@hack/install.sh runtime
endif
	@cd test && PATH=$$PATH:/usr/sbin:/sbin go build -o ../.dev/bin/devnode ./cmd/devnode
	@PATH=$$PATH:/usr/sbin:/sbin exec .dev/bin/devnode $(if $(RUNTIME),--runtime=$(RUNTIME))

test: check unit integration ## everything that CI runs

unit: ## unit tests and house tests with the race detector
	@hack/install.sh compiler
	go test -race ./...

check: ## format, vet, static analysis, the shape of the house, deps.txt
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l); \
	  if [ -n "$$out" ]; then echo "not gofmt'ed:"; echo "$$out"; exit 1; fi
	go vet ./...
	GOOS=darwin go vet ./...
	go run $(STATICCHECK) ./...
	cd test && go vet ./... && GOOS=darwin go vet ./...
	cd test && go run $(STATICCHECK) ./...
	go test ./house/...

integration: ## tests on a real containerd; needs Linux and root
	@hack/integration.sh

bench: ## benchmarks of all rooms, then a node on a real containerd; BENCH=-quick for a short one
	@hack/bench.sh $(BENCH)

fuzz: ## every fuzz target for FUZZTIME (default 10s)
	@hack/fuzz.sh

deps: ## write deps.txt of every room
	go generate ./house

clean: ## remove what runs left, then .dev/ and bin/
	@if [ "$$(uname -s)" = Linux ] && [ -d .dev ]; then cd test && go run ./cmd/devnode --down; fi
	rm -rf .dev bin
