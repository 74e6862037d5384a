"""Takes files of a finished study away and gives its command again: `python -m tests.workflow.losses`.

Every set of the losses below is tried, one after another, on copies of one small study; what must come back is what was
there, under the same name, and nothing else may be measured again. Of the report only the tables are made for real.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.workflow import kills
from tests.workflow.clones import ROOT
from tests.workflow.standin import commands
from workflow.results import is_measured

PRESET = kills.PRESET.replace("rounds: 3", "rounds: 2").replace("0.5", "0.05")


@dataclass(frozen=True)
class Study:
    """A study in a working directory of its own; standin: the commands for which `commands` stands in."""

    path: Path
    standin: str = commands.ALL

    @property
    def results(self) -> Path:
        return self.path / "results"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`snakemake --cores all` with the settings of the study; a word that begins with `-` comes before them."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("STUDY_", "STANDIN_", "PYTEST_"))}
        own |= {"STANDIN_COMMANDS": self.standin, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"}
        settings = ["--config", "preset=mine.yaml", "published=others", "--"]
        options, targets = [word for word in words if word[0] == "-"], [word for word in words if word[0] != "-"]
        return subprocess.run(
            ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "all", *options, *settings, *targets],
            cwd=self.path, env=own, capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip

    def copy(self, path: Path) -> Study:
        """The same study elsewhere, its files as old as they are."""
        shutil.copytree(self.path, path, symlinks=True)
        return Study(path, self.standin)

    def files(self) -> set[str]:
        """All files of the results but those of a run that is under way or was."""
        found = {str(path.relative_to(self.results)) for path in self.results.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith(("logs", "preliminary")) and "/." not in f"/{name}"}

    def rounds(self) -> dict[str, bytes]:
        """The finished rounds."""
        return {path.name: path.read_bytes() for path in self.results.glob("nodes/*/*.parquet")}


def prepare(path: Path, standin: str = commands.ALL) -> Study:
    """A working directory in which nothing is measured yet."""
    path.mkdir(parents=True)
    commands.put_into(path)
    (path / "mine.yaml").write_text(PRESET)
    node = sorted((ROOT / "data/nodes").glob("*/clock.cpu.1.parquet"))[0].parent
    (path / "others" / node.name).mkdir(parents=True)
    for name in ("node.json", *(f"clock.cpu.{number}.parquet" for number in (1, 2, 3))):
        shutil.copyfile(node / name, path / "others" / node.name / name)
    return Study(path, standin)


def _remove(pattern: str) -> Callable[[Study], None]:
    def lose(study: Study) -> None:
        found = list(study.results.glob(pattern))
        assert found, pattern
        for path in found:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return lose


def _spoil(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Study], None]:
    def lose(study: Study) -> None:
        found = list(study.results.glob(pattern))
        assert found, pattern
        for path in found:
            path.write_bytes(change(path.read_bytes()))

    return lose


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


LOSSES: dict[str, Callable[[Study], None]] = {
    "node.json": _remove("node.json"),
    "plan.json": _remove("plan.json"),
    "a round": _remove("nodes/*/*.2.parquet"),
    "the sealed record": _remove("nodes/*/node.json"),
    "the tables": _remove("data"),
}
# Others of their kind, each tried alone.
MORE: dict[str, Callable[[Study], None]] = {
    "half of node.json": _spoil("node.json", _half),
    "node.json of zero bytes": _spoil("node.json", lambda _: b""),
    "half of plan.json": _spoil("plan.json", _half),
    "a plan without jobs": _spoil("plan.json", lambda _: b'{"schema": 3}'),
    "a plan that is a list": _spoil("plan.json", lambda _: b"[]"),
    "a plan of another schema": _spoil("plan.json", lambda content: content.replace(b'"schema": 3', b'"schema": 2')),
    "half of a round": _spoil("nodes/*/*.2.parquet", _half),
    "a round of zero bytes": _spoil("nodes/*/*.1.parquet", lambda _: b""),
    "half of the sealed record": _spoil("nodes/*/node.json", _half),
    "all rounds": _remove("nodes/*/*.parquet"),
    "the node's folder": _remove("nodes/*"),
    "a table": _remove("data/summary.csv"),
    "the verdicts": _remove("verdicts.json"),
    "a table of verdicts": _remove("verdict_cells.parquet"),
    "a figure": _remove("report/figures/front.json"),
    "the appendix": _remove("report/appendix.pdf"),
    "the site's verdicts": _remove("report/verdicts.csv"),
    "everything": _remove("*"),
}


def notes_lost(study: Study) -> None:
    """Lose Snakemake's notes and the times of files, as a copy to another folder or machine does."""
    shutil.rmtree(study.path / ".snakemake")
    for path in sorted(study.results.rglob("*"), reverse=True):
        path.touch()


def faults(
    whole: Study, study: Study, lost: Iterable[Callable[[Study], None]], *words: str, thrice: bool = True
) -> list[str]:
    """Differences from `whole` after losses in `study`, a copy of it, and the same command.

    thrice: the command is given once more, to see that it has nothing left to do.
    """
    for lose in lost:
        lose(study)
    kept = {name: content for name, content in study.rounds().items() if content == whole.rounds()[name]}
    again = study.run(*words)
    found = []
    if again.returncode:
        told = [line for line in again.stderr.splitlines() if line.startswith("error: ")]
        return [] if len(told) == 1 else [f"exit code {again.returncode}: {again.stdout[-800:]} {again.stderr[-2000:]}"]
    found += [f"missing: {name}" for name in sorted(whole.files() - study.files())]
    found += [f"not there before: {name}" for name in sorted(study.files() - whole.files())]
    now = study.rounds()
    found += [f"measured again: {name}" for name, content in kept.items() if now.get(name) != content]
    if not is_measured(study.results / "nodes"):
        found.append("no sealed record with all its rounds")
    if thrice and "Nothing to be done" not in (more := study.run(*words)).stderr + more.stdout:
        found.append(f"the same command a third time does more: {more.stdout[-800:]} {more.stderr[-800:]}")
    return found


def cases() -> list[tuple[str, ...]]:
    """Every set of LOSSES, and each of MORE, by their names."""
    sets = itertools.chain.from_iterable(itertools.combinations(LOSSES, size) for size in range(len(LOSSES) + 1))
    return [*sets, *((name,) for name in MORE)]


def campaign(folder: Path, standin: str, words: Sequence[str]) -> list[str]:
    """Try every case, with and without Snakemake's notes; all faults."""
    whole, found = prepare(folder / "whole", standin), []
    first = whole.run(*words)
    assert first.returncode == 0, first.stdout + first.stderr
    for number, (case, carried) in enumerate(itertools.product(cases(), (False, True))):
        study = whole.copy(folder / str(number))
        lost = [*(notes_lost for _ in range(carried)), *((LOSSES | MORE)[name] for name in case)]
        name = f"{', '.join(case) or 'nothing'}{'; carried elsewhere' * carried}"
        these = faults(whole, study, lost, *words)
        print(f"{name}: {'; '.join(these) or 'as before'}", flush=True)
        found += [f"{name}: {fault}" for fault in these]
        shutil.rmtree(study.path)
    return found


def main() -> int:
    """Run what the command line asks for; returns 1 if anything was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.workflow.losses", description=__doc__)
    parser.add_argument("--real", action="store_true", help="measure, seal and gather for real; a case takes longer")
    parser.add_argument("target", nargs="*", help="default: the whole study")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="losses-") as folder:
        standin = commands.REPORTING if arguments.real else commands.ALL
        found = campaign(Path(folder), standin, arguments.target)
    print(f"not as it should be: {len(found)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
