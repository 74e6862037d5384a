"""Numbers on the command lines: what cannot be is refused in one line that names it."""

from __future__ import annotations

import pytest

from contract.errors import StudyError, run_command
from experiments.cli import main as experiments
from report.cli import main as report

PLAN, RUN = ["plan"], ["run", "gemm", "--out", "x.parquet"]
CLAIM = ["new-claim", "W99", "--article", "whygpu", "--section", "A", "--says", "B", "--quantity", "gemm.rate",
         "--rule", "at_least", "--why", "C"]  # fmt: skip
REFUSED = [
    *((experiments, PLAN, "--budget", text) for text in ("inf", "nan", "0", "-1", "1e999", "20000", "soon", "")),
    *((experiments, PLAN, "--cores", text) for text in ("0", "-1", "1.5", "inf", "\u0663", "9" * 5000)),
    *((experiments, RUN, "--round", text) for text in ("0", "-1", "nan")),
    *((experiments, RUN, "--seed", text) for text in ("-1", "1e3", str(2**32))),
    *((report, CLAIM, "--threshold", text) for text in ("nan", "inf", "1e999", "much")),
    *((report, [*CLAIM, "--threshold", "1"], "--sensitivity", text) for text in ("nan", "1e31")),
    *((report, ["edition"], "--number", text) for text in ("0", "-1")),
    *((report, ["explain", "W15"], "--rows", text) for text in ("-1", "some")),
]


@pytest.mark.parametrize(("command", "words", "option", "text"), REFUSED)
def test_a_number_that_cannot_be_is_refused_in_one_line(
    command: object, words: list[str], option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    assert run_command(command, [*words, f"{option}={text}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"argument {option}" in said
    assert len(said) < 400


def test_a_word_that_no_command_knows_is_told_without_a_page_of_usage() -> None:
    with pytest.raises(StudyError, match="unrecognized arguments: --bugdet"):
        experiments(["plan", "--bugdet=3"])
