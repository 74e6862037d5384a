#!/usr/bin/env bash
# Install the study on a rented machine, beside the torch that its image has. An image with an old Python gets a new one, and
# a Python that belongs to the system gets an environment that sees its packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    export PATH="$HOME/.local/bin:$PATH"
    command -v uv >/dev/null || python3 -m pip install --quiet --user uv
    uv venv --quiet --allow-existing --seed --python 3.12 .venv
elif python3 -c 'import pathlib, sys, sysconfig as s
sys.exit(sys.prefix != sys.base_prefix or not pathlib.Path(s.get_path("stdlib"), "EXTERNALLY-MANAGED").exists())'; then
    python3 -m venv --system-site-packages .venv
fi
if [ -e .venv/bin/activate ]; then . .venv/bin/activate; fi
python3 -m workflow.install gpu
