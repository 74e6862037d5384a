#!/usr/bin/env bash
# Measure this machine with the wheels that workflow/bundle.sh collected; words go to snakemake:
#     bash workflow/measure-offline.sh --profile gpu --config budget_min=9
# Stopped or cut off, the same command goes on from the last finished round. The samples end up in results/nodes/;
# the report is made where there is a network: copy that folder into data/nodes/. PYTHON is the Python to measure with;
# one that has all that is needed does without a bundle.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
bundle=${BUNDLE:-build/bundle}
if [ -d "$bundle" ]; then
    bundle=$(realpath "$bundle")
    site=$bundle/site
    if [ ! -d "$site" ]; then
        "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "$bundle"/*.whl
        mv "$site.part" "$site"
    fi
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
elif ! "$python" -c 'import snakemake, pandera, mlxtend' 2>/dev/null; then
    echo "error: $bundle: no such folder: workflow/bundle.sh makes it, where there is a network" >&2
    exit 2
fi
exec "$python" -m snakemake --cores all "$@" -- measured
