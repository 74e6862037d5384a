"""Command `new-claim`: scaffolds parse at once, and errors leave no file."""

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
from .test_findings import possible_outcomes

OPTIONS: dict[str, Any] = {
    "article": "whygpu", "section": "The CPU: A Few Geniuses Working Fast; What Runs Where (row # 2)",
    "says": 'A core is "fast": it multiplies in no time.', "word": "none", "quantity": "gemm.rate", "rule": "at_least",
    "threshold": [1e9], "why": "because: a thousand million is many", "kind": None, "scope": [], "option": [],
    "sensitivity": [], "note": "A number made up for this test.",
}  # fmt: skip
RULE_OPTIONS: dict[str, dict[str, Any]] = {
    "within": {"threshold": [10, 60.5], "sensitivity": [5, 100, 10, 60.5]},
    "ratio": {"option": ["over=device", "of=gpu", "to=cpu"]},
    "trend": {"option": ["along=m"]},
    "crossover": {"option": ["over=device", "of=gpu", "to=cpu", "along=m"]},
    "for_share_of": {"option": ["share=0.5", "of=dtype"]},
}


def scaffold(folder: Path, name: str = "W39", **changes: Any) -> Path:
    return new_claim(name, folder, Namespace(**{**OPTIONS, **changes}))


def command_line(folder: Path, **changes: str) -> list[str]:
    """Build the command line."""
    options = {**{key: value for key, value in OPTIONS.items() if value}, "threshold": "1e9", **changes}
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return ["new-claim", "W39", "--claims", str(folder), *words]


@pytest.mark.parametrize("rule", RULES)
def test_scaffold_has_a_sentence_for_every_outcome(tmp_path: Path, rule: str) -> None:
    scaffold(tmp_path, rule=rule, **RULE_OPTIONS.get(rule, {}))
    (claim,) = read_claims(tmp_path, {})
    assert possible_outcomes(claim) <= set(claim.findings)


@pytest.mark.parametrize("rule", RULES)
def test_scaffolded_claim_parses(tmp_path: Path, rule: str) -> None:
    path = scaffold(tmp_path, rule=rule, **RULE_OPTIONS.get(rule, {}), scope=["dtype=float32,int8", "threads=1"])
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert path == claim.path == tmp_path / "W39.yaml"
    assert (claim.article, claim.section, claim.says) == ("whygpu", OPTIONS["section"], OPTIONS["says"])
    assert (part.quantity, part.rule, part.why) == ("gemm.rate", rule, OPTIONS["why"])
    assert list(part.threshold.ends) == RULE_OPTIONS.get(rule, {}).get("threshold", [1e9])
    # Omitted options appear only as comments.
    ranges = (Threshold(5, 100), Threshold(10, 60.5))
    assert part.sensitivity == (ranges if rule == "within" else ())
    assert (claim.note, claim.kind) == (OPTIONS["note"], "measured")
    assert part.scope == {"dtype": ["float32", "int8"], "threads": 1}
    assert tuple(EXPLAINED) == RULES and f"#   {rule}: {EXPLAINED[rule]}" in path.read_text(encoding="utf-8")


def test_scaffold_lists_the_labels_of_every_quantity(tmp_path: Path) -> None:
    for name, quantity in quantities().items():
        if quantity.tier == Tier.PUBLISHED:
            # A claim's rule may not use a quantity on published figures. Such a quantity only adds evidence to claims.
            continue
        # A claim on `reference.value` must name an entry in its scope.
        path = scaffold(tmp_path, quantity=name, scope=["entry=bert-large.layers"] if name == "reference.value" else [])
        text = path.read_text(encoding="utf-8")
        for label in quantity.labels:
            line = next(line for line in text.splitlines() if line.startswith(f"#   {label}: "))
            assert ", ".join(CLOSED.get(label, [])) in line
        assert f"\nkind: {quantity.tier}\n" in text
        path.unlink()


@pytest.mark.parametrize("changes", [{}, {"rule": "within", "threshold": [10, 60.5]}])
def test_commented_options_parse_when_enabled(tmp_path: Path, changes: dict[str, Any]) -> None:
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
    ("changes", "message"),
    [
        ({"name": "W399"}, "one capital letter and two digits, as in W39"),
        ({"quantity": "gemm.rat"}, "there is no quantity 'gemm.rat'. Did you mean 'gemm.rate'? `python -m report quan"),
        ({"article": "whygpus"}, "there is no article 'whygpus'. Did you mean 'whygpu'?"),
        ({"section": "TL;DR; What Runs There"}, "no heading 'What Runs There'. Did you mean 'What Runs Where'? Head"),
        ({"section": "The CPU: A Few"}, "no heading 'The CPU: A Few'. Headings: opening; TL;DR; The CPU"),
        ({"section": ""}, "no heading ''"),
        ({"kind": "judgement"}, "a judgement has no rule"),
        ({"rule": "at_mots"}, "Did you mean 'at_most'?"),
        ({"rule": "within", "threshold": [9, 1]}, "the range [9, 1] ends before it begins"),
        ({"rule": "within", "threshold": [1, 9], "sensitivity": [3]}, "both ends"),
        ({"scope": ["dtype"]}, "--scope 'dtype' is not of the form key=value"),
        ({"quantity": "reference.value", "scope": ["entry=no.such"]}, "there is no reference entry 'no.such'"),
    ],
)
def test_invalid_options_leave_no_file(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError) as caught:
        scaffold(tmp_path, **changes)
    assert message in str(caught.value) and str(caught.value).startswith("new claim ")
    assert not list(tmp_path.iterdir())


def test_existing_claim_is_not_overwritten(tmp_path: Path) -> None:
    before = scaffold(tmp_path).read_text(encoding="utf-8")
    with pytest.raises(StudyError, match="there is a claim W39 already"):
        scaffold(tmp_path, says="Something else.")
    assert (tmp_path / "W39.yaml").read_text(encoding="utf-8") == before


def test_new_claim_prints_path_and_next_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command_line(tmp_path)) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{tmp_path / 'W39.yaml'}\n") and "report explain W39" in output
    assert [claim.id for claim in read_claims(tmp_path, {})] == ["W39"]
    result = run_report(*command_line(tmp_path / "none", threshold="1e999"))
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1
    assert "--threshold" in result.stderr
