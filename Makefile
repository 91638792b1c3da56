# `make demo` and `make test` need nothing before them: each sets up .venv when it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_FLAGS := --quiet --disable-pip-version-check

.PHONY: install demo test lint soak bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Ranloom needs Python 3.11 or later; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "No venv module: on Debian, apt-get install python3-venv"; \
	  test "$$(id -u)" = 0 && apt-get install -y -q python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/pip install $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python run.py up topologies/quickstart.toml

# What measures wall time runs alone; the rest on two cores, a file on one of them.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/executors tests/unit tests/sim
	$(BIN)/python -m pytest tests/live tests/faults

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(STAMP)
	$(BIN)/python tests/bench/soak.py

bench: $(STAMP)
	$(BIN)/python tests/bench/messages.py
	$(BIN)/python tests/bench/simulator.py
	$(BIN)/python tests/bench/slotbench.py
	$(BIN)/python tests/bench/controller.py
	$(BIN)/python tests/bench/slots.py
	$(BIN)/python tests/bench/scheduler.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
