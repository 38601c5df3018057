# Two commands for a newcomer: `make demo` and `make test`. The rest is for people who work on the code.
PYTHON ?= python3
VENV ?= .venv
EXTRA ?= jax
GPU ?= one
BIN := $(VENV)/bin

.PHONY: demo test test-long gpu-check mutants check check-types check-words help-pages environment demo-environment
.DEFAULT_GOAL := help

help:
	@echo "make demo   create .venv, train the demo recipe, write its report (2 quiet cores, about 3 minutes)"
	@echo "make test   create .venv, run the tests that a change can break (2 cores, about 15 minutes)"
	@echo "make test-long [PART=2/8] [TIMES=2]   run the others, part by part; a second call goes on where the first ended"
	@echo "make gpu-check   check and measure one GPU with the Python that is active (8 minutes, no network; GPU=none: on the CPU)"
	@echo "make check   ruff, mypy, the rules of the house and of the documentation"
	@echo "make mutants   score the tests: small wrong changes that they should notice (20 minutes a call)"

demo: demo-environment
	$(BIN)/podwright run qwen3-tiny-arithmetic-grpo --on local

test: environment
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long" --durations=25

test-long: environment
	$(BIN)/python -m tests.tiers long $(if $(PART),--part $(PART)) $(if $(TIMES),--times $(TIMES))

# Installs nothing: a machine with a GPU has an environment of its own, and may have no network.
gpu-check:
	PYTHONPATH=bench:. $(PYTHON) -m gpu_check --gpu $(GPU) $(if $(WHEELS),--wheels $(WHEELS)) $(if $(COMMIT),--commit $(COMMIT)) $(if $(OUT),--out $(OUT))

mutants: environment
	$(BIN)/python -m tests.mutation

check: check-types check-words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: environment
	$(BIN)/mypy

check-words: environment
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_docs.py

help-pages: environment
	$(BIN)/python docs/help.py --all

environment:
	@$(PYTHON) environment.py $(VENV) dev

demo-environment:
	@$(PYTHON) environment.py $(VENV) $(EXTRA)
