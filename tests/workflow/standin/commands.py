"""Stand-ins for commands of the study that take long: each writes the files that the workflow expects of it, at once.

`put_into` makes packages `experiments` and `report` in a working directory, where `python -m` finds them before the
study's own. STANDIN_COMMANDS names the commands that they answer; all others go on to the study's own. Everything that
the stand-ins write is synthetic.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPORTING = "judge lint figures render failures site preliminary"
ALL = f"check probe plan run seal gather {REPORTING}"
KIND, INSTANCE = "some-cpu-2c-abc123", "0a1b2c"


def put_into(folder: Path) -> None:
    """Make the stand-in packages in a folder."""
    for package in ("experiments", "report"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        text = f"from tests.workflow.standin.commands import main\n\nmain({package!r})\n"
        (folder / package / "__main__.py").write_text(text)


def main(package: str) -> None:
    """Answer a command in place of `package`, or hand it on to the study's own."""
    command = sys.argv[1]
    if command in os.environ["STANDIN_COMMANDS"].split():
        globals()[f"_{command}"](dict(zip(sys.argv, sys.argv[1:], strict=False)))
        return
    sys.path.remove(str(Path.cwd()))
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    runpy.run_module(package, run_name="__main__", alter_sys=True)


Options = dict[str, str]


def _check(_options: Options) -> None:
    print(json.dumps({"digest": "", "budget_min": 0}))


def _probe(options: Options) -> None:
    from contract.node import node_id, write_node

    about: dict[str, Any] = {
        "schema": 1,
        "id": node_id(KIND, INSTANCE),
        "kind": KIND,
        "instance": INSTANCE,
        "origin": "synthetic",
        "hardware": {"cpu": {"model": "Some CPU", "usable_cores": 2}, "memory_bytes": 1, "gpus": []},
        "software": {"os": "Linux 6", "python": "3.11", "packages": {}, "blas": []},
        "devices": [{"id": "cpu", "kind": "cpu", "name": "Some CPU"}],
        "left_out": [],
        "study": {"version": "0", "commit": "unknown"},
        "started_utc": "2026-01-01T00:00:00Z",
    }
    write_node(Path(options["--out"]), about)


def _plan(options: Options) -> None:
    from contract.files import write_json
    from experiments.jobs import Job, Plan, Point

    # Leave the budget out of a dry run's answer: nothing of it is looked at.
    if "--out" in options:
        jobs = [Job(name, "cpu", "cpu", 0.1, 60.0, 9, (Point.of(name, {"n": 8}, point_s=1.0),)) for name in ("a", "b")]
        write_json(Path(options["--out"]), Plan(tuple(jobs), 2).plain)


def _run(options: Options) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    from contract.node import read_node
    from experiments.jobs import read_plan
    from experiments.seal import begin

    out, node, plan = (Path(options[name]) for name in ("--out", "--node", "--plan"))
    place = {"experiment": options["run"], "device": "cpu", "round": int(options["--round"])}
    table = arrow.Table.from_pylist([{"node": read_node(node)["id"], "run": uuid.uuid4().hex, **place}])
    parquet.write_table(table.replace_schema_metadata({"study": json.dumps({"schema": 1})}), out)
    begin(out.parent, node, read_plan(plan))


def _seal(options: Options) -> None:
    from contract.node import PARTIAL, read_node, write_node
    from experiments.jobs import read_plan
    from experiments.seal import asked

    out = Path(options["--out"])
    jobs = {"jobs": asked(read_plan(Path(options["--plan"])))} if "--plan" in options else {}
    write_node(out, {**read_node(Path(options["--probe"])), **jobs})
    out.with_name(PARTIAL).unlink(missing_ok=True)


def _writes(*names: str, beside: str = "") -> Callable[[Options], None]:
    """A command that writes files of these names into its --out, or those beside it; {} is the command's next word."""

    def command(options: Options) -> None:
        out = Path(options["--out"])
        for name in names:
            path = (out.parent if beside else out) / name.format(sys.argv[2])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("synthetic\n")

    return command


_TABLES = ("samples.parquet", "samples.csv", "summary.parquet", "summary.csv", "dictionary.csv", "nodes.json")
_gather = _writes(*_TABLES, "refused.json", "datapackage.json")
_judge = _writes("verdicts.json", "verdicts.csv", "verdicts.parquet", "verdict_cells.parquet", beside="yes")
_figures = _writes("{}.json")
_render = _writes("index.html", "report.pdf", "appendix.pdf", "index.qmd", "failures.json")
_preliminary = _writes("index.html")


def _site(options: Options) -> None:
    options["--out"] = options["--report"]
    _writes("verdicts.json", "verdicts.csv", "data/summary.csv", "editions.json")(options)


def _failures(_options: Options) -> None:
    pass


def _lint(_options: Options) -> None:
    print("no fault")
