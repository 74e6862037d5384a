#!/usr/bin/env bash
# The wheels that measuring needs on a machine without a network, for the Python and the processor there; `--help` says
# what can be left out and added:
#     bash workflow/bundle.sh 3.12 x86_64 --with polars       # writes build/bundle/
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -m workflow.bundle "$@"
