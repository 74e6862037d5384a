#!/usr/bin/env bash
# Measure this machine with the wheels that workflow/bundle.sh collected; words go to snakemake:
#     bash workflow/measure-offline.sh --profile gpu --config budget_min=9
# Stopped or cut off, the same command goes on from the last finished round. The samples end up in results/nodes/;
# the report is made where there is a network: copy that folder into data/nodes/. workflow/offline.sh says what PYTHON
# and BUNDLE are.
set -euo pipefail
cd "$(dirname "$0")/.."
. workflow/offline.sh
exec "${PYTHON:-python3}" -m snakemake --cores all "$@" -- measured
