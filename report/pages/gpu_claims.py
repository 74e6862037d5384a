"""List the claims that a measured GPU would decide or could turn, with what would be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import verdict_sentences
from report.formatting import capitalize, format_count
from report.outcomes import Verdict
from report.pages import verdict_words
from report.pages.site_sources import Page


def gpu_page(document: Mapping[str, Any]) -> Page:
    """Build the page with the claims that wait for a GPU, or rest on others' runs until one is measured."""
    rows = list(_rows(document["verdicts"]))
    return Page("gpu", "gpu", "What a GPU would change",
                "The claims that one machine with a GPU would decide, or could turn.",
                {"rows": rows, "count": format_count(len(rows), "claim")},
                key="machines")  # fmt: skip


def _rows(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for verdict in verdicts:
        lacking = [(part, _lacking_experiments(verdict, part)) for part in verdict["parts"]]
        parts = [{**part, "margin": None} for part, experiments in lacking if experiments]
        if parts:
            names = dict.fromkeys(name for _, experiments in lacking for name in experiments)
            yield {
                **verdict_words.claim_entry(verdict, "finding"),
                "basis": verdict_words.basis_phrase(verdict),
                "experiments": list(names),
                "rule": capitalize(verdict_sentences.rules_text(parts)),
            }


def _lacking_experiments(verdict: Mapping[str, Any], part: Mapping[str, Any]) -> list[str]:
    """Return the experiments whose results, or further rounds, on a GPU a part lacks."""
    need = part["waits"] or part["missing"]
    if need:
        kinds = {need.get("device"), *(failure["device"] for failure in need.get("failures", []))}
        scope = part["scope"].get("device", "gpu")
        return list(need.get("experiments", [])) if "gpu" in kinds or (kinds == {None} and scope == "gpu") else []
    devices = {str(case["device"]) for case in verdict["cases"] if case["part"] == part["name"] and case["device"]}
    if part["outcome"] == Verdict.UNDECIDED and devices - {"cpu"}:
        return [part["quantity"].partition(".")[0].replace("_", "-")]
    return []
