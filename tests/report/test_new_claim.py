"""A new claim: scaffolded, judged and shown; and every mistake in a claim file told with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from ruamel.yaml import YAML

from contract.errors import StudyError
from report.cli import main
from report.commands.new_claim import RULES as EXPLAINED
from report.commands.new_claim import new_claim
from report.data.dataset import Dataset
from report.data.nodes import read_nodes
from report.data.reference import REFERENCE, read_reference
from report.judging.claims import ARTICLES, CLOSED, read_claims
from report.judging.judge import CLAIMS, judge
from report.judging.rules import RULES
from report.quantities import quantities
from report.render import render

from .conftest import Factory
from .test_cli import typed

GIVEN: dict[str, Any] = {
    "article": "whygpu",
    "section": "What: Runs # Where",
    "says": 'A core is "fast": it multiplies in no time.',
    "quantity": "gemm.rate",
    "rule": "at_least",
    "threshold": [1e9],
    "why": "because: a thousand million is many",
    "note": "A number made up for this test.",
}
NEEDS = {
    "within": {"threshold": [10, 60.5]},
    "ratio": {"options": ["over=device", "of=gpu", "to=cpu"]},
    "trend": {"options": ["along=m"]},
    "crossover": {"options": ["over=device", "of=gpu", "to=cpu", "along=m"]},
    "for_share_of": {"options": ["share=0.5"]},
}


def scaffold(folder: Path, name: str = "W39", **changes: Any) -> Path:
    return new_claim(name, folder, **{**GIVEN, **changes})


def words(folder: Path, name: str = "W39", **changes: str) -> list[str]:
    """The command as a person types it."""
    given = {**GIVEN, "threshold": "1e9", **changes}
    return [
        "new-claim",
        name,
        "--claims",
        str(folder),
        *(word for key, one in given.items() for word in (f"--{key}", one)),
    ]


# ------------------------------------------------------------------ the scaffold


@pytest.mark.parametrize("rule", RULES)
def test_a_scaffolded_claim_reads_at_once(tmp_path: Path, rule: str) -> None:
    path = scaffold(tmp_path, rule=rule, **NEEDS.get(rule, {}))
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert path == claim.path == tmp_path / "W39.yaml"
    assert (claim.article, claim.section, claim.says) == ("whygpu", GIVEN["section"], GIVEN["says"])
    assert (part.quantity, part.rule, part.why) == ("gemm.rate", rule, GIVEN["why"])
    assert part.threshold == NEEDS.get(rule, {}).get("threshold", 1e9)
    # What was not said is left to comments: it decides nothing.
    assert part.scope == {} and part.sensitivity == [] and claim.note is None and claim.kind == "measured"


def test_every_rule_is_explained() -> None:
    assert tuple(EXPLAINED) == RULES


def test_every_quantity_can_be_scaffolded_and_its_labels_are_named(tmp_path: Path) -> None:
    for name, quantity in quantities().items():
        text = scaffold(tmp_path, quantity=name).read_text(encoding="utf-8")
        for label in quantity.labels:
            line = next(line for line in text.splitlines() if line.startswith(f"#   {label}: "))
            assert ", ".join(CLOSED.get(label, [])) in line
        assert f"\nkind: {quantity.tier}\n" in text
        (tmp_path / "W39.yaml").unlink()


def test_what_it_offers_in_comments_reads_too(tmp_path: Path) -> None:
    for changes in ({}, {"rule": "within", "threshold": [10, 60.5]}):
        path = scaffold(tmp_path, **changes)
        offered = ("# scope: ", "# sensitivity: ", "# note: ", "#   What is left out")
        lines = path.read_text(encoding="utf-8").splitlines()
        assert sum(line.startswith(offered) for line in lines) == len(offered)
        path.write_text("\n".join(line.removeprefix("# ") if line.startswith(offered) else line for line in lines))
        (claim,) = read_claims(tmp_path, {})
        (part,) = claim.parts
        assert part.scope == {"device": "cpu"} and claim.note
        assert len(part.sensitivity) == 3 and part.sensitivity[1] == part.threshold
        path.unlink()


def test_what_is_said_stands_in_the_file(tmp_path: Path) -> None:
    scope = ["device=cpu", "dtype=float32,bfloat16", "threads=1"]
    scaffold(tmp_path, kind="derived", scope=scope, rule="within", threshold=[10, 60], sensitivity=[5, 100, 10, 60])
    (claim,) = read_claims(tmp_path, {})
    (part,) = claim.parts
    assert part.scope == {"device": "cpu", "dtype": ["float32", "bfloat16"], "threads": 1}
    assert part.sensitivity == [[5, 100], [10, 60]] and claim.kind == "derived"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "w39"}, "one capital letter and two digits, as in W39"),
        ({"name": "W399"}, "one capital letter and two digits"),
        ({"quantity": "gemm.rat"}, "there is no quantity 'gemm.rat'. Did you mean 'gemm.rate'? Known: gemm."),
        ({"quantity": "speed"}, "there is no quantity 'speed'"),
        ({"article": "whygpus"}, "Allowed: nuface, gpuserver, whygpu. Did you mean 'whygpu'?"),
        ({"rule": "at_mots"}, "Did you mean 'at_most'?"),
        ({"kind": "measures"}, "Did you mean 'measured'?"),
        ({"kind": "judgement"}, "a judgement has no rule"),
        ({"rule": "ratio"}, "missing: options"),
        ({"rule": "ratio", "options": ["over=device"]}, "missing: of, to"),
        ({"rule": "ratio", "options": ["over=devices", "of=gpu", "to=cpu"]}, "Did you mean 'device'?"),
        ({"rule": "within"}, "1000000000 is not of type array"),
        ({"threshold": [1, 2]}, "[1, 2] is not of type number"),
        ({"rule": "within", "threshold": [9, 1]}, "the range [9, 1] ends before it begins"),
        ({"rule": "within", "threshold": [1, 9], "sensitivity": [3]}, "both ends"),
        ({"scope": ["dtype=flaot32"]}, "Did you mean 'float32'?"),
        ({"scope": ["dtpye=float32"]}, "Did you mean 'dtype'?"),
        ({"scope": ["dtype"]}, "--scope 'dtype' is not of the form key=value"),
        ({"quantity": "reference.value", "scope": ["entry=no.such"]}, "there is no reference entry 'no.such'"),
        ({"says": ""}, "says"),
        ({"why": ""}, "threshold.why"),
    ],
)  # fmt: skip
def test_a_mistake_leaves_no_file(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StudyError) as caught:
        scaffold(tmp_path, **changes)
    assert said in str(caught.value)
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


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = typed(*words(tmp_path, quantity="gemm.rat"))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: new claim W39: ") and len(done.stderr.splitlines()) == 1


# ------------------------------------------------------------------ one file, and it is in the report


def test_one_new_file_is_judged_and_shown(synthetic: Factory, tmp_path: Path) -> None:
    claims = tmp_path / "claims"
    shutil.copytree(CLAIMS, claims)
    before = set(claims.iterdir())
    scope = ["device=cpu", "dtype=float32", "backend=best"]
    path = scaffold(claims, "W99", scope=scope, says="One core multiplies a thousand million times a second.")
    assert set(claims.iterdir()) - before == {path}
    synthetic("node-a").gemm(20).gemm(10, n=256).clock().write()
    data = Dataset(read_nodes([synthetic.root], True), read_reference(REFERENCE))
    document = judge(data, tmp_path / "verdicts.json", claims, allow_synthetic=True)
    written = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))
    (one,) = [verdict for verdict in written["verdicts"] if verdict["id"] == "W99"]
    assert len(written["verdicts"]) == len(before) + 1 == sum(document["tally"].values())
    assert one["verdict"] == "supported" and one["low"] > one["threshold"] == 1e9
    assert [cell["outcome"] for cell in one["cells"]] == ["supports"]
    render(tmp_path / "verdicts.json", tmp_path / "report", renderer="pandoc")
    page = BeautifulSoup((tmp_path / "report" / "index.html").read_text(encoding="utf-8"), "html.parser")
    card = page.find(id="W99")
    assert card.select_one(".badge").get_text() == "supported"
    assert one["says"] in " ".join(card.get_text().split())
    row = next(row for row in page.select("table.claims tbody tr") if row.td.get_text(strip=True) == "W99")
    assert one["says"] in " ".join(row.get_text().split())


# ------------------------------------------------------------------ mistakes in claim files

PART = {"name": "a part", "quantity": "gemm.rate", "rule": "exists", "threshold": {"value": 1, "why": "one"}}
FLAT: dict[str, Any] = {
    "id": "W15",
    "article": "whygpu",
    "section": "A section",
    "says": "Something about cores.",
    "kind": "measured",
    "quantity": "gemm.rate",
    "scope": {"device": "cpu", "dtype": "float32"},
    "rule": "at_most",
    "threshold": {"value": 1000, "why": "generous"},
    "note": "A note.",
    "version": 1,
}
BARE = dict.fromkeys(("quantity", "scope", "rule", "threshold"))
EVERY_RULE = f"Allowed: {', '.join(RULES)}."
EVERY_DTYPE = f"Allowed: {', '.join(CLOSED['dtype'])}."

# What is wrong; the text of the line that the message points at; what is said.
MISTAKES = {
    "unknown rule": ({"rule": "at_mots"}, "rule: at_mots", [EVERY_RULE, "Did you mean 'at_most'?"]),
    "unknown quantity": ({"quantity": "gemm.rat"}, "quantity: gemm.rat", ["gemm.peak_share", "'gemm.rate'?"]),
    "no quantity at all": ({"quantity": "Rate"}, "quantity: Rate", ["'Rate'"]),
    "unknown label": ({"scope": {"dtpye": "float32"}}, "dtpye: float32", ["Allowed: node, device, dtype", "'dtype'?"]),
    "unknown value of a closed label": ({"scope": {"dtype": "flaot32"}}, "dtype: flaot32", [EVERY_DTYPE, "'float32'?"]),
    "unknown value in a list": ({"scope": {"dtype": ["float64", "fp32"]}}, "- fp32", [EVERY_DTYPE]),
    "threshold that is text": ({"threshold": {"value": "many", "why": "?"}}, "value: many", ["'many'"]),
    "threshold that is a range": ({"threshold": {"value": [1, 2], "why": "?"}}, "value:", ["not of type number"]),
    "threshold that is no range": ({"rule": "within"}, "value: 1000", ["not of type array"]),
    "range that ends before it begins": (
        {"rule": "within", "threshold": {"value": [9, 1], "why": "?"}}, "threshold:", ["the range [9, 1] ends"]
    ),
    "missing why": ({"threshold": {"value": 3}}, "threshold:", ["threshold: missing: why"]),
    "empty why": ({"threshold": {"value": 3, "why": ""}}, "why: ''", ["threshold.why"]),
    "sensitivity that is text": ({"sensitivity": [1, "many"]}, "- many", ["'many'"]),
    "sensitivity that is a range": ({"sensitivity": [[1, 2]]}, "- - 1", ["not of type number"]),
    "sensitivity that ends before it begins": (
        {"rule": "within", "threshold": {"value": [1, 9], "why": "?"}, "sensitivity": [[9, 1]]},
        "sensitivity:", ["the range [9, 1] ends"],
    ),
    "unknown article": ({"article": "whygpus"}, "article: whygpus", [f"Allowed: {', '.join(ARTICLES)}.", "'whygpu'?"]),
    "unknown kind": ({"kind": "measures"}, "kind: measures", ["Allowed: measured, derived, documented, judgement."]),
    "bad id": ({"id": "W155"}, "id: W155", ["one capital letter and two digits"]),
    "id of another file": ({"id": "W16"}, "id: W16", ["the file's name says 'W15'"]),
    "unknown key": ({"sensitvity": [1]}, "sensitvity:", ["Allowed: id, article", "Did you mean 'sensitivity'?"]),
    "rule without its options": ({"rule": "ratio", "options": {"over": "device"}}, "options:", ["missing: of, to"]),
    "option that is no label": (
        {"rule": "trend", "options": {"along": "batch"}}, "along: batch", ["Allowed: node, device, dtype, threads"]
    ),
    "option that is no value of its label": (
        {"rule": "ratio", "options": {"over": "device", "of": "tpu", "to": "cpu"}}, "of: tpu", ["Allowed: cpu, gpu."]
    ),
    "two parts of one name": ({**BARE, "all_of": [PART, {**PART}]}, "- name: a part", ["two parts are named 'a part'"]),
    "mistake within a part": (
        {**BARE, "all_of": [PART, {**PART, "name": "b", "rule": "exist"}]}, "rule: exist", [EVERY_RULE, "'exists'?"]
    ),
    "part beside a rule": ({"all_of": [PART]}, "quantity: gemm.rate", ["'quantity' stands beside 'all_of'"]),
    "judgement with a rule": ({"kind": "judgement", "bears_on": []}, "quantity: gemm.rate", ["remove 'quantity'"]),
    "link to an unknown claim": ({"see_also": ["W15", "W99"]}, "- W99", ["see_also: there is no claim 'W99'"]),
    "same as an unknown claim": ({**BARE, "same_as": "W99"}, "same_as: W99", ["there is no claim 'W99'"]),
    "same as one without a rule": ({**BARE, "same_as": "W15"}, "same_as: W15", ["has no rule of its own"]),
    "unknown source": ({"sources": ["chip.core"]}, "- chip.core", ["Did you mean 'chip.cores'?"]),
    "unknown entry": (
        {"quantity": "reference.value", "scope": {"entry": "chip.core"}}, "entry: chip.core", ["'chip.cores'?"]
    ),
    "unknown entry in a part": (
        {**BARE, "all_of": [{**PART, "quantity": "reference.value", "scope": {"entry": ["chip.core"]}}]},
        "- chip.core", ["scope.entry: there is no reference entry"],
    ),
    "change without a reason": ({"version": 2}, "version: 2", ["version 2 has no reason under 'changes'"]),
    "change that skips a version": (
        {"version": 3, "changes": [{"version": 3, "reason": "better"}]}, "changes:", ["version 2 has no reason"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_claim_file_is_told_with_file_line_and_what_is_allowed(tmp_path: Path, mistake: str) -> None:
    changes, line, said = MISTAKES[mistake]
    path = tmp_path / "W15.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML().dump({key: value for key, value in {**FLAT, **changes}.items() if value is not None}, file)
    with pytest.raises(StudyError) as caught:
        read_claims(tmp_path, {"chip.cores": {}})
    message = str(caught.value)
    place, _, told = message.partition(": ")
    name, _, number = place.partition(", line ")
    assert name == str(path)
    assert line in path.read_text(encoding="utf-8").splitlines()[int(number) - 1]
    for words in said:
        assert words in told
