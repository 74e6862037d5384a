#!/usr/bin/env bash
# Measure a rented machine, and pack the results. PRESET, REQUIRE, MINUTES: settings of the run. SAVED: folder that outlives
# the machine, from which a run on the next one goes on. COMMIT: the study's commit, where the copy has no repository.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -e .venv/bin/activate ]; then . .venv/bin/activate; fi
if [ -n "${COMMIT:-}" ] && [ ! -e .git ]; then printf '%s\n' "$COMMIT" > .commit; fi
settings=("preset=${PRESET:-rented}" "require=${REQUIRE:-gpu}" "budget_min=${MINUTES:-0}")
if [ -n "${SAVED:-}" ]; then
    python3 -m workflow.saved_run "$SAVED" --config "${settings[@]}" -- measured
else
    snakemake --cores all --config "${settings[@]}" -- measured
fi
python3 -m experiments pack
if [ -n "${SAVED:-}" ]; then cp results/*.zip "$SAVED"; fi
