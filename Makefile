# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One release of torch, in the build that pip's index serves; one that is already in the environment stays.
TORCH ?= torch==2.13.0

.PHONY: accuracy demo test test-bare check lint type imports bench docs fuzz perturb coverage clean clean-kernels

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("kvbudget needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[profile,sim,watch,gate,dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/kvbudget explain-log docs/samples/vllm-llama3-8b.log --bytes-per-block 2MiB
	$(BIN)/kvbudget oom-triage docs/samples/crash-runtime.log --startup-log docs/samples/vllm-llama3-8b.log
	$(BIN)/kvbudget profile --model tiny

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

# The suite where no extra is installed: what needs one is skipped, and says so.
test-bare: .bench/bare/bin/pytest
	.bench/bare/bin/python -m pytest -n auto -p no:cacheprovider

.bench/bare/bin/pytest: pyproject.toml
	test -x .bench/bare/bin/python || $(PYTHON) -m venv .bench/bare
	.bench/bare/bin/python -m pip install -q --disable-pip-version-check -e . \
	  pytest pytest-timeout pytest-xdist hypothesis jsonschema
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

check: lint type imports

# The pages that are made from data; a test compares them.
docs: $(STAMP)
	$(BIN)/python docs/generate.py

# Each bench prints its own table; the figures of record are in docs/performance.md.
bench: $(STAMP)
	for script in $(sort $(filter-out %_peers.py %_traces.py,$(wildcard tests/bench/*_bench.py))); do \
	  echo "== $$script"; $(BIN)/python $$script || exit 1; done

# The capacity tables of docs/accuracy.md: make accuracy ROWS=rows.jsonl CONFIGS=configs/ PEERS=peers.json
accuracy: $(STAMP)
	$(BIN)/python tests/bench/capacity_accuracy.py "$(ROWS)" "$(CONFIGS)" --into docs/accuracy.md $(if $(PEERS),--peers "$(PEERS)")

# Coverage-guided fuzzing of everything that reads what people hand in; a crash stops it.
FUZZ_SECONDS ?= 300
fuzz: $(STAMP)
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install -q atheris
	mkdir -p .bench
	for target in logs overlay config trace gate; do \
	  echo "== $$target"; $(BIN)/python tests/fuzz/fuzz_$$target.py -max_total_time=$(FUZZ_SECONDS) \
	    -timeout=60 -verbosity=0 -print_final_stats=1 -artifact_prefix=.bench/fuzz-$$target- || exit 1; done

# Every number, operator, unit, resolution and group of the data changed, one at a time: who notices?
perturb: $(STAMP)
	$(BIN)/python -m tests.perturb --jobs 2

# Branches that the suite runs, per package; what subprocesses run counts too.
coverage: $(STAMP)
	$(BIN)/python -c 'import pytest_cov' 2>/dev/null || $(BIN)/python -m pip install -q pytest-cov
	mkdir -p .bench
	$(BIN)/python -m pytest -n auto --cov --cov-report= -q
	$(BIN)/python tests/coverage_table.py

clean-kernels:
	rm -f kvbudget/residency/__pycache__/*.nbi kvbudget/residency/__pycache__/*.nbc

clean: clean-kernels
	rm -rf $(VENV) dist build .bench .mypy_cache .ruff_cache .pytest_cache

# oom-triage on a folder of labelled logs, beside a peer: make triage-accuracy CASES=DIR PEER=python
triage-accuracy: $(STAMP)
	$(BIN)/python tests/bench/triage_accuracy.py "$(CASES)" $(PEER)
