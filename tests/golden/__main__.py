"""Compares what the study says of known nodes with what it said: `python -m tests.golden`.

Two sets of nodes: the published one, and with it a synthetic fleet with GPUs (`tests.golden.fleet`). Of each are kept
the summary, the verdicts, and the number and mean of each quantity's estimates; of the fleet its pages and figures too,
and of the published node those that the fleet lacks. Beside them the predictions of the presets' plans
(`tests.golden.plans`) and the numbers that experiments are set to (`tests.golden.settings`). Prints the differences; 1
if there are any.
--write keeps what is said now instead: for a change that is meant.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contract.files import read_json, read_yaml, write_json
from report import PACKAGE
from report.data.dataset import Dataset, MissingSourceError
from report.data.gather import gather
from report.data.gathered_files import read_dataset
from report.data.published_records import PUBLISHED as OTHERS
from report.data.published_records import read_published
from report.data.reference_figures import REFERENCE, read_reference
from report.judging.judge import judge
from report.judging.part_evaluation import QuantityCache
from report.quantities import quantities
from tests.golden.fleet import FLEET
from tests.golden.pages import PASSING, pages
from tests.golden.plans import plans
from tests.golden.settings import settings

PUBLISHED = Path(__file__).parents[2] / "data" / "nodes"
KEPT = Path(__file__).parent / "kept"
# Documents that need no nodes, by file name.
NODELESS = {"plans": plans, "settings": settings}
# Pages of the published node that are kept although the fleet has pages of their names: they show others' measurements.
OF_OTHERS = ("==== page index", "==== page measurements/published")
SETS = {"fleet": [PUBLISHED, FLEET], "published": [PUBLISHED]}
# Another processor adds in another order, and a fit stops at another step.
TOLERANCE = 1e-6
# By which a number in words may then be rounded the other way: 18.75, told in three digits.
ROUNDING = 0.011
MOST_TOLD = 40
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\\?\.\d+)?(?:e[+-]?\d+)?")


def judged(name: str, folder: Path, beside: Sequence[Path] = ()) -> None:
    """Put what is gathered of a set of nodes, and of others beside it, and the verdicts into a folder."""
    gather([*SETS[name], *beside], folder / "data", allow_synthetic=name != "published")
    if name == "published":
        judge(evidence(name, folder), folder / "verdicts.json")
    else:
        judge(evidence(name, folder), folder / "verdicts.json", every_claim(folder), allow_synthetic=True)


def evidence(name: str, folder: Path) -> Dataset:
    """The dataset that claims are judged on: what was gathered, published figures and measurements of others."""
    if name == "published":
        return read_dataset(folder / "data", read_reference(REFERENCE), read_published(OTHERS))
    return read_dataset(folder / "data", every_figure())


def estimated(cache: QuantityCache) -> dict[str, Any]:
    """The number of each quantity's estimates; of each end how many are above 0 and below, and their geometric mean."""
    told: dict[str, Any] = {}
    for name, quantity in quantities().items():
        try:
            found = cache.estimates(quantity)
        except MissingSourceError:
            continue
        told[name] = {"estimates": len(found)}
        for end in ("estimate", "low", "high"):
            values = found.numbers(end)
            values = values[np.isfinite(values) & (values != 0)]
            mean = float(np.exp(np.log(np.abs(values)).mean())) if len(values) else 0.0
            told[name][end] = [int((values > 0).sum()), int((values < 0).sum()), mean]
    return told


def said(folder: Path) -> dict[str, Any]:
    """What such a folder says: summary and verdicts."""
    document = json.loads((folder / "verdicts.json").read_text(encoding="utf-8")) | dict.fromkeys(PASSING, "")
    for node in document["nodes"]:
        node["source"] = Path(node["source"]).name
    return {"summary": _summary(pd.read_parquet(folder / "data" / "summary.parquet")), "verdicts": document}


def lines_of_pages(name: str, folder: Path) -> list[str]:
    """The lines of the fleet's pages and figures, or of those of the published node that the fleet lacks."""
    lines = list(pages(folder))
    if name == "fleet":
        return lines
    known = {*filter(is_heading, kept_pages("fleet"))} - {*OF_OTHERS}
    heading = list(accumulate(lines, lambda last, line: line if is_heading(line) else last))
    return [line for line, under in zip(lines, heading, strict=True) if under not in known]


def kept_pages(name: str) -> list[str]:
    return (KEPT / f"{name}.pages.txt").read_text(encoding="utf-8").splitlines()


def is_heading(line: str) -> bool:
    return line.startswith("==== ")


