"""Make reports from parts of known nodes: `python -m tests.golden.partial --count 300 --seed 0`.

Interrupted runs, budgets and busy neighbours leave studies that lack rounds, points or experiments. Each study here
drops random parts from the published nodes and the synthetic fleet, and makes all pages, figures and PDFs from what is
left. Prints the failure count per study and seed; exits with 1 if any page fails.
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

# Columns from which values are drawn. All rows with a drawn value are dropped.
KINDS = ("experiment", "device", "backend", "dtype", "threads", "metric", "params", "round")
# Metadata for each round. The seconds are long enough for any node's samples.
TIMES = {"seed": 0, "wall_s": 90_000.0, "warmup_s": 1_000.0, "timed_s": 80_000.0}
POINT = ["experiment", "device", "backend", "dtype", "threads", "params"]


@cache
def nodes() -> Mapping[str, tuple[dict[str, Any], pd.DataFrame]]:
    """Return record and samples per known node, by folder name."""
    known = {}
    for folder in sorted(path for place in (PUBLISHED, FLEET) for path in place.iterdir() if path.is_dir()):
        rounds = [to_data_frame(load_samples(path)[0]) for path in sorted(folder.glob("*.parquet"))]
        known[folder.name] = read_node(record_path(folder)), pd.concat(rounds, ignore_index=True)
    return known


def drop_parts(samples: pd.DataFrame, chance: random.Random) -> pd.DataFrame:
    """Drop random rounds, points, experiments, formats, threads or row kinds from a node's samples."""
    kept = samples
    for _ in range(chance.randint(1, 4)):
        if not len(kept):
            break
        kind = chance.choice((*KINDS, "points", "rounds", "one round", "failed"))
        if kind == "one round":
            kept = kept[kept["round"] == chance.choice(sorted(kept["round"].unique()))]
        elif kind == "rounds":
            # Experiments lose their rounds independently.
            group = kept.groupby(["experiment", "device", "round"]).ngroup()
            kept = kept[~group.isin(_draw_values(group, chance))]
        elif kind == "points":
            group = kept.groupby(POINT).ngroup()
            kept = kept[~group.isin(_draw_values(group, chance))]
        elif kind == "failed":
            group = kept.groupby([*POINT, "round"]).ngroup()
            kept = _without_results(kept, group.isin(_draw_values(group, chance)))
        else:
            kept = kept[~kept[kind].isin(_draw_values(kept[kind], chance))]
    return kept


def _draw_values(values: pd.Series, chance: random.Random) -> list[Any]:
    """Draw values to remove: few, half or most, and never all."""
    distinct = sorted(values.unique())
    share = chance.choice((0.1, 0.5, 0.9))
    return chance.sample(distinct, min(round(share * len(distinct)), len(distinct) - 1))


def _without_results(samples: pd.DataFrame, failed: pd.Series) -> pd.DataFrame:
    """Replace the samples of failed points by one row per point and round, which has no value."""
    lost = samples[failed & (samples["metric"] == "time")].drop_duplicates([*POINT, "round"])
    lost = lost.assign(value=float("nan"), status="failed", reason="taken away by a test", stop_reason="", sample=0)
    return pd.concat([samples[~failed], lost], ignore_index=True)


def write_study(folder: Path, seed: int, most: int = 1000) -> list[str]:
    """Write parts of one to four nodes into a folder; return their names. most: experiments to keep per node."""
    chance = random.Random(seed)
    chosen = chance.sample(sorted(nodes()), chance.choice((1, 1, 2, 3, 4)))
    for name in chosen:
        record, samples = nodes()[name]
        write_node(folder / name / "node.json", record)
        experiments = sorted(samples["experiment"].unique())
        kept_experiments = chance.sample(experiments, min(most, len(experiments)))
        left = drop_parts(samples[samples["experiment"].isin(kept_experiments)], chance)
        if len(left):
            write_unchecked(folder / name / "rounds.parquet", left, TIMES)
    return chosen


def judge_study(folder: Path, others: bool = True) -> None:
    """Gather and judge `folder`/nodes into `folder`. others: use published measurements too."""
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    published = read_published(OTHERS) if others else None
    judge(
        read_dataset(folder / "data", read_reference(REFERENCE), published),
        folder / "verdicts.json",
        allow_synthetic=True,
    )


def find_failures(folder: Path, drawn: float = 1.0, seed: int = 0) -> Failures:
    """Make all pages and PDF sources, draw a share `drawn` of the figures, and return the failures."""
    evidence = Evidence(read_verdicts(folder / "verdicts.json"), folder / "data")
    content = build_content(evidence)
    failed, templates = content.failures, site_sources.template_environment()
    for page in content.pages:
        with failed.catch("page", page.path):
            site_sources.page_source(page, templates, content.terms)
    for name, source in SOURCES.items():
        with failed.catch("PDF", name):
            source(content, evidence.document, templates)
    for chart in random.Random(seed).sample(content.charts, round(drawn * len(content.charts))):
        with failed.catch("figure", chart.name), charts.theme():
            chart.draw(charts.NARROW).canvas.draw()
    return failed


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.partial", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="studies (default: 300)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first study; later studies count up")
    parser.add_argument("--whole", action="store_true", help="convert all pages and typeset both PDFs too")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        with tempfile.TemporaryDirectory(prefix="partial-") as place:
            folder = Path(place)
            chosen = write_study(folder / "nodes", seed)
            try:
                judge_study(folder, others=seed % 4 == 0)
                if arguments.whole:
                    failed_parts = render(folder / "verdicts.json", folder / "report", "pandoc", folder / "data")
                    lines = find_faults(Study(folder / "verdicts.json", folder / "data", REFERENCE, folder / "report"))
                else:
                    failed_parts, lines = find_failures(folder), []
            except StudyError as refusal:
                print(f"seed {seed}: refused: {refusal}", flush=True)
                continue
            failed += bool(failed_parts.items)
            print(
                f"seed {seed}: {', '.join(chosen)}: {len(failed_parts.items)} failures, {len(lines)} faults", flush=True
            )
    print(f"{failed} of {arguments.count} studies have pages that fail")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
