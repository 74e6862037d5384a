"""Compare the study's results for known nodes with the golden files: `python -m tests.golden`.

There are two sets: the published nodes, and these nodes with a synthetic fleet of GPU machines (`tests.golden.fleet`).
For each set, golden files hold the summary, the verdicts, and the number and mean of the estimates per quantity. They
also hold the fleet's pages and figures, and the published nodes' pages that the fleet lacks. Further files hold the
predictions for each preset (`tests.golden.plans`) and the constants in experiments (`tests.golden.settings`).

Prints the differences and exits with 1 if there are any. --write accepts an intended change.
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
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contract.files import read_json, read_yaml, write_json
from report import PACKAGE
from report.data.dataset import Dataset, MissingSourceError
from report.data.gather import gather
from report.data.gathered_files import read_dataset, read_summary
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
# These pages show published measurements, so the golden file for the published nodes has them although the fleet's has
# them too.
PUBLISHED_PAGES = ("==== page index", "==== page measurements/published")
SETS = {"fleet": [PUBLISHED, FLEET], "published": [PUBLISHED]}
# Relative difference to allow, because summation order and the last step in a fit depend on the processor.
TOLERANCE = 1e-6
# Relative difference to allow in printed numbers: 18.75, for example, may round up or down to three digits.
ROUNDING = 0.011
PRINTED_LINES = 40
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\\?\.\d+)?(?:e[+-]?\d+)?")


def judge_set(name: str, folder: Path, beside: Sequence[Path] = ()) -> None:
    """Gather and judge a set of nodes, together with the nodes in `beside`; write the results into `folder`."""
    gather([*SETS[name], *beside], folder / "data", allow_synthetic=name != "published")
    if name == "published":
        judge(judged_dataset(name, folder), folder / "verdicts.json")
    else:
        judge(
            judged_dataset(name, folder), folder / "verdicts.json", write_decidable_claims(folder), allow_synthetic=True
        )


def judged_dataset(name: str, folder: Path) -> Dataset:
    """Read a set's gathered dataset with the published figures, and for `published` also published measurements."""
    if name == "published":
        return read_dataset(folder / "data", read_reference(REFERENCE), read_published(OTHERS))
    return read_dataset(folder / "data", verified_figures())


def estimate_statistics(cache: QuantityCache) -> dict[str, Any]:
    """Count the estimates per quantity, and compute three statistics each for estimate, low and high.

    They are the counts of positive and negative values, and the geometric mean over all magnitudes above 0.
    """
    statistics: dict[str, Any] = {}
    for name, quantity in quantities().items():
        try:
            estimates = cache.estimates(quantity)
        except MissingSourceError:
            continue
        statistics[name] = {"estimates": len(estimates)}
        for end in ("estimate", "low", "high"):
            values = estimates.numbers(end)
            values = values[np.isfinite(values) & (values != 0)]
            mean = float(np.exp(np.log(np.abs(values)).mean())) if len(values) else 0.0
            statistics[name][end] = [int((values > 0).sum()), int((values < 0).sum()), mean]
    return statistics


def read_results(folder: Path) -> dict[str, Any]:
    """Read summary and verdicts from a judged folder."""
    document = json.loads((folder / "verdicts.json").read_text(encoding="utf-8")) | dict.fromkeys(PASSING, "")
    for node in document["nodes"]:
        node["source"] = Path(node["source"]).name
    return {"summary": _summary(read_summary(folder / "data")), "verdicts": document}


def lines_of_pages(name: str, folder: Path) -> list[str]:
    """Return the fleet's pages and figures as lines, or the published nodes' pages that the fleet lacks."""
    known = {*filter(is_heading, kept_pages("fleet"))} - {*PUBLISHED_PAGES} if name != "fleet" else set[str]()
    return list(pages(folder, known))


def kept_pages(name: str) -> list[str]:
    return (KEPT / f"{name}.pages.txt").read_text(encoding="utf-8").splitlines()


def is_heading(line: str) -> bool:
    return line.startswith("==== ")


def verified_figures() -> dict[str, dict[str, Any]]:
    """Return the published figures, all marked as verified, so that verdict rules which need them can be tried."""
    entries = read_reference(REFERENCE)
    return {
        name: {**entry, "value": 1000.0 if entry.get("value") is None else entry["value"], "status": "verified"}
        for name, entry in entries.items()
    }