def every_figure() -> dict[str, dict[str, Any]]:
    """The published figures, those that could not be verified taken as if they had been: their rules are tried too."""
    known = read_reference(REFERENCE)
    return {
        name: {**entry, "value": 1000.0 if entry.get("value") is None else entry["value"], "status": "verified"}
        for name, entry in known.items()
    }


def every_claim(folder: Path) -> Path:
    """The claims, none of which says that its source is still to be found."""
    claims = folder / "claims"
    claims.mkdir()
    for path in (PACKAGE / "claims").glob("*.yaml"):
        claim = read_yaml(path)
        claim.pop("awaits", None)
        # JSON is YAML.
        write_json(claims / path.name, claim)
    for name in ("contradictions.yaml", "triangulation.yaml"):
        shutil.copyfile(PACKAGE / name, folder / name)
    return claims


def _summary(table: pd.DataFrame) -> dict[str, Any]:
    """The rows by what they are of."""
    names = ["node", "experiment", "device", "backend", "dtype", "threads", "params", "metric"]
    rows = json.loads(table.drop(columns="row").to_json(orient="records", double_precision=15))
    return {" ".join(str(row[name]) for name in names): row for row in rows}


def differences(kept: Any, now: Any, place: str = "") -> Iterator[str]:
    """Each place at which two documents differ."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*kept, *now]):
            if key not in now or key not in kept:
                yield f"{place}.{key}: {'gone' if key not in now else 'new'}"
            else:
                yield from differences(kept[key], now[key], f"{place}.{key}")
    elif isinstance(kept, list) and isinstance(now, list):
        for at, (old, new) in enumerate(zip_longest(kept, now)):
            yield from differences(old, new, f"{place}[{at}]")
    elif not _same(kept, now):
        yield f"{place}: {_short(kept)} -> {_short(now)}"


def nodeless_differences(name: str) -> list[str]:
    return list(differences(read_json(KEPT / f"{name}.json"), NODELESS[name](), name))


def line_differences(kept: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Lines that only one of two texts has, each after the heading that it stands under."""
    for kind, start, end, first, last in SequenceMatcher(None, kept, now, autojunk=False).get_opcodes():
        old, new = kept[start:end], now[first:last]
        if kind != "equal" and not (len(old) == len(new) and all(map(_same, old, new))):
            heading = next((line for line in reversed(now[: first + 1]) if is_heading(line)), "")
            yield from (heading, *(f"- {_short(line)}" for line in old), *(f"+ {_short(line)}" for line in new))


def _same(kept: Any, now: Any) -> bool:
    if isinstance(kept, float) and isinstance(now, (int, float)):
        return math.isclose(kept, now, rel_tol=TOLERANCE, abs_tol=1e-15) or (math.isnan(kept) and math.isnan(now))
    if isinstance(kept, str) and isinstance(now, str) and kept != now:
        return _NUMBER.split(kept) == _NUMBER.split(now) and all(
            math.isclose(*pair, rel_tol=ROUNDING) for pair in zip(_numbers(kept), _numbers(now), strict=True)
        )
    return bool(kept == now)


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "").replace("\\", "")) for number in _NUMBER.findall(text)]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}…"


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="which (default: all)")
    parser.add_argument("--write", action="store_true", help="keep what is said now")
    given = parser.parse_args()
    if given.write:
        for name, document in NODELESS.items():
            write_json(KEPT / f"{name}.json", document())
    found = sum(print_first(nodeless_differences(name)) for name in NODELESS)
    for name in given.sets or SETS:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            judged(name, Path(folder))
            now = {**said(Path(folder)), "quantities": estimated(QuantityCache(evidence(name, Path(folder))))}
            lines = lines_of_pages(name, Path(folder))
        if given.write:
            write(name, now, lines)
            continue
        changed = (differences(read(name, part), now[part], f"{name}.{part}") for part in now)
        found += print_first([*chain.from_iterable(changed), *line_differences(kept_pages(name), lines)])
    if not given.write:
        print(f"{found} differences" if found else "as it was", file=sys.stderr)
    return int(found > 0)


def print_first(lines: Sequence[str]) -> int:
    """Print the first lines; give the number of all."""
    print("\n".join(lines[:MOST_TOLD]), end="\n" if lines else "")
    return len(lines)


def write(name: str, now: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Keep what a set says now, and the lines of its pages."""
    KEPT.mkdir(exist_ok=True)
    for part, contents in now.items():
        text = json.dumps(contents, ensure_ascii=False, separators=(",", ":"))
        (KEPT / f"{name}.{part}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (KEPT / f"{name}.pages.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(name: str, part: str) -> Any:
    """What was kept."""
    return json.loads(gzip.decompress((KEPT / f"{name}.{part}.json.gz").read_bytes()))


if __name__ == "__main__":
    sys.exit(main())
