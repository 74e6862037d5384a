"""The definition of the chains for GPUs, without one: as C++ on this machine, and by NVIDIA's compiler."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from experiments.kernels.cuda import module
from experiments.kernels.sequential import cpu, cuda, definition
from experiments.registry import get
from experiments.work import Unsupported, Work
from tests.experiments.cuda_standin import Cupy, install, ptx

GPU = SimpleNamespace(kind="gpu", name="cuda:0", unsupported=lambda backend: Unsupported(f"{backend} on cuda:0"))
KINDS = [
    ("chain", "random", 4),
    ("chase", "random", 300 * 3 * 128),
    ("branches", "predictable", 256),
    ("branches", "random", 256),
    ("states", "text", 1 << 21),
]


def point(kernel: str, data: str, footprint: int, chains: str) -> Work:
    params = {"kernel": kernel, "data": data, "footprint": footprint, "chains": chains}
    made = get("sequential").function(GPU, backend="cupy", threads=0, **params)
    assert isinstance(made, Work)
    return made


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    monkeypatch.setattr(cuda.CudaChains, "most", classmethod(lambda cls, device, threads: 300))
    return install(monkeypatch)


@pytest.mark.parametrize("chains", ["one", "full"])
@pytest.mark.parametrize(("kernel", "data", "footprint"), KINDS)
def test_the_gpu_computes_the_same_integers(cupy: Cupy, kernel: str, data: str, footprint: int, chains: str) -> None:
    made = point(kernel, data, footprint, chains)
    assert made.check is not None
    assert made.check() == 0.0
    # Two blocks hold 300 chains, and the threads past the last chain do nothing.
    assert cupy.launches == [(1, 1) if chains == "one" else (2, 256)]


def test_without_cupy_the_gpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    module.cache_clear()
    with pytest.raises(Unsupported, match="pip install cupy"):
        point("chain", "random", 4, "one")


def test_the_definitions_are_found_by_kind_of_device() -> None:
    assert (definition("cpu"), definition("gpu")) == (cpu.CpuChains, cuda.CudaChains)


@pytest.mark.parametrize("architecture", ["compute_75", "compute_80", "compute_90", "compute_100"])
def test_nvidias_compiler_takes_the_kernels_and_keeps_their_branches(architecture: str) -> None:
    bodies = ptx(cuda.SOURCE, architecture)
    assert set(bodies) == set(cpu.KERNELS)
    # Both arms of each unrolled branch are there, marked, and reached by a jump.
    marks, jumps = bodies["branches"].count("pmevent"), len(re.findall(r"@!?%p\d+ bra", bodies["branches"]))
    assert marks > 1 and jumps > marks / 2
    assert "selp" not in bodies["branches"]
    loads = bodies["chase"].count("ld.global.nc")
    assert loads > 1
    assert bodies["chain"].count("mul.lo") + bodies["chain"].count("mad.lo") >= 4
