# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A CPU build of torch first, so that no resolver pulls CUDA wheels; a machine with a GPU keeps its own.
TORCH ?= torch==2.13.0

.PHONY: accuracy demo test check lint type imports bench docs fuzz clean

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("kvbudget needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install -q --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[profile,sim,watch,gate,dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/kvbudget explain-log docs/samples/vllm-llama3-8b.log

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

check: lint type imports

# Every observed start-up beside its prediction: make accuracy ROWS=rows.jsonl CONFIGS=configs/
accuracy: $(STAMP)
	$(BIN)/python tests/bench/capacity_accuracy.py "$(ROWS)" "$(CONFIGS)"

clean:
	rm -rf $(VENV) dist build .bench .mypy_cache .ruff_cache .pytest_cache
