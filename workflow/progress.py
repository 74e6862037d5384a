"""Console output for a run, to replace Snakemake's job blocks: one line per stage and result, and a progress bar.

Output is printed only when a job starts or ends, so as not to disturb measurements. Between these events, only a clock
is updated. This clock stops while the run is paused, because the predicted seconds do not include pauses. Each job's
log ends with a sentence, which is printed here. Snakemake's own output goes to its log file.
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
from workflow.result_files import usable_further_rounds

# Each stage's description and usual seconds on two cores. The rule `measure` is missing, because the plan predicts its
# seconds.
STAGES = {
    "discover": ("describing this machine", 8),
    "machine": ("measuring {}", 1200),
    "machine_by_ssh": ("measuring {}, by ssh", 1200),
    "preliminary": ("making a first page from round 1", 30),
    "look": ("judging undecided cases after these rounds", 60),
    "session": ("choosing points to measure again", 5),
    "seal": ("measuring disturbed points again", 5),
    "gather": ("gathering the samples, with those of the published machines", 6),
    "judge": ("judging the claims", 15),
    "report": ("rendering the report, page and PDF", 60),
    "site": ("adding the site's files: verdicts, data, a picture", 8),
    "lint": ("checking that every number has its source, unit and interval (lint.txt)", 8),
}
# Snakemake rules whose last log line is printed.
RELAYED = ("discover", "look", "session", "measure", "preliminary", "seal", "gather", "judge", "lint")
ERROR_LINES = 15
# Seconds between clock updates. Shorter pauses are not detected, which does not matter here.
TICK_S = 5.0
# A disk with fewer free bytes counts as full, because it has no room for a log.
FULL_BYTES = 100_000
RESUME_HINT = "finished rounds are kept; the same command goes on from there"


def replace_console(workflow: Any, results: Callable[[], str]) -> None:
    """Replace Snakemake's console output by `Progress`, unless the user's options ask for Snakemake's."""
    escape_unprintable(*(getattr(handler, "stream", None) for handler in logger.handlers))
    settings = workflow.output_settings
    own_words = (
        settings.verbose or settings.printshellcmds or settings.quiet or settings.debug_dag or settings.dryrun
    ) or settings.log_handler_settings
    console = next((handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"), None)
    if own_words or console is None or not workflow.is_main_process:
        return
    logger.removeHandler(console)
    clock = RunningTime(tick_s=TICK_S).start().now
    logger.addHandler(
        Progress(console, results, lambda: workflow.dag.needrun_jobs(), workflow.logger_manager.get_logfile, clock)
    )


class Progress(logging.Handler):
    """Logging handler that prints a run's progress from Snakemake's log records.

    console: the replaced handler. results: returns the results folder, once a run has begun. unfinished: returns the
    pending and running jobs. own_logs: returns Snakemake's log files.
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
        self._buffered: list[logging.LogRecord] = []
        self._began: float | None = None
        self._jobs: dict[int, dict[str, Any]] = {}
        self._ended: set[int] = set()
        # Sums of the predicted and the real seconds of finished jobs, for the rule `measure` and for all other rules.
        self._spent = {"measure": [0.0, 0.0], "rest": [0.0, 0.0]}
        self._left_s: float | None = None
        self._printed: set[str] = set()
        self._round, self._failed, self._interrupted = 0, False, False
        self._plan: dict[str, Any] = {}
        # Disable tqdm's monitor thread, which would wake up during samples.
        tqdm.monitor_interval = 0
        self._bar: tqdm | None = None
        if self._stream.isatty():
            form = "{percentage:3.0f}% {bar} {desc}"
            self._bar = tqdm(total=1.0, bar_format=form, file=self._stream, leave=False, delay=1e9)

    @property
    def _results(self) -> Path:
        return Path(self._folder())

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a record; if that fails, let Snakemake's own handler print it."""
        try:
            self._handle_record(record)
        except Exception:
            self._console.handle(record)

    def _handle_record(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == LogEvent.WORKFLOW_STARTED:
            # Drop the buffered records, because they only describe Snakemake's settings.
            self._began, self._buffered = self._clock(), []
        elif self._began is None:
            self._buffered.append(record)
            if record.levelno >= logging.WARNING:
                self.show_buffered()
        elif event == LogEvent.JOB_INFO:
            self._start(record.__dict__)
        elif event == LogEvent.JOB_FINISHED:
            self._end(record.__dict__["job_id"])
        elif event == LogEvent.JOB_ERROR:
            self._fail(record.__dict__)
        else:
            self._handle_other(record.getMessage(), record)

    def close(self) -> None:
        """Remove the bar. If no run has begun (`--lint`, `--summary`, …), print the buffered records."""
        self.show_buffered()
        if self._bar is not None:
            self._bar.close()
        super().close()

    def show_buffered(self) -> None:
        """Print the buffered records with Snakemake's handler."""
        for record in self._buffered:
            self._console.handle(record)
        self._buffered = []

    def _start(self, job: dict[str, Any]) -> None:
        rule = job["rule_name"]
        self._jobs[job["jobid"]] = {**job, "since": self._clock()}
        if rule != "discover":
            self._update_left()
        if rule == "measure":
            number = int(job["wildcards"]["round"])
            if number != self._round:
                self._round = number
                planned = self._read_plan().get("rounds", number)
                self._print(f"measuring, round {number}" + (f" of {planned}" if number <= planned else ""))
        elif rule in STAGES:
            self._print(STAGES[rule][0].format(job["wildcards"].get("machine")))
        self._draw(_job_name(job))

    def _end(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is None:
            return
        self._ended.add(number)
        rule = job["rule_name"]
        # `seal` takes as long as other load requires, so its time tells nothing about other rules.
        if rule != "seal" and (predicted := self._predict_s(rule, job["wildcards"])):
            spent = self._spent["measure" if rule == "measure" else "rest"]
            spent[0] += predicted
            spent[1] += self._clock() - job["since"]
        if rule != "discover":
            self._update_left()
        if rule in RELAYED:
            for log in job["log"]:
                self._print_log(_log_lines(log))
        if rule.startswith("machine"):
            # The job's output file contains the word `measured`, or the reason for the failure.
            self._print(f"  {job['wildcards']['machine']}: {' '.join(_log_lines(job['output'][0]))}")
        if rule == "measured":
            there = [
                str(Path(file).parent) for file in job["input"] if not "".join(_log_lines(file)).startswith("failed")
            ]
            self._print(f"samples: {', '.join(there) or 'none'}")
        if rule in ("study", "all"):
            self._print_report_paths()

    def _print_log(self, lines: list[str]) -> None:
        """Print the notes and warnings in a job's log, each only once per run, and the log's last line."""
        for line in lines:
            if line.startswith(("note: ", "warning: ")) and line not in self._printed:
                self._printed.add(line)
                self._print(f"  {line}")
        if lines and lines[-1] not in self._printed:
            self._print(f"  {lines[-1]}")

    def _fail(self, error: dict[str, Any]) -> None:
        job = self._jobs.get(error["jobid"], {})
        self._failed = True
        if self._interrupted:
            return
        self._print(f"failed: {_job_name({**error, **job})}; the end of its log, {', '.join(error['log']) or 'none'}:")
        # Print the end of the job's own log, or Snakemake's message if this log is empty. Scheduler logs, which
        # error["log"] also names, are read only if the job's own log is unknown.
        log_lines = [line for log in job.get("log") or error["log"] for line in _log_lines(log)[-ERROR_LINES:]]
        for line in log_lines or (error.get("rule_msg") or "(it is empty)").splitlines()[:ERROR_LINES]:
            self._print(f"  {line[:200]}")
        # The log may be empty because the disk is full.
        if shutil.disk_usage(self._results).free < FULL_BYTES:
            self._print(f"  {self._results}: the disk is full: free some space")

    def _handle_other(self, message: str, record: logging.LogRecord) -> None:
        if message.startswith("Nothing to be done"):
            self._print(message)
            self._print_report_paths()
        elif message.startswith("Terminating processes on user request"):
            self._interrupted = True
            self._print(f"interrupted: {RESUME_HINT}")
        elif record.levelno >= logging.WARNING and not self._interrupted:
            if "At least one job did not complete successfully" in message and self._failed:
                own = "".join(f" and {path}" for path in self._own_logs())
                self._print(f"stopped: {RESUME_HINT}. Logs: {self._results}/logs{own}")
            # Skip Snakemake's messages about a failed command, because the job's log has already been printed.
            elif getattr(record, "exception", "") != "RuleException" and "job execution failed" not in message:
                if message not in self._printed:
                    self._print(message.strip())
                self._printed.add(message)

    def _print_report_paths(self) -> None:
        page, pdf = self._results / "report" / "index.html", self._results / "report" / "report.pdf"
        if page.exists() and pdf.exists():
            self._print(f"report: {page}")
            self._print(f"        {pdf}")

    def _read_plan(self) -> dict[str, Any]:
        if not self._plan:
            try:
                self._plan = json.loads((self._results / "plan.json").read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return {}
        return self._plan

    def _predict_s(self, rule: str, labels: dict[str, Any]) -> float:
        """Return the seconds that were predicted for a job before the run; 0 without a prediction."""
        if rule != "measure":
            return float(STAGES[rule][1]) if rule in STAGES else 0.0
        rounds = self._read_plan().get("seconds", {}).get(f"{labels['experiment']}.{labels['device']}", [])
        number = int(labels["round"])
        if number <= len(rounds):
            return float(rounds[number - 1])
        return self._read_further_s(number).get(f"{labels['experiment']}.{labels['device']}", 0.0)

    def _read_further_s(self, number: int) -> dict[str, float]:
        """Return the predicted seconds by job of a further round (`contract.looks`)."""
        for path in (self._results / "further").glob("*.json"):
            further = usable_further_rounds(path)
            if further and number in further["rounds"]:
                return dict(further["seconds"])
        return {}

    def _update_left(self) -> None:
        """Update the remaining seconds.

        These are the unfinished jobs' predicted seconds, times the ratio of real to predicted seconds so far.
        """
        off = {kind: real / predicted if predicted else 1.0 for kind, (predicted, real) in self._spent.items()}
        now, left, beside = self._clock(), 0.0, 0.0
        for job in self._unfinished():
            if job.jobid in self._ended:
                continue
            rule = job.rule.name
            seconds = self._predict_s(rule, job.wildcards_dict) * off["measure" if rule == "measure" else "rest"]
            begun = self._jobs.get(job.jobid, {}).get("since", now)
            seconds = max(0.0, seconds - (now - begun))
            # Machines measure in parallel, so add only the slowest machine's time.
            beside = max(beside, seconds if rule.startswith("machine") else 0.0)
            left += 0.0 if rule.startswith("machine") else seconds
        self._left_s = left + beside

    def _done_share(self) -> float:
        assert self._began is not None and self._left_s is not None
        spent = self._clock() - self._began
        return spent / (spent + self._left_s) if spent + self._left_s else 1.0

    def _draw(self, doing: str) -> None:
        if self._bar is None or self._left_s is None:
            return
        size = shutil.get_terminal_size()
        self._bar.delay, self._bar.ncols, self._bar.nrows = 0, size.columns - 1, size.lines
        self._bar.n = self._done_share()
        # Also show the expected end time, because it stays true until the next update.
        end = time.strftime("%H:%M", time.localtime(time.time() + self._left_s))
        self._bar.set_description_str(f"{_format_minutes(self._left_s)} left, until {end}: {doing}", refresh=True)

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.clear()
        elif self._left_s is not None:
            text = f"[{self._done_share():4.0%}, {_format_minutes(self._left_s)} left] {text}"
        self._stream.write(text + "\n")
        self._stream.flush()


def _job_name(job: dict[str, Any]) -> str:
    """Format a job, as in 'measure gemm on cpu, round 2' or 'judge'."""
    labels = job.get("wildcards") or {}
    if "experiment" not in labels:
        return f"{job['rule_name']} {labels.get('machine', '')}".strip()
    return f"{job['rule_name']} {labels['experiment']} on {labels['device']}, round {labels['round']}"


def _format_minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _log_lines(log: str) -> list[str]:
    """Return the non-blank lines of a job's log, or no lines if the log cannot be read."""
    try:
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()]
