#!/bin/sh
# What the study needs in a container of Debian with Python, by the pins of every other install. PACKAGES are apt's.
set -eu
apt-get update -qq
# A compiler for models that PyTorch compiles, and what reads the machine: lscpu, processes, buses.
# shellcheck disable=SC2086  # several words
apt-get install -y -qq --no-install-recommends g++ util-linux procps pciutils ${PACKAGES:-}
rm -rf /var/lib/apt/lists/*
cd "$1"
# Torch's ordinary build brings CUDA with it; the driver is the host's.
python3 -m pip install --no-cache-dir --constraint constraints.txt --editable ".[${EXTRAS-gpu}]"
