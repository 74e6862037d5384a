#!/bin/sh
# Install the study in a Debian container with Python, with the pinned versions. PACKAGES: further apt packages.
set -eu
apt-get update -qq
# A compiler for torch.compile, and tools to describe the machine: lscpu, processes, buses.
# shellcheck disable=SC2086  # several words
apt-get install -y -qq --no-install-recommends g++ util-linux procps pciutils ${PACKAGES:-}
rm -rf /var/lib/apt/lists/*
cd "$1"
# Torch's default build includes CUDA; the driver comes from the host.
python3 -m pip install --no-cache-dir --constraint constraints.txt --editable ".[${EXTRAS-gpu}]"
