"""Machines in a run's config: their settings, jobs and results."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from workflow.result_files import session_is_due, usable_record

# Maximum number of tries for a machine's job. Each try resumes where the last one failed. After the last try, the job
# ends without an error, to allow a report on the other machines. If the user repeats the command, the job is tried
# again.
TRIES = 2
_FAILED = "failed: "
# Settings that a machine may override.
_OWN = ("preset", "budget_min", "require")
# Prefix to the shell command for a machine's job. If all tries have failed, it writes the last error (or else the last
# log line) to the job's output file and exits.
GIVE_UP = (
    "if [ {resources.attempt} -gt {params.tries} ]; then echo " + _FAILED + "$({{ grep -o 'error: .*' "
    "{params.folder:q}/log || cat {params.folder:q}/log; }} | tail -n 1) > {output:q}; exit; fi; "
)


@dataclass(frozen=True)
class Machines:
    """Machines in a run's config, with their files in the results folder.

    granted_min: returns a preset's time budget in minutes.

    Each machine has a folder in the results folder, which contains:
    `ended`: the word `measured`, or the reason for the failure;
    `asked`: a file that is rewritten to request another try;
    `log`: the output from all tries;
    `results`: the results from the workflow that ran for the machine.
    """

    config: Mapping[str, Any]
    results: str
    granted_min: Callable[[str], float]

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings by machine name."""
        return {name: about or {} for name, about in (self.config["machines"] or {}).items()}

    def name_pattern(self, *, ssh: bool) -> str:
        """Return a regex to match machines with (or without) ssh by name. Without such machines, it matches nothing."""
        return "|".join(name for name, about in self.settings.items() if ("ssh" in about) == ssh) or "(?!)"

    def setting(self, name: str, key: str, default: Any = None) -> Any:
        """Return a machine's setting.

        If the machine lacks this setting, return the run's setting for a key in _OWN, and `default` for another key.
        """
        return self.settings[name].get(key, self.config[key] if key in _OWN else default)

    def preset_files(self, name: str) -> list[str]:
        """Return a list with a machine's preset file; the list is empty for the study's own presets."""
        preset = str(self.setting(name, "preset"))
        return [preset] if preset.endswith((".yaml", ".yml")) else []

    def config_words(self, name: str, preset: str | None = None) -> list[str]:
        """Return the `--config` arguments for the workflow that runs on a machine.

        preset: path to the preset file on that machine.
        """
        words = {key: self.setting(name, key) for key in _OWN}
        if own := self.preset_files(name):
            words["preset"] = preset or str(Path(own[0]).resolve())
        words |= {name: self.config[name] for name in ("seed", "repeat_share", "until_decided", "sessions")}
        words |= {"results": "results", "published": "", "previous": ""}
        words["models"] = str(Path(self.config["models"]).resolve()) if self.config["models"] else ""
        # If a killed command has left a run on the machine, the workflow waits until that run ends.
        words |= {"machines": "", "wait": True}
        return [f"{key}={value}" for key, value in words.items()]

    def cores(self, name: str, attempt: int, here: int) -> int:
        """Return the number of cores to request from a scheduler; 1 after the last try, when the job only gives up.

        here: core count where this workflow runs, used if the machine's settings have no `cores`.
        """
        return int(self.setting(name, "cores", here)) if attempt <= TRIES else 1

    def runtime_min(self, name: str) -> int:
        """Return the time limit for a machine's job, in minutes.

        This is its `runtime`, or its budget and `until_decided` times 1.25 plus `repeat_share`, plus 15.
        """
        granted = self.setting(name, "budget_min") or self.granted_min(self.setting(name, "preset"))
        granted += self.config["until_decided"]
        return int(self.resource(name, "runtime") or math.ceil((1.25 + self.config["repeat_share"]) * granted + 15))

    def resource(self, name: str, key: str) -> Any:
        """Return a machine's value for a scheduler resource, or None if the machine does not set this resource."""
        return self.settings[name].get("resources", {}).get(key)

    def resources(self) -> dict[str, Callable[[Any], Any]]:
        """Return a Snakemake resource function for each resource that any machine sets, except `runtime`."""
        keys = {key for about in self.settings.values() for key in about.get("resources", {})} - {"runtime"}

        def answer(key: str) -> Callable[[Any], Any]:
            return lambda wildcards: self.resource(wildcards.machine, key)

        return {key: answer(key) for key in sorted(keys)}

    def file(self, name: str, what: str) -> str:
        """Return the path to a file in a machine's folder. what: the file's name, such as `ended`."""
        return f"{self.results}/machines/{name}/{what}"

    def failures(self) -> dict[str, str]:
        """Return the machines whose jobs have failed, with the reasons."""
        files = {name: Path(self.file(name, "ended")) for name in self.settings}
        endings = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.exists()}
        return {name: text.removeprefix(_FAILED).strip() for name, text in endings.items() if text.startswith(_FAILED)}

    def further_rounds_due(self, name: str) -> bool:
        """Tell if a measured machine lacks looks, or a session that may begin now, that the settings ask for."""
        results = Path(self.file(name, "results"))
        records = [record for path in results.glob("nodes/*/node.json") if (record := usable_record(path))]
        looks, sessions = (list((results / "further").glob(f"{kind}-*.json")) for kind in ("look", "session"))
        now = datetime.now(UTC)
        session_due = 1 + len(sessions) < self.config["sessions"] and any(
            session_is_due(record, now) for record in records
        )
        return bool(records) and (session_due or bool(self.config["until_decided"] and not looks))

    def request_measurements(self) -> None:
        """Request a job for each new machine, another try for each failed one, and further rounds if they are due."""
        failed = self.failures()
        for name in self.settings:
            file = Path(self.file(name, "asked"))
            if name in failed or not file.exists() or self.further_rounds_due(name):
                file.parent.mkdir(parents=True, exist_ok=True)
                # Write different content each time, because Snakemake may compare digests, not file times.
                file.write_text(f"{time.time_ns()}\n", encoding="utf-8")
