# `make study` and `make test` need Python >= 3.11, make and git; all else goes into .venv. (`make test` fetches a browser
# where there is none, into Playwright's own cache.)
# `make study CONFIG='preset=full budget_min=30'` changes settings of config/config.yaml.

PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Where a study of this CONFIG lies.
RESULTS := $(or $(patsubst results=%,%,$(filter results=%,$(CONFIG))),results)

.PHONY: study test tests check bench edition clean

study: .venv/study.stamp
	@STUDY_CALLER_PID=$$PPID snakemake --cores all $(if $(CONFIG),--config $(CONFIG))
	@python -m report summary --verdicts $(RESULTS)/verdicts.json

# The linters run beside the tests, of which one at a time measures.
test: .venv/test.stamp
	@$(MAKE) --no-print-directory --jobs 2 check tests

# Whole studies come first, as they take longest. Those that measure this machine do so one at a time: they are one file.
# There is a worker more than cores, for some tests wait for servers and schedulers. One that dies is not replaced: its
# test is named at the end.
tests: .venv/test.stamp
	pytest -n $$(python3 -c 'import os; print((os.cpu_count() or 1) + 1)') --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=10

# What CI holds besides the tests: style, types, spelling.
check: .venv/test.stamp
	ruff check .
	ruff format --check .
	mypy
	codespell
	snakefmt --check Snakefile workflow

# The measuring core against its peers, for docs/bench.md; a thousand nodes gathered and judged. Half an hour, on a
# machine that is otherwise idle.
bench: .venv/study.stamp
	@python -m studies.bench
	@python -m studies.scale

# The report of the published nodes, kept as the next edition; the README's words and picture are then of it.
edition: .venv/test.stamp
	@bash workflow/edition.sh

# An install that was cut off leaves packages that pip takes for whole. `unfinished` is there while one runs; where make
# has made .venv itself (`made`), it then begins again from nothing. Nothing goes on installing once make is gone.
ENDING := exec $(PYTHON) -I contract/child_processes.py
define install
@touch .venv/unfinished
$(ENDING) $(BIN)/pip install --quiet --constraint constraints.txt --editable '$(1)'
@rm .venv/unfinished
endef

.venv/study.stamp: pyproject.toml constraints.txt $(wildcard .venv/unfinished)
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + ": set PYTHON=") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment: apt-get install python3-venv (Debian), or set PYTHON= to a Python with venv" >&2; exit 1; }
	@if [ -e .venv/unfinished ] && [ -e .venv/made ]; then find .venv -mindepth 1 ! -name made ! -name unfinished -delete; fi
	@if [ ! -d .venv ]; then mkdir .venv && touch .venv/made; fi
	@touch .venv/unfinished
	$(ENDING) $(PYTHON) -m venv .venv
	$(call install,.)
	@touch $@

.venv/test.stamp: .venv/study.stamp
	$(call install,.[dev])
	@python -m tests.browser
	@touch $@

clean:
	rm -rf .venv results .snakemake
