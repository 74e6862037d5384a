#!/usr/bin/env bash
# Measure this machine with the wheels that workflow/bundle.sh collected; words go to snakemake:
#     bash workflow/measure-offline.sh --profile gpu --config budget_min=9
# Stopped or cut off, the same command goes on from the last finished round. The samples end up in results/nodes/;
# the report is made where there is a network: copy that folder into data/nodes/.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=${BUNDLE:-build/bundle}
[ -d "$bundle" ] || { echo "error: $bundle: no such folder: workflow/bundle.sh makes it, where there is a network" >&2; exit 2; }
bundle=$(realpath "$bundle")
site=$bundle/site
if [ ! -d "$site" ]; then
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "$bundle"/*.whl
    mv "$site.part" "$site"
fi
PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" exec python3 -m snakemake --cores all "$@" -- measured
