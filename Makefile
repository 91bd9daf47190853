# Every target does its own set-up; python3 (3.11 to 3.13) is all that must be there. `make` alone lists the targets.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
export PYTHON

PACKAGES := actors adapters gym_bus projections providers schemas tools
BIN := .venv/bin
MODEL ?= scripted
CONFIG_scripted := examples/quickstart.yaml
CONFIG_local := examples/local.yaml
RUN = $(BIN)/gym-bus eval run --config $(or $(CONFIG_$(MODEL)),$(error MODEL is scripted or local))
PYTEST := $(BIN)/python -m pytest
# Most of a test's time is waiting.
JOBS ?= $(shell expr 2 '*' $$(nproc))
# Pyright and its Node come as pinned wheels; neither looks for a newer one.
PYRIGHT := PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

.DEFAULT_GOAL := help
.PHONY: run test harness harness-check check lint bench kill-all format lock clean help base dev local bwrap docker

run: base bwrap $(filter local,$(MODEL)) ## run the main job: agents on 75 small tasks, with the built-in stand-in for a model (MODEL=local: a real small one)
	$(RUN)

test: dev local bwrap docker ## run the tests, but the slow, the kill-all and the larger agents (JOBS=6: so many at once; GYM_BUS_TEST_ALL_HITS=1: finer sweeps of kills)
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not slow and not kill_all and not harness and not alone"
	$(PYTEST) -m "alone and not slow and not kill_all and not harness"

check: lint ## all that CI asks: format, lint, types, import direction, dead code, then the tests
	$(MAKE) --no-print-directory test

lint: dev ## the checks without the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYRIGHT)
	$(PYTEST) -q tests/test_tidy.py
	$(BIN)/python scripts/dead_code.py

harness: dev bwrap docker ## run the agents that are too large for `make test`: they are installed first
	$(PYTEST) -m harness tests/e2e

harness-check: dev bwrap ## run each agent's own program once, and write down how it did (ARGS=name: those alone)
	$(BIN)/python -m tests.harness_check $(ARGS)

bench: dev bwrap docker ## measure; prints a table
	$(BIN)/python -m tests.bench

kill-all: dev bwrap ## kill every process of a run, the bus included, again and again; nothing may be lost
	$(PYTEST) -m kill_all tests/e2e

format: dev ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: dev ## pin requirements/ anew (ARGS=--upgrade: to the newest releases)
	$(BIN)/python -m pip install -qq --disable-pip-version-check uv
	UV=$(BIN)/uv scripts/lock $(ARGS)

clean: ## remove what was made here, results/ and .gym-bus/ excepted
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(PACKAGES) tests -name __pycache__ -prune -exec rm -rf {} +

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

base dev local bwrap docker:
	@scripts/setup $@
