#!/usr/bin/env bash
# Wheels of what measuring needs, for a machine without a network that has torch, NumPy, pandas, PyArrow and Numba
# (and CuPy, for a GPU) already:
#     bash workflow/bundle.sh 3.12 x86_64       # Python's version and the processor there; writes build/bundle/
# Further words are packages to do without, where size counts: `polars`, `onnxruntime` and `onnx` are most of it.
# There: workflow/measure-offline.sh
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:?"which Python is there? 3.11, 3.12, …"}
processor=${2:-x86_64}
without=${*:3}
bundle=build/bundle
# What is there with all that it needs, and what only the report needs.
given="torch sympy mpmath numpy pandas pyarrow numba llvmlite scipy scikit_learn joblib
    seaborn matplotlib contourpy cycler fonttools kiwisolver pillow pyparsing"
rm -rf "$bundle"
mkdir -p "$bundle"
# The one need that has no wheel of its own.
pip wheel --quiet --no-deps --constraint constraints.txt --wheel-dir "$bundle" connection_pool
platforms=()
for tag in 2_34 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do
    platforms+=(--platform "manylinux_${tag}_$processor")
done
pip download --quiet --only-binary=:all: --python-version "$python" --implementation cp \
    "${platforms[@]}" --platform "manylinux2014_$processor" --platform "manylinux1_$processor" \
    --find-links "$bundle" --constraint constraints.txt --dest "$bundle" \
    snakemake pandera ruamel.yaml psutil jsonschema threadpoolctl nvidia-ml-py tqdm polars wgpu \
    aiohttp httptools starlette uvicorn mlxtend onnx onnxruntime onnxscript
for name in $given $without; do
    rm -f "$bundle/$name"-*.whl "$bundle/$name"_*.whl
done
du -sh "$bundle"
