#!/usr/bin/env bash
# Measure this machine with the wheels from workflow/bundle.sh; arguments go to snakemake:
#     bash workflow/measure-offline.sh --profile gpu --config budget_min=9
# After an interruption, the same command resumes from the last finished round. Samples go to results/nodes/; to make the
# report, copy that folder into data/nodes/ on a machine with a network. workflow/offline.sh describes PYTHON and BUNDLE.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."
. workflow/offline.sh
exec "${PYTHON:-python3}" -m snakemake --cores all "$@" -- measured
