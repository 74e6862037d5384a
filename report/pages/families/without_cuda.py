"""The same kernels through several interfaces: CUDA, Vulkan, and WebGPU (Vulkan with checks)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from report.formatting import format_count, format_exact, format_number, join_words, with_unit
from report.pages.chart_rows import percent_case
from report.pages.estimate_list import ListEntry, estimate_list, gpu_suffix, has_gpu
from report.pages.exhibit_types import Exhibit, Family, exhibits_per_machine, records
from report.pages.figure_data import Evidence, View
from report.pages.heading_numbers import amounts, as_number, filled_texts, ratios, sentence
from report.pages.verdict_words import NOTHING
from report.quantities.libraries import CUDA

NAMES = {"vulkan": "Vulkan", "webgpu": "WebGPU", CUDA: "CUDA"}
# Rate per kernel: summary column and unit.
RATES = {"naive": ("flop_per_s", "FLOP/s"), "tiled": ("flop_per_s", "FLOP/s"), "triad": ("bytes_per_s", "B/s")}
# Threshold for claim N10, in percent of CUDA's rate. A lower rate is taken to mean that most cores are idle.
IDLE = 50.0
_POINT = ("device", "kernel", "n", "backend")


def _kernel_label(case: Mapping[str, Any]) -> str:
    n = int(case["n"])
    return (
        f"triad, {format_number(n, 2)} elements"
        if case["kernel"] == "triad"
        else f"{case['kernel']} product, n = {format_exact(n)}"
    )


def _case_label(case: Mapping[str, Any]) -> str:
    """Name a case: 'tiled product, n = 2,048, Vulkan'."""
    return f"{_kernel_label(case)}, {NAMES.get(str(case['backend']), case['backend'])}"


def _rates(view: View) -> dict[tuple[Any, ...], tuple[dict[str, Any], str]]:
    """Return the rate and its unit per device, kernel, size and interface."""
    rates: dict[tuple[Any, ...], tuple[dict[str, Any], str]] = {}
    for kernel, (value, unit) in RATES.items():
        for case in records(view.cases("without-cuda", value=value, kernel=kernel)):
            rates[tuple(case[name] for name in _POINT)] = case, unit
    return rates


def _share_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Compare rates in other interfaces with the rate in CUDA, and CUDA's naive product with the library's."""
    cases = records(view.quantity("without_cuda.rate_share"))
    if not cases:
        return
    rates = _rates(view)
    entries: list[ListEntry] = []
    for case in cases:
        rate, unit = rates.get(tuple(case[name] for name in _POINT), (None, ""))
        words = with_unit(float(rate["estimate"]), unit) if rate else NOTHING
        which = gpu_suffix(str(case["device"])).removesuffix(", GPU")
        entries.append((f"{_case_label(case)}{which}", percent_case(case), [words]))
    ratios_by_backend = {
        backend: ratios((case for case in cases if case["backend"] == backend), "as fast")
        for backend in NAMES
        if any(case["backend"] == backend for case in cases)
    }
    title = sentence(
        join_words([f"{NAMES[backend]} runs the same kernels {{{backend}}} as CUDA" for backend in ratios_by_backend]),
        "This run does not show how much of CUDA's rate other interfaces keep",
        **ratios_by_backend,
    )
    naive = [as_number(record).inverse for record in records(view.quantity("without_cuda.naive_over_library"))]
    says = ["WebGPU is Vulkan with checks at run time."] if any(case["backend"] == "webgpu" for case in cases) else []
    says += filled_texts([sentence("In CUDA itself, the library's product is {gain} as the naive product.",
                                    gain=ratios(naive, "as fast"))] if naive else [])  # fmt: skip
    yield estimate_list(
        name, title, entries, "%", "percent of the rate in CUDA",
        f"● measured on {view.name}, float32, the same kernel on the same chip.",
        ["Kernel", "Rate", "Of CUDA's rate"], 1.0, [IDLE, 100.0], "from half of CUDA's rate to all of it", False, says,
        ["N10"],
    )  # fmt: skip


def _software_exhibit(view: View, name: str) -> Iterable[Exhibit]:
    """Show rates for software Vulkan on the CPU."""
    by_unit: dict[str, list[dict[str, Any]]] = {}
    for case, unit in _rates(view).values():
        if case["device"] == "cpu":
            by_unit.setdefault(unit, []).append(case)
    for unit, cases in sorted(by_unit.items(), reverse=True):
        best = max(cases, key=lambda case: float(case["estimate"]))
        yield estimate_list(
            f"{name}-{'passes' if unit == 'B/s' else 'products'}",
            sentence(
                "Without a GPU, Vulkan in software reaches {rate}",
                "This run does not show how fast Vulkan in software is",
                rate=amounts([best], unit),
            ),
            [(_case_label(case), case, []) for case in cases],
            unit, f"rate, G{unit}", f"● measured on {view.name}: {format_count(len(cases), 'kernel')}, float32.",
            ["Kernel", "Rate"], 1e9, says=["Software plays the GPU, so its rate says nothing about a real GPU."],
        )  # fmt: skip


def show(evidence: Evidence) -> Iterable[Exhibit]:
    """Show rates relative to CUDA for nodes with a GPU, else rates for software Vulkan."""
    return exhibits_per_machine(evidence, _machine_exhibits)


def _machine_exhibits(view: View, place: int) -> Iterable[Exhibit]:
    exhibits = list(_share_exhibit(view, f"without-cuda-{place}"))
    yield from exhibits
    if not exhibits and not has_gpu([{"device": device} for device in view.devices()]):
        yield from _software_exhibit(view, f"without-cuda-{place}")


FAMILY = Family(
    "without-cuda", "A GPU without CUDA",
    "How much of its rate does a GPU keep with Vulkan or WebGPU in place of CUDA?", show,
)  # fmt: skip
