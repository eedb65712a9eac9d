# The few commands people run. Everything they need is set up in .venv on first use.
PYTHON ?= python3
NODES ?= 3
DATA_DIR ?= ./raftline-data
SEEDS ?= 200
WORKERS ?= 2

BIN := .venv/bin
READY := .venv/.ready
VERSION := $(shell sed -nE 's/^appVersion: "(.*)"/\1/p' deploy/kubernetes/helm/raftline/Chart.yaml)
TESTDATA ?= ../shared/reference/raft-testdata

# Hundreds of processes start in a run of the tests: none of them compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv lock up down test test-full check format docs conformance sim chaos bench bench-peers \
	bench-scaling proto build docker-build clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

venv: $(READY) ## set up .venv with everything the other commands need

# Installed from hashes, so the same versions everywhere; uv for speed, pip where uv cannot
# reach the package index that this machine's pip is configured for.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Raftline needs Python 3.11 or newer as '$(PYTHON)' (found: $$($(PYTHON) --version 2>&1))."; \
		echo "Install it (python.org, your package manager) or name it: make venv PYTHON=/path/to/python3.11"; \
		exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { \
		echo "This Python cannot make virtual environments: install its venv package (Debian: python3-venv)."; \
		exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -q --disable-pip-version-check \
		$$(sed -nE 's/^(uv==[^ ;]+).*/\1/p' requirements.lock) || true
	@$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r requirements.lock || \
		$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: $(READY) ## write requirements.lock anew from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet --output-file requirements.lock

up: $(READY) ## start a local cluster (NODES=3) in ./raftline-data; Ctrl-C stops it
	@$(BIN)/raftline up --nodes $(NODES) --data-dir $(DATA_DIR) $(if $(PORT_BASE),--port-base $(PORT_BASE))

down: $(READY) ## stop the local cluster
	@$(BIN)/raftline down --data-dir $(DATA_DIR)

# Tests on Spark share one session, so they run after the others in a process of their own.
test: $(READY) ## run the test suite
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not full and not spark'
	$(BIN)/pytest -m 'spark and not full'

test-full: $(READY) ## run the test suite with the long tests
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not spark'
	$(BIN)/pytest -m spark

check: $(READY) ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache

format: $(READY) ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY) ## write the generated reference pages anew
	$(BIN)/pytest tests/tidy -q -p no:randomly --rewrite

conformance: $(READY) ## run the Raft dialogues: etcd's and our own
	$(BIN)/python tests/conformance/raft/run_dialogues.py $(TESTDATA) tests/conformance/raft/dialogues

sim: $(READY) ## simulate faults: SEEDS=200 runs, or one run again with SEED=7
	$(BIN)/python -m raftline.testing.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(RESUME),--resume $(RESUME))

chaos: $(READY) ## hurt a real cluster under load (SECONDS=60), then check the promises
	@$(BIN)/raftline chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

bench: $(READY) ## measure latency, rate, failover and idle cost
	$(BIN)/python -m bench.run

bench-peers: $(READY) ## the same load on Kafka, NATS, RabbitMQ, Redis … (QUICK=1, ONLY="raftline redis")
	$(BIN)/python -m bench.peers.run $(if $(QUICK),--quick --rounds 1,--report) $(if $(ONLY),--only $(ONLY))

bench-scaling: $(READY) ## how cost grows: sizes, partitions, groups … (QUICK=1, ONLY=sizes)
	$(BIN)/python -m bench.scaling.run $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

proto: $(READY) ## make the code of proto/ anew
	$(BIN)/python scripts/make_proto.py

build: $(READY) ## build the wheel and the source archive into dist/
	$(BIN)/uv build --no-build-isolation --python $(BIN)/python --out-dir dist

docker-build: ## build the image raftline:latest, with its version as well for Helm (needs Docker)
	@command -v docker >/dev/null || { echo "Docker is not installed; without it: pip install ."; exit 1; }
	docker build -f deploy/Dockerfile -t raftline:latest -t raftline:$(VERSION) .

clean: ## remove everything that was built or set up here (not your data)
	rm -rf .venv dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
