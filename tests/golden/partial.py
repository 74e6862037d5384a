"""Makes reports of parts of the known nodes: `python -m tests.golden.partial --count 300 --seed 0`.

A run that was cut off, a budget and a busy neighbour each leave a study that lacks rounds, points or experiments. The
parts are taken at random from the published nodes and the synthetic fleet; all pages, figures and PDFs are made of what
is left. Prints each page that fails, with the seed of its study; 1 if any does.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import StudyError
from contract.node import read_node, record_path, write_node
from contract.sample_table import load_samples, to_data_frame, write_unchecked
from report.commands.lint import Study, find_faults
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED as OTHERS
from report.data.published_records import read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from report.pages import charts, site_sources
from report.pages.failures import Failures
from report.pages.figure_data import Evidence
from report.pages.pdf import SOURCES
from report.pages.render import render
from report.pages.site_content import build_content
from report.verdicts import read_verdicts
from tests.golden.__main__ import PUBLISHED
from tests.golden.fleet import FLEET

# Columns by whose values rows are taken away together.
KINDS = ("experiment", "device", "backend", "dtype", "threads", "metric", "params", "round")
# Seconds that hold the samples of any node.
TIMES = {"seed": 0, "wall_s": 90_000.0, "warmup_s": 1_000.0, "timed_s": 80_000.0}
POINT = ["experiment", "device", "backend", "dtype", "threads", "params"]


@cache
def nodes() -> Mapping[str, tuple[dict[str, Any], pd.DataFrame]]:
    """Record and samples of each known node, by the name of its folder."""
    found = {}
    for folder in sorted(one for place in (PUBLISHED, FLEET) for one in place.iterdir() if one.is_dir()):
        rounds = [to_data_frame(load_samples(path)[0]) for path in sorted(folder.glob("*.parquet"))]
        found[folder.name] = read_node(record_path(folder)), pd.concat(rounds, ignore_index=True)
    return found


def reduced(samples: pd.DataFrame, chance: random.Random) -> pd.DataFrame:
    """Samples of one node without some of its rounds, points, experiments, formats, threads and kinds of rows."""
    kept = samples
    for _ in range(chance.randint(1, 4)):
        if not len(kept):
            break
        kind = chance.choice((*KINDS, "points", "rounds", "one round", "failed"))
        if kind == "one round":
            kept = kept[kept["round"] == chance.choice(sorted(kept["round"].unique()))]
        elif kind == "rounds":
            # A round of an experiment is lost by itself.
            each = kept.groupby(["experiment", "device", "round"]).ngroup()
            kept = kept[~each.isin(_some(each, chance))]
        elif kind == "points":
            each = kept.groupby(POINT).ngroup()
            kept = kept[~each.isin(_some(each, chance))]
        elif kind == "failed":
            each = kept.groupby([*POINT, "round"]).ngroup()
            kept = _without_results(kept, each.isin(_some(each, chance)))
        else:
            kept = kept[~kept[kind].isin(_some(kept[kind], chance))]
    return kept


def _some(values: pd.Series, chance: random.Random) -> list[Any]:
    """Values of a column that go: few, half or most of them, and never all."""
    every = sorted(values.unique())
    share = chance.choice((0.1, 0.5, 0.9))
    return chance.sample(every, min(round(share * len(every)), len(every) - 1))


def _without_results(samples: pd.DataFrame, failed: pd.Series) -> pd.DataFrame:
    """The samples, with one row without a number for each point and round that failed."""
    lost = samples[failed & (samples["metric"] == "time")].drop_duplicates([*POINT, "round"])
    lost = lost.assign(value=float("nan"), status="failed", reason="taken away by a test", stop_reason="", sample=0)
    return pd.concat([samples[~failed], lost], ignore_index=True)


def write_study(folder: Path, seed: int, most: int = 1000) -> list[str]:
    """Write parts of one to four nodes into a folder; returns their names. most: experiments that a node keeps."""
    chance = random.Random(seed)
    chosen = chance.sample(sorted(nodes()), chance.choice((1, 1, 2, 3, 4)))
    for name in chosen:
        record, samples = nodes()[name]
        write_node(folder / name / "node.json", record)
        experiments = sorted(samples["experiment"].unique())
        some = chance.sample(experiments, min(most, len(experiments)))
        left = reduced(samples[samples["experiment"].isin(some)], chance)
        if len(left):
            write_unchecked(folder / name / "rounds.parquet", left, TIMES)
    return chosen


def judged(folder: Path, others: bool = True) -> None:
    """Gather and judge the nodes of `folder`/nodes into `folder`. others: beside the measurements of others."""
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    published = read_published(OTHERS) if others else None
    judge(
        read_dataset(folder / "data", read_reference(REFERENCE), published),
        folder / "verdicts.json",
        allow_synthetic=True,
    )


def failures(folder: Path, drawn: float = 1.0, seed: int = 0) -> Failures:
    """The pages and figures that fail of a judged study; their sources are made, and a share of the figures drawn."""
    evidence = Evidence(read_verdicts(folder / "verdicts.json"), folder / "data")
    made = build_content(evidence)
    found, templates = made.failures, site_sources.template_environment()
    for page in made.pages:
        with found.catch("page", page.path):
            site_sources.page_source(page, templates, made.terms)
    for name, source in SOURCES.items():
        with found.catch("PDF", name):
            source(made, evidence.document, templates)
    for chart in random.Random(seed).sample(made.charts, round(drawn * len(made.charts))):
        with found.catch("figure", chart.name), charts.theme():
            chart.draw(charts.NARROW).canvas.draw()
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.partial", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="studies (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="of the first study; the others count on from it")
    parser.add_argument("--whole", action="store_true", help="convert all pages and typeset both PDFs too")
    given = parser.parse_args()
    failed = 0
    for seed in range(given.seed, given.seed + given.count):
        with tempfile.TemporaryDirectory(prefix="partial-") as place:
            folder = Path(place)
            chosen = write_study(folder / "nodes", seed)
            try:
                judged(folder, others=seed % 4 == 0)
                if given.whole:
                    found = render(folder / "verdicts.json", folder / "report", "pandoc", folder / "data")
                    lines = find_faults(Study(folder / "verdicts.json", folder / "data", REFERENCE, folder / "report"))
                else:
                    found, lines = failures(folder), []
            except StudyError as refusal:
                print(f"seed {seed}: refused: {refusal}", flush=True)
                continue
            failed += bool(found.items)
            print(f"seed {seed}: {', '.join(chosen)}: {len(found.items)} failures, {len(lines)} faults", flush=True)
    print(f"{failed} of {given.count} studies have pages that fail")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
