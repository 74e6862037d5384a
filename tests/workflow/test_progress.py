"""Test the console output for Snakemake's log events."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from contract.running_time import RunningTime
from workflow import progress
from workflow.progress import Progress

NOTE = "note: left out of the environment: OMP_NUM_THREADS"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Run:
    """Simulated run with two experiments in two rounds, whose jobs take ten seconds instead of the predicted five."""

    def __init__(self, folder: Path, stream: io.StringIO) -> None:
        self.stream, self.folder, self.now, self.jobs = stream, folder, 0.0, 0
        plan = {"rounds": 2, "seconds": {"gemm.cpu": [5, 5], "peak.cpu": [5, 5]}}
        (folder / "plan.json").write_text(json.dumps(plan))
        self.left = [self._job("measure", name, number) for number in (1, 2) for name in ("gemm", "peak")]
        self.left += [self._job("judge"), self._job("study")]
        self.console = logging.StreamHandler(stream)
        self.shown = Progress(
            self.console, lambda: str(folder), lambda: self.left, lambda: ["own.log"], clock=lambda: self.now
        )

    def _job(self, rule: str, experiment: str = "", number: int = 0) -> Any:
        self.jobs += 1
        labels = {"experiment": experiment, "device": "cpu", "round": str(number)} if experiment else {}
        return SimpleNamespace(jobid=self.jobs, rule=SimpleNamespace(name=rule), wildcards_dict=labels)

    def log(self, event: LogEvent | None, message: str = "", level: int = logging.INFO, **fields: Any) -> None:
        record = logging.makeLogRecord({"msg": message, "levelno": level, "event": event, **fields})
        self.shown.handle(record)

    def start(self, job: Any) -> Path:
        log = self.folder / f"{job.jobid}.log"
        fields = {"jobid": job.jobid, "rule_name": job.rule.name, "wildcards": job.wildcards_dict, "log": [str(log)]}
        self.log(LogEvent.JOB_INFO, " Rule: x", input=[], **fields)
        self.log(LogEvent.SHELLCMD, "Shell command: python …")
        return log

    def do(self, job: Any, says: str) -> None:
        log = self.start(job)
        log.write_text(f"{NOTE}\nchatter of a library\n{says}\n" if says else "")
        self.now += 10
        self.log(LogEvent.JOB_FINISHED, "Finished jobid", job_id=job.jobid)
        self.left.remove(job)
        self.log(LogEvent.PROGRESS, "1 of 6 steps")

    def begin(self) -> None:
        self.log(None, "Config file is extended.")
        self.log(LogEvent.WORKFLOW_STARTED, "SNAKEMAKE")
        self.log(LogEvent.RUN_INFO, "Job stats:\njob count")

    def fail(self, log: Path, before_the_end: str = "") -> None:
        self.log(LogEvent.JOB_ERROR, "Error in rule", logging.ERROR, jobid=1, rule_name="measure", log=[str(log)])
        self.log(None, before_the_end, logging.ERROR)
        message = "WorkflowError:\nAt least one job did not complete successfully."
        self.log(LogEvent.ERROR, message, logging.ERROR, exception="WorkflowError")

    def run_study(self) -> str:
        self.begin()
        for job in list(self.left):
            words = f"{job.wildcards_dict['experiment']} found" if job.wildcards_dict else f"{job.rule.name} said"
            self.do(job, "" if job.rule.name == "study" else f"{words}, job {job.jobid}")
        self.shown.close()
        return self.stream.getvalue()


def test_file_has_one_line_per_stage_with_time_left(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").touch()
    (tmp_path / "report" / "report.pdf").touch()
    lines = Run(tmp_path, io.StringIO()).run_study().splitlines()
    words = [line.partition("] ")[2].strip() for line in lines]
    assert words == [
        "measuring, round 1 of 2",
        NOTE,
        "gemm found, job 1",
        "peak found, job 2",
        "measuring, round 2 of 2",
        "gemm found, job 3",
        "peak found, job 4",
        "judging the claims",
        "judge said, job 5",
        f"report: {tmp_path}/report/index.html",
        f"{tmp_path}/report/report.pdf",
    ]
    # The first prediction is 4 x 5 s for measuring and 15 s for judging. The first job takes twice the predicted 5 s,
    # so the prediction for the other three then doubles to 3 x 10 s.
    assert lines[0].startswith("[  0%, 35 s left] ")
    assert lines[2].startswith("[ 18%, 45 s left] ")
    assert lines[-1].startswith("[100%, 0 s left] ")
    assert "\r" not in "".join(lines)


def test_measuring_disturbed_points_again_leaves_the_time_left(tmp_path: Path) -> None:
    run = Run(tmp_path, io.StringIO())
    run.left = [run._job("seal"), run._job("gather"), run._job("judge")]
    run.begin()
    run.do(run.left[0], "73 measured again")
    assert "21 s left]   73 measured again" in run.stream.getvalue(), "6 s for gathering and 15 s for judging"


def test_terminal_has_one_bar(tmp_path: Path) -> None:
    raw = Run(tmp_path, Terminal()).run_study()
    lines = [line.rpartition("\r")[2] for line in raw.split("\n")]
    assert "measuring, round 2 of 2" in lines
    assert "  peak found, job 4" in lines
    drawn = [part for part in raw.split("\r") if "% " in part]
    assert len(drawn) >= 6 and all(" left, until " in part for part in drawn)
    assert "measure gemm on cpu, round 2" in raw
    assert not any("%" in line for line in lines), "the bar was left standing"


def test_failure_shows_log_end_and_log_paths(tmp_path: Path) -> None:
    run = Run(tmp_path, io.StringIO())
    run.begin()
    job = run.left[0]
    log = run.start(job)
    log.write_text("\n".join(f"line {number}" for number in range(99)) + "\nerror: no such preset\n")
    run.log(LogEvent.ERROR, "RuleException:\nCalledProcessError in file …", logging.ERROR, exception="RuleException")
    run.fail(log, "Exiting because a job execution failed. Look above for error messages")
    output = run.stream.getvalue()
    assert f"failed: measure gemm on cpu, round 1; the end of its log, {log}:" in output
    assert "  error: no such preset\n" in output and "line 98" in output and "line 2\n" not in output
    assert f"Logs: {tmp_path}/logs and own.log" in output and "the same command goes on" in output
    assert "RuleException" not in output and "WorkflowError" not in output and "Exiting" not in output


def test_interrupt_is_one_line(tmp_path: Path) -> None:
    run = Run(tmp_path, io.StringIO())
    run.begin()
    log = run.start(run.left[0])
    run.log(None, "Terminating processes on user request, this might take some time.")
    run.fail(log)
    (line,) = run.stream.getvalue().splitlines()[1:]
    assert "interrupted: finished rounds are kept; the same command goes on from there" in line


def test_unknown_record_falls_back_to_snakemake(tmp_path: Path) -> None:
    run = Run(tmp_path, io.StringIO())
    run.log(None, "no run: your workflow is in a good condition!", logging.WARNING)
    run.begin()
    run.log(LogEvent.JOB_INFO, "a job of a later Snakemake")
    run.log(None, "no space left\n", logging.ERROR)
    lines = run.stream.getvalue().splitlines()
    assert lines == ["no run: your workflow is in a good condition!", "a job of a later Snakemake", "no space left"]


def test_paused_run_is_not_taken_for_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Progress] = []
    console = SimpleNamespace(name="DefaultStreamHandler", stream=io.StringIO())
    logger = SimpleNamespace(handlers=[console], removeHandler=lambda _: None, addHandler=taken.append)
    monkeypatch.setattr(progress, "logger", logger)
    clock = RunningTime()
    monkeypatch.setattr(progress, "RunningTime", lambda tick_s: clock)
    flags = dict.fromkeys(("verbose", "printshellcmds", "quiet", "debug_dag", "dryrun", "log_handler_settings"))
    workflow = SimpleNamespace(
        output_settings=SimpleNamespace(**flags), is_main_process=True, logger_manager=SimpleNamespace(get_logfile=list)
    )
    progress.replace_console(workflow, lambda: "results")
    begun = taken[0]._clock()
    clock._lost += 7200.0
    assert taken[0]._clock() - begun < -7000.0
    clock._end.set()