def write_decidable_claims(folder: Path) -> Path:
    """Write the claims without `awaits`, so that none waits for a source."""
    claims = folder / "claims"
    claims.mkdir()
    for path in (PACKAGE / "claims").glob("*.yaml"):
        claim = read_yaml(path)
        claim.pop("awaits", None)
        # A JSON file is also a YAML file.
        write_json(claims / path.name, claim)
    for name in ("contradictions.yaml", "triangulation.yaml"):
        shutil.copyfile(PACKAGE / name, folder / name)
    return claims


def _summary(table: pd.DataFrame) -> dict[str, Any]:
    """Return the summary rows by node, experiment, point and metric."""
    names = ["node", "experiment", "device", "backend", "dtype", "threads", "params", "metric"]
    rows = json.loads(table.drop(columns="row").to_json(orient="records", double_precision=15))
    return {" ".join(str(row[name]) for name in names): row for row in rows}


def differences(kept: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield each difference between two documents, with its place in them."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*kept, *now]):
            if key not in now or key not in kept:
                yield f"{place}.{key}: {'gone' if key not in now else 'new'}"
            else:
                yield from differences(kept[key], now[key], f"{place}.{key}")
    elif isinstance(kept, list) and isinstance(now, list):
        for index, (old, new) in enumerate(zip_longest(kept, now)):
            yield from differences(old, new, f"{place}[{index}]")
    elif not _is_equal(kept, now):
        yield f"{place}: {_short(kept)} -> {_short(now)}"


def nodeless_differences(name: str) -> list[str]:
    return list(differences(read_json(KEPT / f"{name}.json"), NODELESS[name](), name))


def line_differences(kept: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """Yield removed and added lines, each group after its heading."""
    for kind, start, end, first, last in SequenceMatcher(None, kept, now, autojunk=False).get_opcodes():
        old, new = kept[start:end], now[first:last]
        if kind != "equal" and not (len(old) == len(new) and all(map(_is_equal, old, new))):
            heading = next((line for line in reversed(now[: first + 1]) if is_heading(line)), "")
            yield from (heading, *(f"- {_short(line)}" for line in old), *(f"+ {_short(line)}" for line in new))


def _is_equal(kept: Any, now: Any) -> bool:
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
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="sets to compare (default: all)")
    parser.add_argument("--write", action="store_true", help="accept the current results")
    arguments = parser.parse_args()
    if arguments.write:
        for name, document in NODELESS.items():
            write_json(KEPT / f"{name}.json", document())
    count = sum(print_first(nodeless_differences(name)) for name in NODELESS)
    for name in arguments.sets or SETS:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            judge_set(name, Path(folder))
            now = {
                **read_results(Path(folder)),
                "quantities": estimate_statistics(QuantityCache(judged_dataset(name, Path(folder)))),
            }
            lines = lines_of_pages(name, Path(folder))
        if arguments.write:
            write(name, now, lines)
            continue
        changed = (differences(read(name, part), now[part], f"{name}.{part}") for part in now)
        count += print_first([*chain.from_iterable(changed), *line_differences(kept_pages(name), lines)])
    if not arguments.write:
        print(f"{count} differences" if count else "no differences", file=sys.stderr)
    return int(count > 0)


def print_first(lines: Sequence[str]) -> int:
    """Print the first PRINTED_LINES lines; return the total number."""
    print("\n".join(lines[:PRINTED_LINES]), end="\n" if lines else "")
    return len(lines)


def write(name: str, now: Mapping[str, Any], lines: Sequence[str]) -> None:
    """Write the golden files for a set."""
    KEPT.mkdir(exist_ok=True)
    for part, contents in now.items():
        text = json.dumps(contents, ensure_ascii=False, separators=(",", ":"))
        (KEPT / f"{name}.{part}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (KEPT / f"{name}.pages.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(name: str, part: str) -> Any:
    """Read a golden file."""
    return json.loads(gzip.decompress((KEPT / f"{name}.{part}.json.gz").read_bytes()))


if __name__ == "__main__":
    sys.exit(main())
