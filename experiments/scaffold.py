"""Write a new experiment: its module, sweep, quantity, section and test.

The new files already work; the user then replaces their contents.
"""

from __future__ import annotations

import keyword
import re
from contextlib import ExitStack
from pathlib import Path
from string import Template

from contract.errors import StudyError
from contract.files import write_text

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "workflow" / "templates"
# MADE: the file to write for each template. PRESETS: the presets to which the new experiment's sweep is added.
MADE = {
    "experiment": "experiments/suite/{}.py",
    "quantity": "report/quantities/{}.py",
    "section": "report/pages/families/{}.py",
    "test": "tests/experiments/test_{}.py",
}
PRESETS = ("workflow/presets/quick.yaml", "workflow/presets/full.yaml", "tests/workflow/tiny.yaml")


def write_experiment(name: str) -> list[str]:
    """Write an experiment's files, all or none; return their paths in the repository.

    Raises StudyError for an invalid or taken name; OSError if a file cannot be written.
    """
    module = name.replace("-", "_")
    if not re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", module) or keyword.iskeyword(module) or len(name) > 18:
        raise StudyError(
            f"new: {name!r} is not a valid name: use at most 18 lowercase letters, digits and _, as in time_to_train"
        )
    words = {"name": module.replace("_", "-"), "module": module, "title": module.replace("_", " ").capitalize()}
    templates = {path.stem: Template(path.read_text(encoding="utf-8")) for path in TEMPLATES.glob("*.txt")}
    text = {part: template.substitute(words) for part, template in templates.items()}
    files = {place.format(module): text[part] for part, place in MADE.items()}
    for path in files:
        if (ROOT / path).exists():
            raise StudyError(f"new: {name!r} is taken: {path} exists. Choose another name, or remove that file")
    before = {path: (ROOT / path).read_text(encoding="utf-8") for path in PRESETS}
    files |= {path: preset + text["sweep"] for path, preset in before.items()}
    with ExitStack() as undo:
        for path, contents in files.items():
            write_text(ROOT / path, contents)
            if path in before:
                undo.callback(write_text, ROOT / path, before[path])
            else:
                undo.callback((ROOT / path).unlink)
        undo.pop_all()
    return list(files)


def format_next_steps(name: str, paths: list[str]) -> str:
    """Format the written paths and the next steps."""
    run = f"python -m experiments run {name.replace('_', '-')} --preset {PRESETS[-1]} --out /tmp/new.cpu.1.parquet"
    says = "It works as it is. Try it, then put your own work in its place, as CONTRIBUTING.md says:"
    return "\n".join([*paths, says, f"  pytest {paths[3]}", f"  {run}"])
