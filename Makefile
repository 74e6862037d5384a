# `make study` and `make test` need Python >= 3.11, make and git, and install the rest into .venv. (If needed, `make test`
# downloads a browser into Playwright's cache.)
# `make study CONFIG='preset=full budget_min=30'` changes settings of config/config.yaml.

# For a line without shell signs, some makes ignore the PATH below unless SHELL is set.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Results folder for this CONFIG.
RESULTS := $(or $(patsubst results=%,%,$(filter results=%,$(CONFIG))),results)

.PHONY: study test tests check bench edition clean

study: .venv/study.stamp
	@STUDY_CALLER_PID=$$PPID snakemake --cores all $(if $(CONFIG),--config $(CONFIG))
	@python -m report overview --results $(RESULTS)

# Run linters and tests in parallel.
test: .venv/test.stamp
	@$(MAKE) --no-print-directory --jobs 2 check tests

# Whole studies come first, as they take longest; those that measure this machine share one file, so they run one at a
# time. One worker more than cores, because some tests wait for servers and schedulers. A crashed worker is not replaced,
# so that pytest names its test at the end.
tests: .venv/test.stamp
	pytest -n $$(python3 -c 'import os; print((os.cpu_count() or 1) + 1)') --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations=10

# Check style, types and spelling, as in CI.
check: .venv/test.stamp
	ruff check .
	ruff format --check .
	mypy
	codespell
	snakefmt --check Snakefile workflow

# Compare the measuring core with its peers for docs/bench.md; gather and judge a thousand nodes. Takes half an hour on an
# idle machine.
bench: .venv/study.stamp
	@python -m studies.bench
	@python -m studies.scale

# Save the report for the published nodes as the next edition, and update the README's text and picture.
edition: .venv/test.stamp
	@bash workflow/edition.sh

# An interrupted install leaves packages that pip takes for complete. `unfinished` exists during an install; if it is left
# over and make has created .venv (`made`), start again from nothing. Both programs below end when make ends.
define install
@touch .venv/unfinished
@exec $(PYTHON) -I workflow/pip_progress.py run $(BIN)/pip install --constraint constraints.txt --editable '$(1)'
@rm .venv/unfinished
endef

.venv/study.stamp: pyproject.toml constraints.txt $(wildcard .venv/unfinished)
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + ": set PYTHON=") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment: apt-get install python3-venv (Debian), or set PYTHON= to a Python with venv" >&2; exit 1; }
	@if [ -e .venv/unfinished ] && [ -e .venv/made ]; then find .venv -mindepth 1 ! -name made ! -name unfinished -delete; fi
	@if [ ! -d .venv ]; then mkdir .venv && touch .venv/made; fi
	@touch .venv/unfinished
	@$(PYTHON) -I workflow/pip_progress.py announce $(CONFIG)
	@exec $(PYTHON) -I contract/child_processes.py $(PYTHON) -m venv .venv
	$(call install,.)
	@touch $@

.venv/test.stamp: .venv/study.stamp
	$(call install,.[dev])
	@python -m tests.browser
	@touch $@

clean:
	rm -rf .venv results .snakemake
