# Everything a person or a machine runs on a fresh clone. `make study` needs nothing but Python 3.11.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest -q
# Two files of tests at a time: they wait for what must happen, and none of them measures speed.
# Whole commands and runs come first, as they stand: at the end there are short ones left to share.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
PACKAGES := accerl controller studies analysis tests
MAX_LINES := 400
MAX_MODULES := 15
# Hundreds of processes that the tests start would each compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
# What it asks for (matplotlib, seaborn, pandas) is for watching games; its rules need numpy alone.
MINATAR := --no-deps minatar==1.0.15

.PHONY: study install test test-all check lint types layers lines format clean

study: $(VENV)/.installed ## the first study: out/quickstart/report.html and out/quickstart/bundle
	$(BIN)/accerl study run quickstart --out out/quickstart --budget default

install: $(VENV)/.installed ## the command: .venv/bin/accerl

test: $(VENV)/.installed-test ## the fast suite
	$(PYTEST) $(SIDE_BY_SIDE) -m "not slow"

test-all: test ## the fast suite, then the slow tests one by one
	$(PYTEST) -m slow

check: lint types layers lines test ## what must pass before a commit; CI runs .ci/run

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell $(PACKAGES) $(wildcard *.md)

types: $(VENV)/.installed-dev
	$(BIN)/pyright --pythonpath $(BIN)/python

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

lines: ## no Python file above MAX_LINES lines, no folder of the product above MAX_MODULES modules
	@find $(PACKAGES) -name '*.py' -exec wc -l {} + \
	  | awk '$$2 != "total" && $$1 > $(MAX_LINES) { print $$2 ": " $$1 " lines, the limit is $(MAX_LINES)"; bad = 1 } END { exit bad }'
	@find $(filter-out tests,$(PACKAGES)) -name '*.py' ! -name '__init__.py' -printf '%h\n' | sort | uniq -c \
	  | awk '$$1 > $(MAX_MODULES) { print $$2 ": " $$1 " modules, the limit is $(MAX_MODULES)"; bad = 1 } END { exit bad }'

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Stamps: an editable install is repeated only when pyproject.toml changes.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
		{ echo "there is no $(PYTHON): install it, or name another: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install -q -e .
	$(PIP) install -q $(MINATAR)
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[test]'
	$(PIP) install -q $(MINATAR)
	touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(PIP) install -q -e '.[dev]'
	$(PIP) install -q $(MINATAR)
	touch $@ $(VENV)/.installed-test $(VENV)/.installed
