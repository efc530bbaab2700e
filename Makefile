# Everything here needs only Go. Tests that need a real server start their own:
# the redis-server on the PATH, or the Redis or Valkey that REDIS_SERVER names.
# Without one they are skipped; with REQUIRE_REDIS=1 a skip is a failure.

GOLANGCI_LINT_VERSION = v2.15.0
FUZZTIME  ?= 30s
BENCHTIME ?= 0.5s
COUNT     ?= 5
BENCH     ?= .
KEYS      ?= 10000000

GOREDIS   ?=
SERVER     = $(or $(REDIS_SERVER),redis-server)

GOLANGCI_LINT = bin/golangci-lint-$(GOLANGCI_LINT_VERSION)

.PHONY: help
help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: check
check: ## The quick lane: format, vet, and the short tests without servers or race detector (two minutes, only Go).
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	REDIS_SERVER=none go test -short ./...

.PHONY: demo
demo: ## Start the example server without Redis, send it real requests, show what happens.
	go run -C tools ./demo

RESULT ?=
.PHONY: lab
lab: ## Open a page on which limits are tried; RESULT=result.json shows a replay, ADDR=host:port.
	go run ./cmd/ratelimit lab -open $(if $(ADDR),-addr $(ADDR)) $(if $(RESULT),-result $(RESULT))

# The race detector needs cgo, so a C compiler.
RACE = $(shell go build -race runtime/cgo 2>/dev/null && echo -race)
.PHONY: test
test: ## Run all tests, with the race detector where there is a C compiler.
	@$(SERVER) --version 2>/dev/null || echo "no $(SERVER): tests that need a real server are skipped"
	@command -v prometheus >/dev/null || echo "no prometheus on the PATH: tests of the alerts and the dashboard are skipped"
	@test -n "$(RACE)" || echo "no C compiler: tests run without the race detector"
	go test $(RACE) ./...
	cd tools && go test $(RACE) ./...
	cd examples/tracing && go test $(RACE) ./...
	cd testdata/programs && go test ./...
	cd testdata/recipes && go test ./...

RUN ?= .
.PHONY: test-browser
test-browser: ## Test the lab's and the operators' pages in a real Chromium (RUN=TestSmoke); save pictures in bin/screenshots.
	@mkdir -p bin/screenshots
	cd cmd/ratelimit/internal/lab/browser && REQUIRE_CHROMIUM=1 SCREENSHOTS=$(CURDIR)/bin/screenshots go test -count 1 -timeout 20m -run '$(RUN)' ./...

.PHONY: test-redis
test-redis: ## Run what depends on the server and go-redis: REDIS_SERVER=path, GOREDIS=v9.23.0.
	@$(SERVER) --version
	@mkdir -p bin && cp go.mod bin/redis.mod && cp go.sum bin/redis.sum
	@test -z "$(GOREDIS)" || go get -modfile=bin/redis.mod github.com/redis/go-redis/v9@$(GOREDIS)
	@go list -modfile=bin/redis.mod -m github.com/redis/go-redis/v9
	REQUIRE_REDIS=1 go test -modfile=bin/redis.mod -count 1 ./internal/redistest ./algorithms/... ./failmode ./internal/outages

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check format, vet (also for 32 bits, macOS and Windows), golangci-lint, go fix and go mod tidy.
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	GOARCH=386 go vet ./...
	GOOS=darwin go vet ./...
	GOOS=windows go vet ./...
	cd benchmarks && go vet ./...
	cd tools && go vet ./...
	cd examples/tracing && go vet ./...
	cd testdata/programs && go vet ./...
	cd testdata/recipes && go vet ./...
	cd cmd/ratelimit/internal/lab/browser && go vet ./...
	$(GOLANGCI_LINT) run ./...
	cd tools && $(CURDIR)/$(GOLANGCI_LINT) run ./...
	cd examples/tracing && $(CURDIR)/$(GOLANGCI_LINT) run ./...
	cd cmd/ratelimit/internal/lab/browser && $(CURDIR)/$(GOLANGCI_LINT) run ./...
	@fixes=$$(go fix -diff ./... && (cd benchmarks && go fix -diff ./...) && (cd tools && go fix -diff ./...) && (cd testdata/recipes && go fix -diff ./...) && (cd examples/tracing && go fix -diff ./...) && cd cmd/ratelimit/internal/lab/browser && go fix -diff ./...) && test -z "$$fixes" || { echo "go fix would change:"; echo "$$fixes"; exit 1; }
	go mod tidy -diff
	cd benchmarks && go mod tidy -diff
	cd tools && go mod tidy -diff
	cd examples/tracing && go mod tidy -diff
	cd testdata/recipes && go mod tidy -diff
	cd cmd/ratelimit/internal/lab/browser && go mod tidy -diff

