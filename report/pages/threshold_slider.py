"""Data for the threshold slider on a claim's page: outcomes computed by `judging.robustness`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report import formatting
from report.outcomes import UNTRIED
from report.pages import verdict_words
from report.pages.charts import Chart
from report.pages.estimate_drawing import EstimateDrawing
from report.pages.markdown import Markdown, clean
from report.pages.svg import read_plot
from report.publish.claimreview import script_json


def sliders(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the data for a slider or a list of choices for each threshold, in readable units.

    The data have the form that page.js reads. A claim that rests on exact figures has no slider.
    """
    controls = []
    for part in (verdict.get("by_threshold") or []) if verdict.get("robust") != UNTRIED else []:
        unit = str(part["unit"] or "1")
        of_parts = len(verdict["parts"]) > 1 and len(part["parts"]) == 1
        name = formatting.capitalize(str(part["parts"][0])) if of_parts else ""
        shared: dict[str, Any] = {"name": clean(name), "label": clean(f"{name}: threshold" if name else "Threshold")}
        if "choices" in part:
            choices = [
                [formatting.threshold_text(limit, unit), _verdict_name(outcome), _verdict_name(whole)]
                for limit, outcome, whole in part["choices"]
            ]
            declared = [limit for limit, _, _ in part["choices"]].index(part["declared"])
            controls.append({**shared, "choices": choices, "declared": declared})
            continue
        scale, unit_name = formatting.si_prefix(float(part["declared"]), unit)
        controls.append(
            {
                **shared,
                "unit": unit_name,
                "range": [end / scale for end in part["range"]],
                "log": part["log"],
                "declared": part["declared"] / scale,
                "pieces": [
                    [start / scale, _verdict_name(outcome), _verdict_name(whole), open_]
                    for start, outcome, whole, open_ in part["pieces"]
                ],
            }
        )
    return controls


def sliders_json(verdict: Mapping[str, Any]) -> Markdown:
    """Format `sliders` for a script element; '' if there are none."""
    controls = sliders(verdict)
    return Markdown(script_json(controls) if controls else "")


def plots_json(chart: Chart | None, figures: Path) -> Markdown:
    """Format the places of a claim's threshold line for a script element; '' if its figure has not exactly one line.

    figures: folder with the drawn figures.
    """
    lines = chart.draw.lines if chart and isinstance(chart.draw, EstimateDrawing) else ()
    if chart is None or len(lines) != 1:
        return Markdown("")
    wide, phone = (read_plot(figures / f"{chart.name}{ending}") for ending in (".svg", ".phone.svg"))
    return Markdown(script_json({"wide": wide, "phone": phone, "line": lines[0]}) if wide and phone else "")


def _verdict_name(verdict: str) -> str:
    return verdict_words.verdict_word(str(verdict)).name.lower()
