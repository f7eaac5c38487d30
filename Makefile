# Every target does its own set-up in .venv; a second run starts in seconds. `make help` lists them.

.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(shell cat requirements-test.lock pyproject.toml | cksum | tr ' ' '-')
READY := $(VENV)/.ready-$(LOCKED)
STATE ?= .state/demo
TEST_WORKERS ?= 3
E2E_WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations 40 --durations-min 2 \
	-m "not soak"
PRODUCT := matrixcommon matrixresource matrixlink matrixcompute matrixcontainer infer_workload services
UNIT_TESTS := $(addprefix tests/,$(PRODUCT))

# So that neither a caller's environment nor an index of bytecode elsewhere changes what runs.
export PYTHONDONTWRITEBYTECODE :=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo demo-autoscale demo-compose unit test stories simulation e2e compose chart types wheels compiled bench soak lint regenerate clean setup realkube conformance

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## failover: apply, serve, lose a node, a cabinet and a switch, heal, cut cables, scale, delete; KEEP=1 lets it run on
	$(BIN)/matrixctl demo --state $(STATE) $(if $(KEEP),--keep)

demo-autoscale: $(READY) ## autoscaling: load triples and falls, nodes follow it, drained before they leave, no request lost
	$(BIN)/matrixctl demo autoscale --state $(STATE)-autoscale $(if $(KEEP),--keep)

demo-compose: $(READY) ## both stories on containers and PostgreSQL, or STORY=failover|autoscale (needs Docker and Compose)
	$(BIN)/python -m services.matrixctl.demo.compose $(STORY)

unit: $(READY) ## the tests of each package alone
	$(PYTEST) $(UNIT_TESTS)

test: $(READY) ## the quick gate: each package alone, the embedded Kubernetes API, the chart, upkeep
	$(PYTEST) --ignore tests/e2e --ignore tests/simulation --ignore tests/stories tests

stories: $(READY) ## the whole stack in one process and in virtual time
	$(PYTEST) tests/stories

simulation: $(READY) ## 200 seeds of the whole stack, requests, crashes, mishaps at each step of each workflow; soak has the long ones
	$(PYTEST) tests/simulation

e2e: TEST_WORKERS := $(E2E_WORKERS)
e2e: $(READY) ## end to end: processes, kubectl, PostgreSQL, as far as they are here
	$(PYTEST) --ignore tests/e2e/test_compose.py --ignore tests/e2e/compose tests/e2e

compose: $(READY) ## docker-compose on a container engine
	$(BIN)/python -m pytest -m "not soak" tests/e2e/test_compose.py tests/e2e/compose

realkube: $(READY) ## a real Kubernetes control plane on loopback until Ctrl-C (needs Go; minutes to build, once)
	$(BIN)/python -m tests.e2e.realkube

conformance: $(READY) ## one behaviour suite on the embedded API and on a real one, compared (needs Go and etcd)
	@$(BIN)/python -m tests.e2e.realkube.build && exec $(BIN)/python -m pytest -q --servers both tests/conformance; \
	found=$$?; [ $$found = 3 ] || exit $$found; \
	echo "NOT COMPARED: a real control plane cannot be had here (see above); the embedded API was tested alone by make test"

chart: $(READY) ## the Helm chart: lint, golden files, access rights, installation (builds Helm once, given Go)
	$(BIN)/python -m tests.charts.helm.build || test $$? = 3
	$(PYTEST) tests/charts

types: $(READY) ## the types of the console's modules, by TypeScript's compiler (installs it, once)
	$(BIN)/python -m tests.services.console.typescript

wheels: $(READY) ## the locked packages as wheels in build/wheels, for image builds without an index
	$(BIN)/python -m pip download --quiet --only-binary :all: --require-hashes -r requirements.lock -d build/wheels

compiled: $(READY) ## the allocator as machine code in the user's cache: a minute or two, once (needs a C compiler)
	$(BIN)/python -m matrixresource.native_allocator

bench: $(READY) ## every published figure, each with its method and goal
	$(BIN)/python -m matrixresource.native_allocator || test $$? = 3
	$(BIN)/python -m benchmarks

soak: $(READY) ## long seeds and scale
	$(BIN)/python -m pytest -m soak --timeout 3600 tests

lint: $(READY) ## style, types, import map, and that generated texts are up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.upkeep.regenerate --check
	$(BIN)/python -m tests.services.console.typescript || test $$? = 3

regenerate: $(READY) ## rewrite every text that is printed from code
	$(BIN)/python -m tests.upkeep.regenerate

clean: ## remove what these targets made; running stacks are stopped first
	@for state in .state/*/; do \
		[ ! -x $(BIN)/matrixctl ] || [ ! -d "$$state" ] || $(BIN)/matrixctl down --state "$$state"; done
	rm -rf $(VENV) .state .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(READY) ## only the set-up

$(READY): requirements-test.lock pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "Python 3.11 or newer is needed; the python3 found here is: $$(python3 --version 2>&1)."; \
		echo "Install one, or say where it is: make PYTHON=/path/to/python3.12 ..."; exit 1; fi
	@echo "setting up $(VENV) with $$($(PYTHON) --version), once"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements-test.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@# As an installed wheel has it: where the environment forbids Python to write bytecode, each start would compile anew.
	@$(BIN)/python -m compileall -q $(PRODUCT)
	@rm -f $(VENV)/.ready-* && touch $(READY)
