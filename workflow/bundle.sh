#!/usr/bin/env bash
# Collect the wheels for measuring on a machine without a network, for its Python and processor; `--help` lists optional
# parts:
#     bash workflow/bundle.sh 3.12 x86_64 --with polars       # writes build/bundle/
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -m workflow.bundle "$@"
