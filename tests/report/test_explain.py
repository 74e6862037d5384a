"""One claim's chain in plain text, down to the rows of data that it rests on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from report.verdicts import summary

from contract.errors import StudyError
from report.commands.explain import ROWS, WIDTH, Sources, explain, find, sources_of
from report.data.dataset import Dataset, MissingSourceError, Used
from report.data.gather import gather
from report.data.gathered import read_dataset
from report.data.nodes import read_nodes
from report.data.ranges import parse_ranges, spans
from report.data.reference import REFERENCE, read_reference
from report.judging.judge import judge
from report.quantities import quantities

from .conftest import Factory, SyntheticNode

ROOT = Path(__file__).parents[2]


def node(synthetic: Factory, name: str = "node-a", **more: Any) -> SyntheticNode:
    return synthetic(name).gemm(27.9, **more).gemm(14, n=256, **more).clock(**more).gemm(14, dtype="float64", **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with gathered data and verdicts beside it, of every claim on one synthetic node."""
    folder = tmp_path_factory.mktemp("study")
    node(Factory(folder / "nodes")).write()
    gather([folder / "nodes"], folder / "data", allow_synthetic=True)
    judge(read_dataset(folder / "data", read_reference(REFERENCE)), folder / "verdicts.json", allow_synthetic=True)
    return folder


@pytest.fixture
def study(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "study"))


