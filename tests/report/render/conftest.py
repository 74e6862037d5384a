"""Made-up verdicts and measurements for the renderer, a report of them, and one of the published nodes.

Each report is rendered once for all tests. The made-up one has every kind of verdict, of seeded random numbers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from pypdf import PdfReader

from contract.files import read_json
from report.data.gather import gather
from report.model import Verdict
from report.render import render
from tests.report.conftest import Factory, SyntheticNode
from tests.report.evidence import Shown
from tests.report.rendering import once

ARTICLES = {"N": ("nuface", 18), "G": ("gpuserver", 32), "W": ("whygpu", 38)}
TITLES = {
    "nuface": "Why AI Training Requires GPUs and CUDA",
    "gpuserver": "Why AI Models Require GPUs for Faster and Efficient Training",
    "whygpu": "Why Does AI Need a GPU?",
}
SECTIONS = ["opening", "The Limitations of CPUs", "Memory and Bandwidth", "What Runs Where", "One Line to Remember"]
QUANTITIES = [
    ("gemm.mac_per_cycle_per_core", "MAC/cycle", 32.0),
    ("gemm.rate", "FLOP/s", 2e11),
    ("bandwidth.rate", "B/s", 2e10),
    ("training.split", "1", 0.5),
    ("llama405b.days_from_gpu_hours", "d", 60.0),
    ("training.rate", "samples/s", 12_000.0),
]
NODE = "example-cpu-2c-0a1b2c"
VERDICTS = tuple(map(str, Verdict))
REASON = "The synthetic intervals lie where the generator put them, on that side."


@pytest.fixture
def shown(synthetic: Factory, tmp_path: Path) -> Callable[..., Shown]:
    """Gathers synthetic nodes, and gives what they show, by family."""

    def by_family(*nodes: SyntheticNode) -> Shown:
        gather([synthetic.write(nodes)], tmp_path / "data", allow_synthetic=True)
        return Shown(tmp_path / "data", read_json(tmp_path / "data" / "nodes.json"))

    return by_family


def claim_ids() -> list[str]:
    """The ids of all 88 claims."""
    return [f"{letter}{place:02d}" for letter, (_, count) in ARTICLES.items() for place in range(1, count + 1)]


def verdict(claim: str, kind: str, chance: random.Random) -> dict[str, Any]:
    """One verdict in the shape that the engine writes."""
    article = ARTICLES[claim[0]][0]
    quantity, unit, scale = chance.choice(QUANTITIES)
    decided = Verdict(kind).judged
    threshold = float(f"{scale * chance.choice([0.2, 0.8, 1.0, 3.0]):.2g}")
    cells = []
    for place in range(chance.choice([1, 2, 3, 6, 14]) if decided else 0):
        estimate = scale * chance.lognormvariate(0, 0.8)
        half = chance.uniform(0.005, 0.06)
        dtype = chance.choice(["float32", "float64", "bfloat16"])
        cells.append(
            {
                "part": "",
                "node": NODE,
                "device": "cpu",
                "label": f"{dtype}, {place + 1} threads, cell {place + 1}",
                "dtype": dtype,
                "threads": place + 1,
                "estimate": estimate,
                "low": estimate * (1 - half),
                "high": estimate * (1 + half),
                "n_rounds": 3,
                "n_samples": 45,
                "outcome": chance.choice(["supports", "challenges", "undecided"]),
            }
        )
    reasons = {
        "awaiting experiment": "awaiting experiment offload: the trip to the device is not measured yet.",
        "awaiting hardware": "awaiting hardware: no node with a GPU has measured training.",
        "awaiting source": "awaiting source: the datasheet could not be read.",
        "not testable": "An opinion: the claims that bear on it are listed.",
    }
    first = cells[0] if cells else {"estimate": None, "low": None, "high": None}
    part = {
        "name": "",
        "quantity": quantity,
        "unit": unit,
        "rule": "at_least",
        "rule_text": f"supported if {quantity} is at least the threshold",
        "threshold": threshold,
        "threshold_why": "read generously, as a test fixture may",
        "sensitivity": [threshold / 2, threshold * 2],
        "scope": {"device": "cpu", "dtype": "float32"},
        "outcome": kind,
        "reason": reasons.get(kind, REASON),
        "missing": {"says": "What it waits for."} if Verdict(kind).awaits else None,
        "boundary": None,
        "estimate": first["estimate"],
        "low": first["low"],
        "high": first["high"],
        "flips": [],
    }
    parts = [part]
    if decided and len(cells) > 3:
        parts = [{**part, "name": "one core"}, {**part, "name": "all cores of the node"}]
        for place, cell in enumerate(cells):
            cell["part"] = parts[place % 2]["name"]
    for one in parts:
        one["rejudge"] = {
            "how": "at_least", "share": 1.0, "before": "supported if at least", "after": "in every cell",
            "negative": False, "settled": [0, 0, 0], "baselines": {},
            "cells": [[cell["low"], cell["high"], cell["label"]] for cell in cells if cell["part"] == one["name"]],
        }  # fmt: skip
    untested = kind == "not testable"
    return {
        "id": claim,
        "article": article,
        "article_title": TITLES[article],
        "section": chance.choice(SECTIONS),
        "says": f"A paraphrase of what the article says in claim {claim}, about as long as they are.",
        "kind": "judgement" if kind == "not testable" else chance.choice(["measured", "derived", "documented"]),
        "verdict": kind,
        "reason": part["reason"],
        "rule": part["rule_text"],
        "quantity": None if untested else quantity,
        "unit": unit,
        "estimate": first["estimate"],
        "low": first["low"],
        "high": first["high"],
        "threshold": None if untested else threshold,
        "threshold_why": part["threshold_why"],
        "boundary": "from 2 threads on" if kind == "depends" else None,
        "cells": cells,
        "parts": [] if untested else parts,
        "flips": ["A threshold twice as high would turn it round."] if decided else [],
        "evidence_tier": chance.choice(["measured", "derived", "documented"]) if decided else "none",
        "see_also": chance.sample([other for other in claim_ids() if other != claim], 2),
        "note": "The same quantity decides other claims." if chance.random() < 0.3 else None,
        "sources": [
            {
                "title": "A paper & its <title>",
                "publisher": "A press",
                "date": "2024-05-01",
                "url": "https://example.org/paper?a=1&b=2",
                "where": "Table 3",
                "status": "verified",
            }
        ]
        if chance.random() < 0.4
        else [],
        "version": 2 if chance.random() < 0.1 else 1,
        "changes": [],
    }


def node() -> dict[str, Any]:
    """A node in the shape that the engine writes."""
    return {
        "id": NODE,
        "label": "Example CPU, 2 cores",
        "devices": [{"id": "cpu", "kind": "cpu", "name": "Example CPU", "memory_bytes": 8 * 2**30}],
        "hardware": {
            "cpu": {
                "model": "Example CPU",
                "sockets": 1,
                "cores": 2,
                "usable_cores": 2,
                "threads_per_core": 1,
                "simd": ["avx2", "avx512f", "fma"],
                "matrix": ["avx512_bf16"],
                "virtual": True,
                "caches": {"L1d": {"bytes": 2**16, "instances": 2}, "L3": {"bytes": 2**25, "instances": 1}},
            },
            "memory_bytes": 8 * 2**30,
            "gpus": [],
        },
        "software": {
            "os": "Linux 6.1",
            "python": "3.11.2",
            "packages": {"torch": "2.0", "numpy": "2.0"},
            "blas": [{"library": "openblas", "version": "0.3", "threads": 2}],
        },
        "started_utc": "2026-01-01T00:00:00Z",
        "ended_utc": "2026-01-01T00:09:00Z",
        "left_out": ["cuda: no accelerator"],
        "n_points": 120,
        "n_ok": 100,
        "statuses": {"ok": 100, "unsupported": 16, "skipped": 4},
        "source": "results",
        "duty": 0.61,
    }


def document(seed: int = 1, origin: str = "synthetic") -> dict[str, Any]:
    """A whole `verdicts.json`: 88 verdicts, every kind among them."""
    chance = random.Random(seed)
    verdicts = [verdict(claim, VERDICTS[place % len(VERDICTS)], chance) for place, claim in enumerate(claim_ids())]
    tally = {name: sum(one["verdict"] == name for one in verdicts) for name in VERDICTS}
    return {
        "generated_utc": "2026-01-01T00:10:00Z",
        "commit": "0123456789abcdef",
        "study_version": "0.1.0",
        "origin": origin,
        "nodes": [node()],
        "refused": [{"file": "results/nodes/x/gemm.cpu.1.parquet", "reason": "column 'unit' is missing"}],
        "tally": tally,
        "verdicts": verdicts,
    }


def measured(folder: Path, seed: int = 1) -> None:
    """Gather a node with some points of each experiment that one CPU can show, at seeded random rates."""
    chance = random.Random(seed)
    node = SyntheticNode(folder / "nodes" / NODE, [{"id": "cpu", "kind": "cpu", "name": "Example CPU"}])

    def point(experiment: str, value: Any, params: dict[str, Any], **more: Any) -> None:
        node.point(experiment, value, params=params, **{"rounds": 3, "samples": 3, "spread": 0.02, **more})

    for dtype, factor in (("float32", 2), ("float64", 1), ("bfloat16", 4)):
        for threads in (1, 2):
            speed, about = 5e10 * threads * factor, {"dtype": dtype, "threads": threads}
            node.peak(1.1 * speed, spread=0.01, **about)
            shapes = [(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)] + [(32, 4096, 1024), (512, 3072, 768)]
            for backend in ("torch", "onednn", "numpy"):
                for m, n, k in shapes:
                    rate = speed * chance.uniform(0.5, 0.95) * min(1.0, (m * n * k) ** (1 / 3) / 400)
                    flop = 2.0 * m * n * k
                    point("gemm", flop / rate, {"m": m, "n": n, "k": k}, backend=backend, flop=flop, **about)
    for threads in (1, 2):
        for backend in ("llvm", "torch"):
            for op in ("copy", "scale", "add", "triad"):
                for power in range(14, 30, 2):
                    rate = threads * 8e10 / (1 + power / 8) ** 2 * chance.uniform(0.8, 1.2)
                    about = {"backend": backend, "dtype": "float64", "threads": threads, "bytes": 2.0**power}
                    point("bandwidth", 2**power / rate, {"op": op, "footprint": 2**power}, **about)
    for model in ("mlp", "cnn", "gpt"):
        for dtype in ("float32", "bfloat16"):
            for threads in (1, 2):
                for batch in (1, 8, 64, 512):
                    whole = (1e-3 + 2e-5 * batch) / threads * chance.uniform(0.9, 1.1)
                    times = {"time": whole, "time.forward": 0.3 * whole, "time.backward": 0.6 * whole}
                    times["time.update"] = 0.1 * whole
                    about = {"dtype": dtype, "threads": threads, "flop": 1e9}
                    point("training", times, {"model": model, "batch": batch}, **about)
    for direction in ("h2d", "d2h"):
        lost = {"status": "unsupported", "reason": "no accelerator", "dtype": "", "threads": 0}
        point("transfer", 1.0, {"direction": direction, "size": 4, "memory": "pinned"}, **lost)
    square = {"m": 1000, "n": 1000, "k": 1000}
    for backend, dtype, m, rate in (("python", "float64", 4, 3e7), ("scalar", "float32", 1000, 4e9)):
        flop = 2e6 * m
        point("gemm", flop / rate, {**square, "m": m}, backend=backend, dtype=dtype, flop=flop)
    for content in ("normal", "zeros", "denormal"):
        point("content", 0.01 * chance.uniform(0.9, 1.1), {"content": content, **square}, threads=2, flop=2e9)
    exact = {"threads": 2, "spread": 0.0}
    for method, apart in (("cell_order", 0.0), ("permuted", 0.0), ("split_k", 20.0), ("summation", 45.0)):
        point("numerics", apart, {"method": method, **square}, metric="spread_ulp", unit="ulp", **exact)
    point("numerics", 1.0, {"method": "repeat", **square}, metric="distinct_results", unit="1", **exact)
    for op in ("filter", "group_by"):
        for backend, count in ((name, n) for name in ("pandas", "polars") for n in (1000, 100_000)):
            params = {"op": op, "rows": count, "transfers": "none"}
            point("tabular", count * 1e-8 * chance.uniform(0.5, 2), params, backend=backend, dtype="")
    steps = {"metric": "step_time", "backend": "numba", "dtype": ""}
    for power in range(13, 28, 2):
        params = {"kernel": "chase", "chains": "one", "data": "random", "footprint": 2**power}
        point("sequential", 1e-9 * power, params, **steps)
    for data in ("predictable", "random"):
        params = {"kernel": "branches", "chains": "one", "data": data, "footprint": 16384}
        point("sequential", 1e-9 * chance.random(), params, **steps)
    node.write()
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)


@pytest.fixture(scope="session")
def make_document() -> Callable[..., dict[str, Any]]:
    """Makes a whole verdicts.json: `make_document(seed=…, origin=…)`."""
    return document


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gathered folder, to be read only."""
    return once(tmp_path_factory, "synthetic-data", measured) / "data"


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The folder of a whole synthetic report, rendered once, to be read only."""

    def make(folder: Path) -> None:
        (folder / "verdicts.json").write_text(json.dumps(document()), encoding="utf-8")
        render(folder / "verdicts.json", folder / "out", renderer="pandoc", data=data)

    return once(tmp_path_factory, "synthetic-report", make) / "out"


@pytest.fixture(scope="session")
def published_report(tmp_path_factory: pytest.TempPathFactory, published: Path) -> Path:
    """The folder of the published nodes' report, rendered once, to be read only."""

    def make(folder: Path) -> None:
        render(published / "verdicts.json", folder / "out", "pandoc", published / "data")

    return once(tmp_path_factory, "published-report", make) / "out"


@pytest.fixture(scope="session")
def page(report: Path) -> BeautifulSoup:
    """The page of the synthetic report, to be read only."""
    return BeautifulSoup((report / "index.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory, report: Path) -> list[str]:
    """The text of each page of its PDF."""

    def make(folder: Path) -> None:
        pages = [page.extract_text() for page in PdfReader(report / "report.pdf").pages]
        (folder / "texts.json").write_text(json.dumps(pages), encoding="utf-8")

    made = once(tmp_path_factory, "synthetic-texts", make) / "texts.json"
    return list(json.loads(made.read_text(encoding="utf-8")))


@pytest.fixture
def visit(chromium: Any, report: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page of a report; returns it, what the console said and what was requested."""
    contexts = []
    whole = report

    def opened(fragment: str = "", width: int = 1280, height: int = 800, report: Path = whole, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((report / "index.html").as_uri() + fragment)
        return page, said, asked

    yield opened
    for context in contexts:
        context.close()
