# Everything a reader needs, from a machine with Python 3.11, 3.12 or 3.13 and make.
# `make` alone lists the commands.

PYTHON ?= python3
PROFILE ?= full
VENV := .venv
BIN := $(VENV)/bin
# two cores run two files of tests; each numeric library then has one thread
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help venv train book style types test test-all lab bench clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

venv: $(VENV)/.installed ## create .venv with the pinned dependencies (the others call it)

train: $(VENV)/.installed-train ## add torch and the laptop corpus: to train models, test the trainer and run all chapters

book: venv ## execute the chapters and build _build/html/index.html (PROFILE=quick for small settings)
	@$(BIN)/python -m tools.book build --profile $(PROFILE)

style: venv ## check style and layers
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/lint-imports --no-logo

types: venv ## check the types of the package
	@$(BIN)/mypy

test: style ## check style and layers, and run all but the slow tests
	@$(PYTEST) -m "not slow"

test-all: style ## the same with the slow tests
	@$(PYTEST)

lab: $(VENV)/.installed-lab ## open the chapters in JupyterLab
	@$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/book

bench: venv ## measure the speed of the fits and, where torch is installed, of training
	@$(BIN)/python -m benchmarks fit
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then $(BIN)/python -m benchmarks train; \
	  else echo "Training is not measured: torch is not installed (looped[train])"; fi

clean: ## remove the built book, but not .venv
	rm -rf _build

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "looped needs Python 3.11, 3.12 or 3.13, and '$(PYTHON)' is none of them:" \
	       "name another, as in  make PYTHON=python3.12 book" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed: install Python's venv module" \
	       "(on Debian and Ubuntu the package python3-venv), then try again" >&2; exit 1; }
	@echo "Installing looped[book,test] with the versions of constraints.txt (about a minute)"
	@$(PIP) --editable '.[book,test]'
	@touch $@

$(VENV)/.installed-train: $(VENV)/.installed
	@echo "Installing looped[train,laptop,grid,tensorboard,eval] with the versions of constraints.txt"
	@$(PIP) --editable '.[train,laptop,grid,tensorboard,eval]'
	@touch $@

$(VENV)/.installed-lab: $(VENV)/.installed
	@echo "Installing looped[lab] with the versions of constraints.txt"
	@$(PIP) --editable '.[lab]'
	@echo "Setting JupyterLab of $(VENV) to open text notebooks as notebooks"
	@$(BIN)/jupytext-config --settings-file \
	  $(VENV)/etc/jupyter/labconfig/default_setting_overrides.json set-default-viewer markdown
	@touch $@
