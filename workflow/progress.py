"""What a person sees of a run, in place of Snakemake's job blocks: a line for each stage and finding, and one bar.

It writes when a job starts or ends and never in between, so that nothing wakes up beside a measurement but a look at
the clock now and then: predictions are of running time, and a run may be stopped for an hour. Jobs leave what they say
in their logs, which end in one sentence; that is what is told here. Snakemake's own words go to its file.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent
from tqdm import tqdm

from contract.encoding import escape_unprintable
from contract.running_time import RunningTime

# Seconds that a stage takes on two cores, until one of its kind has been timed; of measuring, the plan knows them.
STAGES = {
    "discover": ("discovering what this machine is", 8),
    "machine": ("measuring {}", 1200),
    "machine_by_ssh": ("measuring {}, by ssh", 1200),
    "preliminary": ("a first page, from round 1", 30),
    "gather": ("gathering the samples, with those of the published machines", 6),
    "judge": ("judging the claims", 15),
    "report": ("rendering the report, page and PDF", 60),
    "site": ("adding the site's files: verdicts, data, a picture", 8),
    "lint": ("checking that every number has its source, unit and interval (lint.txt)", 8),
}
# What their logs' last lines say is told; the site's is of no interest to who looks on.
TOLD = ("discover", "measure", "preliminary", "gather", "judge", "lint")
ERROR_LINES = 15
# Seconds between two looks at the clock: only longer pauses matter here.
LOOK_S = 5.0
# Fewer bytes than this hold no log.
FULL = 100_000
GO_ON = "what was finished is kept; the same command goes on from there"


def take_over(workflow: Any, results: Callable[[], str]) -> None:
    """Show `Progress` on the console in place of Snakemake's words, unless the user has asked for those."""
    escape_unprintable(*(getattr(handler, "stream", None) for handler in logger.handlers))
    asked = workflow.output_settings
    own_words = (
        asked.verbose or asked.printshellcmds or asked.quiet or asked.debug_dag or asked.dryrun
    ) or asked.log_handler_settings
    console = next((handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"), None)
    if own_words or console is None or not workflow.is_main_process:
        return
    logger.removeHandler(console)
    clock = RunningTime(tick_s=LOOK_S).start().now
    logger.addHandler(
        Progress(console, results, lambda: workflow.dag.needrun_jobs(), workflow.logger_manager.get_logfile, clock)
    )


class Progress(logging.Handler):
    """Tells a person of a run from what Snakemake logs about it.

    console: the handler that this one stands in for. results: names their folder, once a run has begun.
    unfinished: the jobs that are still to be done, those at work included. own_logs: the files of Snakemake's own log.
    """

    def __init__(
        self,
        console: Any,
        results: Callable[[], str],
        unfinished: Callable[[], Iterable[Any]],
        own_logs: Callable[[], Sequence[str]] = list,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._console, self._folder = console, results
        self._unfinished, self._own_logs, self._clock = unfinished, own_logs, clock
        self._stream: TextIO = console.stream
        self._held: list[logging.LogRecord] = []
        self._began: float | None = None
        self._jobs: dict[int, dict[str, Any]] = {}
        self._ended: set[int] = set()
        # Predicted and real seconds of what has ended: of measuring, and of all else.
        self._spent = {"measure": [0.0, 0.0], "rest": [0.0, 0.0]}
        self._left_s: float | None = None
        self._known: set[str] = set()
        self._round, self._failed, self._interrupted = 0, False, False
        self._plan: dict[str, Any] = {}
        # tqdm's own thread would wake up during samples.
        tqdm.monitor_interval = 0
        self._bar: tqdm | None = None
        if self._stream.isatty():
            form = "{percentage:3.0f}% {bar} {desc}"
            self._bar = tqdm(total=1.0, bar_format=form, file=self._stream, leave=False, delay=1e9)

    @property
    def _results(self) -> Path:
        return Path(self._folder())

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of one record; what cannot be told is shown as Snakemake would, and no reason for a run to end."""
        try:
            self._tell(record)
        except Exception:
            self._console.handle(record)

    def _tell(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.WORKFLOW_STARTED:
            # What was held until here is about the settings of a run that goes well.
            self._began, self._held = self._clock(), []
        elif self._began is None:
            self._held.append(record)
            if record.levelno >= logging.WARNING:
                self.show_held()
        elif event == LogEvent.JOB_INFO:
            self._start(record.__dict__)
        elif event == LogEvent.JOB_FINISHED:
            self._end(record.__dict__["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._fail(record.__dict__)
        else:
            self._other(record.getMessage(), record)

    def close(self) -> None:
        """Take the bar away; what is held without a run (`--lint`, `--summary`, …) is shown as Snakemake would."""
        self.show_held()
        if self._bar is not None:
            self._bar.close()
        super().close()

    def show_held(self) -> None:
        """Show what was held back until a run begins, as Snakemake would."""
        for record in self._held:
            self._console.handle(record)
        self._held = []

    def _start(self, job: dict[str, Any]) -> None:
        rule = job["rule_name"]
        self._jobs[job["jobid"]] = {**job, "since": self._clock()}
        if rule != "discover":
            self._estimate()
        if rule == "measure":
            number = int(job["wildcards"]["round"])
            if number != self._round:
                self._round = number
                self._say(f"measuring, round {number} of {self._planned().get('rounds', number)}")
        elif rule in STAGES:
            self._say(STAGES[rule][0].format(job["wildcards"].get("machine")))
        self._draw(_name(job))

    def _end(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is None:
            return
        self._ended.add(number)
        rule = job["rule_name"]
        if predicted := self._predicted(rule, job["wildcards"]):
            spent = self._spent["measure" if rule == "measure" else "rest"]
            spent[0] += predicted
            spent[1] += self._clock() - job["since"]
        if rule != "discover":
            self._estimate()
        if rule in TOLD:
            for log in job["log"]:
                self._relay(_lines(log))
        if rule.startswith("machine"):
            # Measured, or why not.
            self._say(f"  {job['wildcards']['machine']}: {' '.join(_lines(job['output'][0]))}")
        if rule == "measured":
            there = [str(Path(file).parent) for file in job["input"] if not "".join(_lines(file)).startswith("failed")]
            self._say(f"samples: {', '.join(there) or 'none'}")
        if rule in ("study", "all"):
            self._say_where()

    def _relay(self, lines: list[str]) -> None:
        """Notes of a job, each once in a run, and the sentence that its log ends with."""
        for line in lines:
            if line.startswith(("note: ", "warning: ")) and line not in self._known:
                self._known.add(line)
                self._say(f"  {line}")
        if lines and lines[-1] not in self._known:
            self._say(f"  {lines[-1]}")

    def _fail(self, error: dict[str, Any]) -> None:
        job = self._jobs.get(error["jobid"], {})
        self._failed = True
        if self._interrupted:
            return
        self._say(f"failed: {_name({**error, **job})}; the end of its log, {', '.join(error['log']) or 'none'}:")
        # A scheduler's own logs are named above. What Snakemake says is of use where the job could say nothing.
        told = [line for log in job.get("log") or error["log"] for line in _lines(log)[-ERROR_LINES:]]
        for line in told or (error.get("rule_msg") or "(it is empty)").splitlines()[:ERROR_LINES]:
            self._say(f"  {line[:200]}")
        # Then the log could not say it either.
        if shutil.disk_usage(self._results).free < FULL:
            self._say(f"  {self._results}: the disk is full: free some space")

    def _other(self, message: str, record: logging.LogRecord) -> None:
        if message.startswith("Nothing to be done"):
            self._say(message)
            self._say_where()
        elif message.startswith("Terminating processes on user request"):
            self._interrupted = True
            self._say(f"interrupted: {GO_ON}")
        elif record.levelno >= logging.WARNING and not self._interrupted:
            if "At least one job did not complete successfully" in message and self._failed:
                own = "".join(f" and {path}" for path in self._own_logs())
                self._say(f"stopped: {GO_ON}. Logs: {self._results}/logs{own}")
            # A failed command and the end of the run are told by now, in the job's own words.
            elif getattr(record, "exception", "") != "RuleException" and "job execution failed" not in message:
                if message not in self._known:
                    self._say(message.strip())
                self._known.add(message)

    def _say_where(self) -> None:
        page, pdf = self._results / "report" / "index.html", self._results / "report" / "report.pdf"
        if page.exists() and pdf.exists():
            self._say(f"report: {page}")
            self._say(f"        {pdf}")

    def _planned(self) -> dict[str, Any]:
        if not self._plan:
            try:
                self._plan = json.loads((self._results / "plan.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return {}
        return self._plan

    def _predicted(self, rule: str, labels: dict[str, Any]) -> float:
        """Seconds that a job should take, as known before the run."""
        if rule != "measure":
            return float(STAGES[rule][1]) if rule in STAGES else 0.0
        rounds = self._planned().get("seconds", {}).get(f"{labels['experiment']}.{labels['device']}", [])
        number = int(labels["round"])
        return float(rounds[number - 1]) if number <= len(rounds) else 0.0

    def _estimate(self) -> None:
        """Seconds that the rest should take: as predicted, times how far off predictions were so far."""
        off = {kind: real / predicted if predicted else 1.0 for kind, (predicted, real) in self._spent.items()}
        now, left, beside = self._clock(), 0.0, 0.0
        for job in self._unfinished():
            if job.jobid in self._ended:
                continue
            rule = job.rule.name
            seconds = self._predicted(rule, job.wildcards_dict) * off["measure" if rule == "measure" else "rest"]
            begun = self._jobs.get(job.jobid, {}).get("since", now)
            seconds = max(0.0, seconds - (now - begun))
            # Other machines measure beside each other.
            beside = max(beside, seconds if rule.startswith("machine") else 0.0)
            left += 0.0 if rule.startswith("machine") else seconds
        self._left_s = left + beside

    def _share(self) -> float:
        assert self._began is not None and self._left_s is not None
        spent = self._clock() - self._began
        return spent / (spent + self._left_s) if spent + self._left_s else 1.0

    def _draw(self, doing: str) -> None:
        if self._bar is None or self._left_s is None:
            return
        size = shutil.get_terminal_size()
        self._bar.delay, self._bar.ncols, self._bar.nrows = 0, size.columns - 1, size.lines
        self._bar.n = self._share()
        # At what time it ends stays true while nothing is drawn.
        end = time.strftime("%H:%M", time.localtime(time.time() + self._left_s))
        self._bar.set_description_str(f"{_minutes(self._left_s)} left, until {end}: {doing}", refresh=True)

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        elif self._left_s is not None:
            text = f"[{self._share():4.0%}, {_minutes(self._left_s)} left] {text}"
        self._stream.write(text + "\n")
        self._stream.flush()


def _name(job: dict[str, Any]) -> str:
    """'measure gemm on cpu, round 2', 'judge'."""
    labels = job.get("wildcards") or {}
    if "experiment" not in labels:
        return f"{job['rule_name']} {labels.get('machine', '')}".strip()
    return f"{job['rule_name']} {labels['experiment']} on {labels['device']}, round {labels['round']}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _lines(log: str) -> list[str]:
    """The lines of a job's log that say something; none if it cannot be read."""
    try:
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]
