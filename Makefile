# Everything a person or a machine does with this checkout. A bare checkout needs python3 (3.11 or
# newer) and make; each target first builds what it needs in .venv, once, and again only when
# pyproject.toml, constraints.txt or the version changes. PYTHON=... chooses another interpreter,
# and ARGS=... is handed to pytest and to the benchmark.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test soak test-peers test-console check bench docs picture fmt clean

help:  ## show this list
	@echo "dragoman: make <target>"
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1	\2/p' $(MAKEFILE_LIST)

demo: $(READY)  ## ask an agent in a child process a question about this repository
	@$(BIN)/python -m dragoman run scout "where is Connection defined?"

test: $(READY)  ## run the tests; wire/ must be covered whole
	@sh scripts/run-tests.sh $(BIN) $(ARGS)

# Every property test with its long profile, 100,000 shell lines against real shells, and commands
# that read a gigabyte.
soak: $(READY)  ## run the property tests and the fuzzing for a night
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest tests/property tests/faults/test_policy_shells.py \
	  tests/integration/test_cli_memory.py \
	  -o timeout=0 --numprocesses=auto --dist=loadfile $(ARGS)

# import-linter keeps what it read of a file until that file changes, but what an import leads to
# changes with other files too: hence no cache.
check: $(READY)  ## formatting, lint, types, import contracts, plain English
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make fmt"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python scripts/check_english.py

# Real agent programs and the TypeScript SDK, from npm, in a cache outside the checkout.
test-peers: $(READY)  ## run the tests against real agent programs; needs npm
	@$(BIN)/python scripts/peers/install.py
	@$(BIN)/python -m pytest tests/peers $(ARGS)

# Playwright drives a Chromium of the system, and brings none of its own.
test-console: $(READY)  ## run the tests of the web console in a browser; needs Chromium
	@sh scripts/install-chromium.sh
	@$(PIP) --constraint constraints.txt --group console
	@$(BIN)/python -m pytest tests/console $(ARGS)

bench: $(READY)  ## measure the speed against the official SDK, a bare loop and acpx
	@$(BIN)/python -m bench $(ARGS)
	@$(BIN)/python -m bench.cli $(filter --quick,$(ARGS))
	@$(BIN)/python -m bench.warm $(filter --quick,$(ARGS))

docs: $(READY)  ## build the documentation site in build/docs; needs no network
	@$(BIN)/python scripts/build_docs.py

# To another place first: a script that fails leaves the old picture.
picture: $(READY)  ## draw the pictures of the documents again
	@mkdir -p build && $(BIN)/python scripts/render_run.py > build/run.svg
	@mv build/run.svg docs/images/run.svg
	@$(BIN)/python scripts/draw_states.py > build/broker-states.svg
	@mv build/broker-states.svg docs/images/broker-states.svg
	@$(BIN)/python scripts/draw_speed.py > build/speed.svg
	@mv build/speed.svg docs/images/speed.svg

fmt: $(READY)  ## format the code and sort the imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format .

clean:  ## remove .venv and every cache
	rm -rf $(VENV) .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache .coverage .coverage.* htmlcov build dist
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt src/dragoman/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "dragoman needs Python 3.11 or newer, and '$(PYTHON)' is not:" \
	       "$$($(PYTHON) --version 2>&1 || true)" >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once; about half a minute) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --constraint constraints.txt pip
	@$(PIP) --constraint constraints.txt --build-constraint constraints.txt --group dev --editable .
	@touch $@
