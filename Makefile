# Two commands for a newcomer: `make demo` and `make test`. The rest is for people who work on the code.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-long check check-types check-words help-pages
.DEFAULT_GOAL := help

help:
	@echo "make demo   create .venv, train the demo recipe, write its report (2 cores, about 5 minutes, environment and all)"
	@echo "make test   create .venv, run the whole test suite"

demo: .venv/.demo
	$(BIN)/podwright run qwen3-tiny-arithmetic-grpo --on local

test: .venv/.test
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long" --durations=25

test-long: .venv/.test
	$(BIN)/python -m pytest -m long

check: check-types check-words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: .venv/.test
	$(BIN)/mypy

check-words: .venv/.test
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_docs.py

help-pages: .venv/.test
	$(BIN)/python docs/help.py --all

.venv/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 is older than 3.11; type: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.demo: .venv/.venv pyproject.toml constraints.txt
	$(INSTALL) -e '.[jax]'
	@touch $@

.venv/.test: .venv/.demo
	$(INSTALL) --no-compile -e '.[dev]' # Python compiles a module when it is first imported
	@touch $@
