# `make study` and `make test` need Python >= 3.11, make and git; all else goes into .venv.
# `make study CONFIG='preset=full budget_min=30'` changes settings of workflow/config/study.yaml.

PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: study test check bench edition clean

study: .venv/study.stamp
	@STUDY_MAKE_PID=$$PPID snakemake --cores all $(if $(CONFIG),--config $(CONFIG))
	@python -m report summary --verdicts results/verdicts.json

# Whole studies after the rest, one at a time: they measure.
test: .venv/test.stamp check
	pytest -n auto --dist loadfile --durations=10 -m "not slow"
	pytest --durations=15 -m slow

# What CI holds besides the tests: style, types, spelling, the workflow's own linters.
check: .venv/test.stamp
	ruff check .
	ruff format --check .
	mypy
	codespell
	snakefmt --check Snakefile workflow
	snakemake --lint

# The measuring core against its peers, and a thousand nodes gathered and judged, for the pages in docs/. Half an hour,
# on a machine that is otherwise idle.
bench: .venv/bench.stamp
	@python -m tests.bench
	@python -m tests.bench.scale

# The report of the published nodes, kept as the next edition; the README's words and picture are then of it.
edition: .venv/test.stamp
	@bash workflow/edition.sh

.venv/study.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + ": set PYTHON=") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

.venv/test.stamp: .venv/study.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

.venv/bench.stamp: .venv/study.stamp
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

clean:
	rm -rf .venv results .snakemake
