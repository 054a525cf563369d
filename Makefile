# Every command of the course. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A laptop without an NVIDIA GPU can take torch's smaller CPU wheel: make lab TORCH_INDEX=<address of torch's CPU wheels>
TORCH_INDEX ?=
PIP_EXTRA := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# Test processes side by side; each notebook under test runs in one more.
WORKERS ?= 2
# Containers often run as root, which JupyterLab wants to be told.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup lab test check notebooks record bench html slides clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/:.*  ## /\t/' | expand -t 12

# The stamp is younger than the pins exactly when they are installed, so a second call costs nothing and needs no network.
$(VENV)/.installed: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_EXTRA) -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

setup: $(VENV)/.installed  ## make .venv with the pinned packages

lab: setup  ## open JupyterLab at the first notebook
	$(BIN)/jupyter lab $(AS_ROOT) notebooks/00_start_here.ipynb

test: setup  ## everything CI runs: style, kernels, compiler, data, notebooks, browser
	$(BIN)/ruff check .
	$(BIN)/python -m pip check
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations=15 tests

check: setup  ## the fast part of `make test`: no notebooks, no browser
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup tests -m "not browser and not notebook"

notebooks: setup  ## re-run all notebooks in recorded mode and store their outputs
	$(BIN)/python -m helpers.lesson.store

record: setup  ## on a GPU: measure every experiment, write helpers/data/recorded/<gpu>.json
	$(BIN)/python -m helpers.record $(ONLY)

bench: setup  ## the course's kernels beside torch, torch.compile, cuBLAS and, where installed, Liger
	$(BIN)/python -m helpers.bench

html: setup  ## static copies of all notebooks in build/html, readable offline
	$(BIN)/python -m helpers.lesson.static html build/html

slides: setup  ## lecture slides of all notebooks in build/slides, readable offline
	$(BIN)/python -m helpers.lesson.static slides build/slides

clean:  ## remove everything that make and the course wrote, but not recordings or notebooks
	rm -rf $(VENV) .cache build .pytest_cache .ruff_cache .hypothesis *.egg-info
