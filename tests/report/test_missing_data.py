"""What was not measured needs no word in a quantity: it then says nothing, or names the source that it lacks."""

from __future__ import annotations

import pytest

from report.data.dataset import Dataset, MissingSourceError
from report.estimates import Estimates
from report.judging.filters import missing
from report.quantities import quantities

from .conftest import Factory
from .deciding import part
from .priced import evidence, priced, trained

MEASURED = {name: one for name, one in quantities().items() if one.experiments}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    """Of an experiment that nobody knows; and training on a GPU, with nothing on its host."""
    one, other = (Factory(tmp_path_factory.mktemp(name)) for name in ("bare", "gpu"))
    node = trained(priced(other, gpu="Tesla T4"), 9000, device="cuda:0").clock(device="cuda:0")
    return evidence(one, one("node-a").point("unknown", 1.0)), evidence(other, node)


@pytest.mark.parametrize("name", MEASURED)
def test_without_its_experiments_a_quantity_says_nothing_and_asks_for_the_machine(
    others: tuple[Dataset, Dataset], name: str
) -> None:
    (bare, gpu_alone), known = others, MEASURED[name]
    try:
        found = known.estimates(bare)
    except MissingSourceError as lacking:
        assert lacking.what and known.tier == "derived"
        return
    assert not len(found) or known.tier == "derived"
    if "gpu" in known.kinds and not len(found):
        need = missing(part("at_least", 1, quantity=name), known, found, bare)
        assert (need.verdict, need.device) == ("awaiting hardware", "gpu")
    if "cpu" in known.kinds and known.tier == "measured":
        assert not len(known.estimates(gpu_alone))


def test_an_aggregate_rests_on_all_its_rows_and_unknown_values_are_nan() -> None:
    about = {"estimate": 1.0, "low": 1.0, "high": 1.0, "se": 0.1, "df": 2.0, "detail": ""}
    found = Estimates.of(
        [
            {"n": 10, "n_rounds": 3, "n_samples": 5, "source_rows": (4,), **about},
            {"n": 9, "n_rounds": 2, "n_samples": 6, "source_rows": (1, 4), **about},
        ]
    )
    assert found.counts() == {"n_rounds": 2, "n_samples": 11, "source_rows": (1, 4)}
    assert list(found.ascending("n")["n"]) == [9, 10] and not len(Estimates.empty().ascending("n"))
    unknown = found.unknown([True, False], "low", "se")
    assert list(unknown["low"].isna()) == [True, False] == list(unknown["se"].isna()) and unknown["high"].notna().all()
    assert not len(Estimates.empty().unknown([], "low"))
