# Every target sets up what it needs; `make help` lists them.
# Variables: PYTHON, the interpreter that .venv is built from; ARGS, passed on to the command.

PYTHON ?= python3
ARGS ?=
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench chaos proto

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup:  ## build .venv; seconds when it is up to date
	@$(PYTHON) tools/setup_env.py

demo: examples/demo.py setup  ## start the service and decode with it
	@$(VENV)/python $< $(ARGS)

test: setup  ## run the tests; ARGS="-m 'not slow'" for the quick ones
	@$(VENV)/python -m pytest --numprocesses=auto --maxprocesses=8 $(ARGS)

lint: setup  ## check style, types and the wire contract
	@$(VENV)/ruff check
	@$(VENV)/ruff format --check
	@$(VENV)/mypy
	@$(VENV)/buf lint
	@$(VENV)/buf breaking --against protos/baseline.binpb

proto: setup  ## generate the stubs again after a change to protos/
	@$(VENV)/python protos/generate.py

bench: benchmarks/run.py setup  ## measure against the peers and the memory floor
	@$(VENV)/python $< $(ARGS)

chaos: tests/chaos/run.py setup  ## the long fault tests
	@$(VENV)/python $< $(ARGS)
