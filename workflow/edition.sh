#!/usr/bin/env bash
# Make the report for the published nodes, and save it as the next edition: `bash workflow/edition.sh`.
set -euo pipefail
[ "${1:-}" != --help ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit; }
cd "$(dirname "$0")/.."

made=results/edition
mkdir -p data/editions
# Sort editions by number.
last="$(find data/editions -mindepth 2 -maxdepth 2 -name verdicts.json | sort -V | tail -n 1)"

rm -rf "$made"
python -m report gather --nodes data/nodes --out "$made/data"
python -m report judge --data "$made/data" --out "$made/verdicts.json"
python -m report wanted --verdicts "$made/verdicts.json" >/dev/null
python -m report render --verdicts "$made/verdicts.json" --data "$made/data" --out "$made/report" --renderer pandoc \
    ${last:+--previous "$last"}
python -m report dataset --verdicts "$made/verdicts.json" --data "$made/data" --out "$made/dataset"
python -m report site --verdicts "$made/verdicts.json" --dataset "$made/dataset" --report "$made/report" \
    ${last:+--previous "$last"}
python -m report edition --verdicts "$made/verdicts.json" --data "$made/data" --report "$made/report"
page="$(find data/editions -mindepth 2 -maxdepth 2 -name index.html | sort -V | tail -n 1)"
python -m docs.picture "$page" docs/report.png