def document(study: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((study / "verdicts.json").read_text())
    return found


def typed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "report", "explain", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_chain_goes_from_the_article_to_the_rows_and_to_what_would_turn_it(study: Path) -> None:
    text = explain(document(study), "w15", Sources(study / "data"))
    flat = " ".join(text.split())
    one = find(document(study), "W15")
    (part,) = one["parts"]
    for said in (
        "W15: CHALLENGED",
        one["article_title"],
        one["says"],
        "measured claim; evidence: measured; rule: version 1",
        part["rule_text"],
        "rate / 2 / threads / clock",
        "Quantity gemm.mac_per_cycle_per_core, in MAC/cycle",
        "made of 2 rows of the summary",
        "gemm on cpu: torch, float32, 1 thread, k=512, m=512, n=512",
        "clock on cpu: llvm, 1 thread, chain=1000",
        "3 rounds, 15 samples",
        "margin: ",
        "threshold 1,000 MAC/cycle: challenged (as declared)",
        "float64 in place of float32: challenged",
        f"What would turn it ({one['robust']})",
        one["flip"],
        "see also: N03, G02, W14, W17",
    ):
        assert " ".join(said.split()) in flat, said
    # An address stays whole, to be copied.
    assert all(len(line) <= WIDTH or line.strip().startswith("http") for line in text.splitlines())
    # The numbers of the rows are those that the cell names.
    (cell,) = one["cells"]
    assert all(f"row {number}" in flat for number in parse_ranges(cell["behind"]))


def test_the_rows_are_those_of_the_data(study: Path) -> None:
    (cell,) = find(document(study), "W15")["cells"]
    table = read_dataset(study / "data").table.loc[parse_ranges(cell["behind"])]
    assert set(table["experiment"]) == {"gemm", "clock"} and set(table["node"]) == {cell["node"]}
    product = table[table["experiment"] == "gemm"].iloc[0]
    clock = table[table["experiment"] == "clock"].iloc[0]
    by_hand = product["flop"] / product["estimate"] / 2 / clock["estimate"] * 128
    assert cell["estimate"] == pytest.approx(by_hand)


def test_without_data_the_chain_says_how_to_get_the_rows(study: Path) -> None:
    text = explain(document(study), "W15")
    assert "made of 2 rows of the summary" in text and "row " not in text.replace("rows", "")
    assert text.splitlines()[-1] == "The rows of data behind each cell are told with --data DIR, what gather wrote."


def test_many_rows_are_cut_and_told_whole_when_asked(study: Path) -> None:
    found = document(study)
    (cell,) = find(found, "W15")["cells"]
    some = read_dataset(study / "data").table.index.tolist()
    assert len(some) > 3
    cell["behind"] = spans(some)
    cut = explain(found, "W15", Sources(study / "data", most=3))
    assert f"made of {len(some)} rows of the summary; the first 3" in cut and cut.count("    row ") == 3
    assert explain(found, "W15", Sources(study / "data", most=None)).count("    row ") == len(some)


def test_rows_that_were_not_followed_through_the_arithmetic_are_called_so(study: Path) -> None:
    found = document(study)
    find(found, "W15")["parts"][0]["followed"] = False
    assert "all that the quantity read of this node" in " ".join(explain(found, "W15").split())


def test_published_figures_are_told_with_their_source(study: Path) -> None:
    claim = find(document(study), "W12")
    flat = " ".join(explain(document(study), "W12", Sources(reference=read_reference(REFERENCE))).split())
    assert claim["parts"][0]["entries"]
    for name in claim["parts"][0]["entries"]:
        assert f"{name} = " in flat
    assert "(verified) https://" in flat


def test_every_claim_is_told_within_the_width(study: Path) -> None:
    found, reference = document(study), read_reference(REFERENCE)
    for one in found["verdicts"]:
        text = explain(found, one["id"], Sources(study / "data", reference))
        long = [line for line in text.splitlines() if len(line) > WIDTH and " " in line.strip()]
        assert not long, (one["id"], long)
        assert " ".join(one["says"].split()) in " ".join(text.split())
    assert "challenged" in summary(found)


def test_an_unknown_claim_gets_a_suggestion(study: Path) -> None:
    with pytest.raises(StudyError, match=r"there is no claim 'W155'\. Did you mean 'W15'"):
        explain(document(study), "W155")


def test_data_beside_the_verdicts_are_found_and_others_must_be_there(study: Path) -> None:
    claim = find(document(study), "W15")
    assert sources_of(study / "verdicts.json", None, REFERENCE, ROWS, claim).data == study / "data"
    assert sources_of(study / "elsewhere" / "verdicts.json", None, REFERENCE, ROWS, claim).data is None
    with pytest.raises(StudyError, match=r"nowhere: holds no summary\.parquet"):
        sources_of(study / "verdicts.json", Path("nowhere"), REFERENCE, ROWS, claim)


def test_other_data_are_not_taken_for_those_of_the_verdicts(study: Path) -> None:
    shutil.rmtree(study / "nodes")
    node(Factory(study / "others"), "node-z").write()
    gather([study / "others"], study / "data", allow_synthetic=True)
    with pytest.raises(StudyError, match="not the data that these verdicts were made from"):
        explain(document(study), "W15", Sources(study / "data"))


def test_the_command_needs_no_more_than_the_claim(study: Path) -> None:
    told = typed("W15", "--verdicts", study / "verdicts.json")
    assert told.returncode == 0 and "made of 2 rows" in told.stdout and "row " in told.stdout
    for words, said in (
        (("W15", "--verdicts", "nowhere.json"), "nowhere.json: no such file. `make study` writes it"),
        (("W15", "--verdicts", study / "verdicts.json", "--data", "nowhere"), "nowhere: holds no summary.parquet"),
        (("X15", "--verdicts", study / "verdicts.json"), "there is no claim 'X15'"),
    ):
        wrong = typed(*words)
        assert wrong.returncode == 2 and wrong.stdout == "" and len(wrong.stderr.splitlines()) == 1
        assert said in wrong.stderr
    assert typed("W15", "--rows", "many").returncode == 2


def test_without_data_it_loads_no_data_libraries(study: Path) -> None:
    shutil.rmtree(study / "data")
    script = (
        "import sys; from report.cli import main; "
        f"main(['explain', 'W15', '--verdicts', {str(study / 'verdicts.json')!r}]); "
        "heavy = {'pandas', 'numpy', 'scipy', 'pyarrow', 'matplotlib'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ where cells come from


@pytest.fixture(scope="module")
def published() -> Dataset:
    return Dataset(read_nodes([ROOT / "data" / "nodes"]), read_reference(REFERENCE))


@pytest.mark.parametrize("name", sorted(quantities()))
def test_every_cell_of_the_published_nodes_is_followed_to_rows_or_figures(published: Dataset, name: str) -> None:
    quantity, published.used = quantities()[name], Used()
    try:
        cells = quantity.cells(published)
    except MissingSourceError as missing:
        pytest.skip(f"not verified: {missing.what}")
    if not len(cells):
        pytest.skip("no node has measured it")
    frame, table = cells.frame, published.table
    if "node" not in cells.labels or quantity.tier != "measured":
        # What published figures make has no row; something must have been asked for.
        known = frame["behind"].map(bool) | bool(published.used.entries or quantity.tier == "documented")
        assert known.all() or not quantity.experiments
        return
    assert quantity.experiments
    for node_, behind in zip(frame["node"], frame["behind"], strict=True):
        assert behind, node_
        rows = table.loc[list(behind)]
        assert node_ in set(rows["node"])
        assert set(rows["experiment"]) & set(quantity.experiments)


@pytest.mark.parametrize(("numbers", "text"), [((), ""), ((3,), "3"), ((5, 3, 4, 9, 4), "3-5 9"), ((0, 1), "0-1")])
def test_spans_and_back(numbers: tuple[int, ...], text: str) -> None:
    assert spans(numbers) == text
    assert parse_ranges(text) == sorted(set(numbers))
