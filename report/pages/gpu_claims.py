"""List the claims that a measured GPU would decide or could turn, with what would be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from report import verdict_sentences
from report.formatting import capitalize, format_count
from report.pages import verdict_words
from report.pages.site_sources import Page
from report.wanted_machines import kind_labels, part_needs


def gpu_page(document: Mapping[str, Any]) -> Page:
    """Build the page with the claims that wait for a GPU, or rest on published runs until one is measured."""
    rows = list(_rows(document["verdicts"], kind_labels(document)))
    return Page("gpu", "gpu", "What a GPU would change",
                "The claims that one machine with a GPU would decide, or could turn.",
                {"rows": rows, "count": format_count(len(rows), "claim")},
                key="machines")  # fmt: skip


def _rows(verdicts: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for verdict in verdicts:
        lacking = [(part, _lacking_experiments(verdict, part, labels)) for part in verdict["parts"]]
        parts = [{**part, "margin": None} for part, experiments in lacking if experiments]
        if parts:
            names = dict.fromkeys(name for _, experiments in lacking for name in experiments)
            yield {
                **verdict_words.claim_entry(verdict, "finding"),
                "basis": verdict_words.basis_phrase(verdict),
                "experiments": list(names),
                "rule": capitalize(verdict_sentences.rules_text(parts)),
            }


def _lacking_experiments(verdict: Mapping[str, Any], part: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return the experiments whose results, or further rounds, on a GPU a part lacks."""
    needs = part_needs(verdict, part, labels)
    return [name for machine, experiments in needs if machine.has_gpu for name in experiments]
