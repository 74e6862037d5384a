"""The machines that a run's settings name: what each is asked to do, and what has become of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

# A job that ended by whatever cause is tried again, and goes on; after these it gives up, so that the others' report is
# made. The same command tries it again.
TRIES = 2
_FAILED = "failed: "
# What each may set for itself.
_OWN = ("preset", "budget_min", "require")
# The beginning of a machine's job: past its tries it says its last error, or its last words, and that is all.
GIVE_UP = (
    "if [ {resources.attempt} -gt {params.tries} ]; then echo " + _FAILED + "$({{ grep -o 'error: .*' "
    "{params.folder:q}/log || cat {params.folder:q}/log; }} | tail -n 1) > {output:q}; exit; fi; "
)


@dataclass(frozen=True)
class Machines:
    """The settings of a run, its folder of results, and minutes that a preset grants.

    Each machine has a folder there: `ended` says whether it was measured, or why not; `asked` is older, unless it is to
    be tried again; `log` has all tries; `results` is what the workflow wrote that ran for it.
    """

    config: Mapping[str, Any]
    results: str
    granted_min: Callable[[str], float]

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """What is set for each, by its name."""
        return {name: about or {} for name, about in (self.config["machines"] or {}).items()}

    def by_ssh(self, yes: bool) -> str:
        """A pattern of the names of those that are reached by ssh, or of all others; of no name if there are none."""
        return "|".join(name for name, about in self.settings.items() if ("ssh" in about) == yes) or "(?!)"

    def of(self, name: str, key: str, default: Any = None) -> Any:
        """A setting of one machine: its own, else that of the run, where runs have it."""
        return self.settings[name].get(key, self.config[key] if key in _OWN else default)

    def own_preset(self, name: str) -> list[str]:
        """The file of a machine's preset, where that is none of the study's."""
        preset = str(self.of(name, "preset"))
        return [preset] if preset.endswith((".yaml", ".yml")) else []

    def words(self, name: str, preset: str | None = None) -> list[str]:
        """The settings of the workflow that measures a machine. preset: where the file of its preset lies there."""
        words = {key: self.of(name, key) for key in _OWN}
        if own := self.own_preset(name):
            words["preset"] = preset or str(Path(own[0]).resolve())
        words |= {"seed": self.config["seed"], "results": "results", "published": "", "previous": ""}
        words["models"] = str(Path(self.config["models"]).resolve()) if self.config["models"] else ""
        # What a command that was killed has left at work there comes to its end first.
        words |= {"machines": "", "wait": True}
        return [f"{key}={value}" for key, value in words.items()]

    def cores(self, name: str, attempt: int, here: int) -> int:
        """How many a scheduler is asked for; here: those of this machine. To give up takes no more than one."""
        return int(self.of(name, "cores", here)) if attempt <= TRIES else 1

    def minutes(self, name: str) -> int:
        """How long a scheduler lets a machine's job run: its budget, and room for what takes longer."""
        granted = self.of(name, "budget_min") or self.granted_min(self.of(name, "preset"))
        return int(self.resource(name, "runtime") or math.ceil(1.5 * granted + 15))

    def resource(self, name: str, key: str) -> Any:
        """What a scheduler is asked for on a machine's behalf; None where it is asked for nothing."""
        return self.settings[name].get("resources", {}).get(key)

    def resources(self) -> dict[str, Callable[[Any], Any]]:
        """Snakemake's functions of wildcards for all that any machine asks a scheduler for, but for its time."""
        asked = {key for about in self.settings.values() for key in about.get("resources", {})} - {"runtime"}

        def answer(key: str) -> Callable[[Any], Any]:
            return lambda wildcards: self.resource(wildcards.machine, key)

        return {key: answer(key) for key in sorted(asked)}

    def file(self, name: str, what: str) -> str:
        """The path of one of a machine's files."""
        return f"{self.results}/machines/{name}/{what}"

    def failed(self) -> dict[str, str]:
        """Those that could not be measured, each with the reason."""
        files = {name: Path(self.file(name, "ended")) for name in self.settings}
        said = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.exists()}
        return {name: text.removeprefix(_FAILED).strip() for name, text in said.items() if text.startswith(_FAILED)}

    def ask(self) -> None:
        """Ask for each that was not asked for yet, and again for those that failed."""
        failed = self.failed()
        for name in self.settings:
            file = Path(self.file(name, "asked"))
            if name in failed or not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                # Times differ, and so do digests, by one of which Snakemake goes.
                file.write_text(f"{time.time_ns()}\n", encoding="utf-8")
