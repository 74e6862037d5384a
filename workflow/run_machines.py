"""Machines in a run's config: their settings, jobs and results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

# A machine's job is tried this many times, and resumes after each failure. Then it gives up, so that the report is made
# for the other machines. If the user gives the same command again, the job is tried again.
TRIES = 2
_FAILED = "failed: "
# Settings that a machine may override.
_OWN = ("preset", "budget_min", "require")
# Start of a machine job's shell command: after the last try, write the last error (or log line) and exit.
GIVE_UP = (
    "if [ {resources.attempt} -gt {params.tries} ]; then echo " + _FAILED + "$({{ grep -o 'error: .*' "
    "{params.folder:q}/log || cat {params.folder:q}/log; }} | tail -n 1) > {output:q}; exit; fi; "
)


@dataclass(frozen=True)
class Machines:
    """Machines in a run's config, with their files in the results folder. granted_min: returns a preset's minutes.

    Each machine has a folder in the results folder, with these files. `ended`: success or the failure's reason;
    `asked`: newer than `ended` to request another try; `log`: output from all tries; `results`: output from the
    workflow that ran for the machine.
    """

    config: Mapping[str, Any]
    results: str
    granted_min: Callable[[str], float]

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings by machine name."""
        return {name: about or {} for name, about in (self.config["machines"] or {}).items()}

    def name_pattern(self, *, ssh: bool) -> str:
        """Return a regex for the names of machines with (or without) ssh. Without such machines, it matches nothing."""
        return "|".join(name for name, about in self.settings.items() if ("ssh" in about) == ssh) or "(?!)"

    def setting(self, name: str, key: str, default: Any = None) -> Any:
        """Return a machine's setting. If it is unset, return the run's setting for keys in _OWN, else `default`."""
        return self.settings[name].get(key, self.config[key] if key in _OWN else default)

    def preset_files(self, name: str) -> list[str]:
        """Return the file of a machine's preset; empty for the study's own presets."""
        preset = str(self.setting(name, "preset"))
        return [preset] if preset.endswith((".yaml", ".yml")) else []

    def config_words(self, name: str, preset: str | None = None) -> list[str]:
        """Return `--config` words for the workflow on a machine. preset: path to the preset file on that machine."""
        words = {key: self.setting(name, key) for key in _OWN}
        if own := self.preset_files(name):
            words["preset"] = preset or str(Path(own[0]).resolve())
        words |= {"seed": self.config["seed"], "results": "results", "published": "", "previous": ""}
        words["models"] = str(Path(self.config["models"]).resolve()) if self.config["models"] else ""
        # The workflow waits for a run that a killed command has left on the machine.
        words |= {"machines": "", "wait": True}
        return [f"{key}={value}" for key, value in words.items()]

    def cores(self, name: str, attempt: int, here: int) -> int:
        """Return the core count to request from a scheduler; 1 for giving up. here: cores on this machine."""
        return int(self.setting(name, "cores", here)) if attempt <= TRIES else 1

    def runtime_min(self, name: str) -> int:
        """Return the runtime limit in minutes for a machine's job: `runtime`, else 1.5 times its budget plus 15."""
        granted = self.setting(name, "budget_min") or self.granted_min(self.setting(name, "preset"))
        return int(self.resource(name, "runtime") or math.ceil(1.5 * granted + 15))

    def resource(self, name: str, key: str) -> Any:
        """Return a scheduler resource for a machine; None if unset."""
        return self.settings[name].get("resources", {}).get(key)

    def resources(self) -> dict[str, Callable[[Any], Any]]:
        """Return Snakemake resource functions for all resources in use, except `runtime`."""
        asked = {key for about in self.settings.values() for key in about.get("resources", {})} - {"runtime"}

        def answer(key: str) -> Callable[[Any], Any]:
            return lambda wildcards: self.resource(wildcards.machine, key)

        return {key: answer(key) for key in sorted(asked)}

    def file(self, name: str, what: str) -> str:
        """Return the path to a machine's file."""
        return f"{self.results}/machines/{name}/{what}"

    def failures(self) -> dict[str, str]:
        """Return the failed machines with their reasons."""
        files = {name: Path(self.file(name, "ended")) for name in self.settings}
        endings = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.exists()}
        return {name: text.removeprefix(_FAILED).strip() for name, text in endings.items() if text.startswith(_FAILED)}

    def request_measurements(self) -> None:
        """Request a job for each new machine, and another try for each failed one."""
        failed = self.failures()
        for name in self.settings:
            file = Path(self.file(name, "asked"))
            if name in failed or not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                # Write different content each time, since Snakemake compares file times or digests.
                file.write_text(f"{time.time_ns()}\n", encoding="utf-8")