$(GOLANGCI_LINT):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv bin/golangci-lint $@

.PHONY: bench
bench: ## Measure everything once, briefly, and print it (two minutes; BENCH=Redis: only that).
	@mkdir -p bin
	cd benchmarks && go test -short -run '^$$' -bench '$(BENCH)' -benchtime 0.1s -timeout 15m . | tee ../bin/bench.txt
	cd benchmarks && go run ./report < ../bin/bench.txt

.PHONY: bench-peers
bench-peers: ## Measure COUNT rounds (5) beside other limiters; write benchmarks/results/peers.md and docs/performance.md (15 to 25 minutes).
	@mkdir -p bin
	cd benchmarks && go test -c -o ../bin/bench.test .
	@: > bin/bench-peers.txt
	cd benchmarks && for round in $$(seq $(COUNT)); do \
		../bin/bench.test -test.run '^$$' -test.bench . -test.benchtime $(BENCHTIME) -test.timeout 15m 2>&1 | tee -a ../bin/bench-peers.txt; \
	done
	cd benchmarks && go run ./report -of peers -rounds 5 -write .. < ../bin/bench-peers.txt

.PHONY: bench-keys
bench-keys: ## Measure KEYS keys (10 million) in one Redis, and what a decision costs it; write benchmarks/results/keys.md and docs/performance.md (about 10 minutes, 4 GiB).
	@mkdir -p bin
	cd benchmarks && KEYS=$(KEYS) go test -run '^$$' -bench 'Keys|Capacity|Script' -benchtime $(BENCHTIME) -count $(COUNT) -timeout 40m . 2>&1 | tee ../bin/bench-keys.txt
	cd benchmarks && go run ./report -of keys -write .. < ../bin/bench-keys.txt

.PHONY: bench-gate
bench-gate: ## Fail if requests have become slower beside a floor measured in the same run, or if the gate misses a slow limiter (a minute).
	cd benchmarks && go test ./... -count 1 -timeout 5m && go test -run Gate -count 1 -v -timeout 10m . -args -gate

.PHONY: accuracy
accuracy: ## Compare each algorithm with an exact log; write docs/algorithms.md's tables and pictures.
	go test -C tools ./accuracy -count 1 -v -update

.PHONY: burst
burst: ## Draw README.md's picture from decisions in fake time: docs/burst.svg.
	go test -C tools ./burst -count 1 -update

.PHONY: outages
outages: ## Take Redis away in every way known, under load; write docs/testing.md's table (three minutes).
	OUTAGES=all go test ./internal/outages -count 1 -v -timeout 15m -update
	OUTAGES=all go test ./algorithms -run TestAFloodHarmsNobody -count 1 -v
	@sed -n '/<!-- outages -->/,/<!-- \/ -->/p' docs/testing.md

.PHONY: release
release: ## Check that VERSION (v0.1.0) can be released, and print what to type.
	@.ci/release '$(VERSION)'

.PHONY: mutate
mutate: ## Change the steps one comparison at a time; list changes that no test notices (hours; ONLY=fixed_window or SAMPLE=9: ten minutes).
	go run -C tools ./mutate -only '$(ONLY)' -sample '$(or $(SAMPLE),1)'

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s).
	@for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

.PHONY: cover
cover: ## Show the coverage of each package, and write cover.html.
	go test -coverprofile cover.out -coverpkg ./algorithms/...,./keyfunc,./headers,./failmode,./middleware/... ./...
	go tool cover -html cover.out -o cover.html
	@go tool cover -func cover.out | tail -1
