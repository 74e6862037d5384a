"""Every name that a machine, an experiment or a device may bear gives a path that stays within the site."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from report.site import paths

NAMES = st.one_of(
    st.text(max_size=120),
    st.sampled_from(["..", ".", "", "a/b", "a\\b", "a b", "con?x#y", "é", "\ud800", "a" * 300, "-x", "..csv", "%2e"]),
)


def test_the_samples_of_an_experiment_lie_under_their_machine() -> None:
    assert paths.samples("amd-epyc-2c-789dcf", "gemm", "cpu") == "data/amd-epyc-2c-789dcf/gemm.cpu.csv"
    assert paths.samples("box.2", "time-to-train", "cuda:0") == "data/box.2/time-to-train.cuda-0.csv"


@given(node=NAMES, experiment=NAMES, device=NAMES)
def test_no_name_leads_out_of_the_folder_or_needs_quoting(node: str, experiment: str, device: str) -> None:
    parts = paths.samples(node, experiment, device).split("/")
    assert len(parts) == 3 and parts[0] == "data"
    for part in parts:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", part) and ".." not in part and len(part) < 255


@given(one=NAMES, other=NAMES)
def test_two_machines_never_share_a_file(one: str, other: str) -> None:
    same = paths.samples(one, "gemm", "cpu") == paths.samples(other, "gemm", "cpu")
    assert same == (one == other)
