"""A new claim: scaffolded, read at once, judged and shown; a mistake leaves no file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from contract.errors import StudyError
from report.cli import main
from report.commands.new_claim import RULES as EXPLAINED
from report.commands.new_claim import new_claim
from report.judging.claim_files import CLOSED, read_claims
from report.judging.rules import RULES
from report.outcomes import Threshold, Tier
from report.quantities import quantities

from .test_cli import run_report

GIVEN: dict[str, Any] = {
    "article": "whygpu", "section": "The CPU: A Few Geniuses Working Fast; What Runs Where (row # 2)",
    "says": 'A core is "fast": it multiplies in no time.', "quantity": "gemm.rate", "rule": "at_least",
    "threshold": [1e9], "why": "because: a thousand million is many", "kind": None, "scope": [], "option": [],
    "sensitivity": [], "note": "A number made up for this test.",
}  # fmt: skip
NEEDS: dict[str, dict[str, Any]] = {
    "within": {"threshold": [10, 60.5], "sensitivity": [5, 100, 10, 60.5]},
    "ratio": {"option": ["over=device", "of=gpu", "to=cpu"]},
    "trend": {"option": ["along=m"]},
    "crossover": {"option": ["over=device", "of=gpu", "to=cpu", "along=m"]},
    "for_share_of": {"option": ["share=0.5", "of=dtype"]},
}


def scaffold(folder: Path, name: str = "W39", **changes: Any) -> Path:
    return new_claim(name, folder, Namespace(**{**GIVEN, **changes}))


def words(folder: Path, **changes: str) -> list[str]:
    """The command as a person types it."""
    given = {**{key: value for key, value in GIVEN.items() if value}, "threshold": "1e9", **changes}
    return ["new-claim", "W39", "--claims", str(folder), *(w for key, one in given.items() for w in (f"--{key}", one))]


@pytest.mark.parametrize("rule", RULES)
def test_a_scaffolded_claim_reads_at_once(tmp_path: Path, rule: str) -> None:
    path = scaffold(tmp_path, rule=rule, **NEEDS.get(rule, {}), scope=["dtype=float32,int8", "threads=1"])
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert path == claim.path == tmp_path / "W39.yaml"
    assert (claim.article, claim.section, claim.says) == ("whygpu", GIVEN["section"], GIVEN["says"])
    assert (part.quantity, part.rule, part.why) == ("gemm.rate", rule, GIVEN["why"])
    assert list(part.threshold.ends) == NEEDS.get(rule, {}).get("threshold", [1e9])
    # What was not said is left to comments: it decides nothing.
    ranges = (Threshold(5, 100), Threshold(10, 60.5))
    assert part.sensitivity == (ranges if rule == "within" else ())
    assert (claim.note, claim.kind) == (GIVEN["note"], "measured")
    assert part.scope == {"dtype": ["float32", "int8"], "threads": 1}
    assert tuple(EXPLAINED) == RULES and f"#   {rule}: {EXPLAINED[rule]}" in path.read_text(encoding="utf-8")


def test_every_quantity_can_be_scaffolded_and_its_labels_are_named(tmp_path: Path) -> None:
    for name, quantity in quantities().items():
        if quantity.tier == Tier.PUBLISHED:
            # What others measured bears on a rule of ours, and makes none.
            continue
        # What a published figure is of has to be said.
        path = scaffold(tmp_path, quantity=name, scope=["entry=bert-large.layers"] if name == "reference.value" else [])
        text = path.read_text(encoding="utf-8")
        for label in quantity.labels:
            line = next(line for line in text.splitlines() if line.startswith(f"#   {label}: "))
            assert ", ".join(CLOSED.get(label, [])) in line
        assert f"\nkind: {quantity.tier}\n" in text
        path.unlink()


@pytest.mark.parametrize("changes", [{}, {"rule": "within", "threshold": [10, 60.5]}])
def test_what_it_offers_in_comments_reads_too(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = scaffold(tmp_path, **changes)
    offered = ("# scope: ", "# sensitivity: ")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith(offered) for line in lines) == len(offered)
    path.write_text("\n".join(line.removeprefix("# ") if line.startswith(offered) else line for line in lines))
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert part.scope == {"device": "cpu"}
    assert len(part.sensitivity) == 3 and part.sensitivity[1] == part.threshold


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "W399"}, "one capital letter and two digits, as in W39"),
        ({"quantity": "gemm.rat"}, "there is no quantity 'gemm.rat'. Did you mean 'gemm.rate'? `python -m report quan"),
        ({"article": "whygpus"}, "there is no article 'whygpus'. Did you mean 'whygpu'?"),
        ({"section": "TL;DR; What Runs There"}, "no heading 'What Runs There'. Did you mean 'What Runs Where'? Head"),
        ({"kind": "judgement"}, "a judgement has no rule"),
        ({"rule": "at_mots"}, "Did you mean 'at_most'?"),
        ({"rule": "within", "threshold": [9, 1]}, "the range [9, 1] ends before it begins"),
        ({"rule": "within", "threshold": [1, 9], "sensitivity": [3]}, "both ends"),
        ({"scope": ["dtype"]}, "--scope 'dtype' is not of the form key=value"),
        ({"quantity": "reference.value", "scope": ["entry=no.such"]}, "there is no reference entry 'no.such'"),
    ],
)
def test_a_mistake_leaves_no_file(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError) as caught:
        scaffold(tmp_path, **changes)
    assert said in str(caught.value) and str(caught.value).startswith("new claim ")
    assert not list(tmp_path.iterdir())


def test_an_existing_claim_is_left_alone(tmp_path: Path) -> None:
    before = scaffold(tmp_path).read_text(encoding="utf-8")
    with pytest.raises(StudyError, match="there is a claim W39 already"):
        scaffold(tmp_path, says="Something else.")
    assert (tmp_path / "W39.yaml").read_text(encoding="utf-8") == before


def test_the_command_says_where_the_file_is_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tmp_path)) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{tmp_path / 'W39.yaml'}\n") and "report explain W39" in told
    assert [claim.id for claim in read_claims(tmp_path, {})] == ["W39"]
    wrong = run_report(*words(tmp_path / "none", threshold="1e999"))
    assert wrong.returncode == 2 and wrong.stdout == "" and len(wrong.stderr.splitlines()) == 1
    assert "--threshold" in wrong.stderr
