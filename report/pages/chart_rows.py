"""Chart rows and label texts, made from estimates, for the pages of all measurement families."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from report.estimates import device_kind
from report.formatting import two_digits, with_unit
from report.pages.charts import ONE_ROUND
from report.pages.figure_data import View

_ENDS = ("estimate", "low", "high")
_SPELT = {"torch": "PyTorch", "numpy": "NumPy", "onednn": "oneDNN", "cupy": "CuPy", "jax": "JAX",
          "scalar": "scalar loop", "inductor": "PyTorch, compiled", "channels_last": "PyTorch, channels last",
          "graph": "PyTorch, one graph", "onnx": "ONNX Runtime", "openvino": "OpenVINO", "xgboost": "XGBoost",
          "lightgbm": "LightGBM", "sklearn": "scikit-learn", "xllamacpp": "llama.cpp (xllamacpp)",
          "llama-cpp-python": "llama.cpp (llama-cpp-python)", "llama-bench": "llama.cpp (llama-bench)",
          "llama-server": "llama.cpp (llama-server)",
          "openvino-genai": "OpenVINO GenAI", "transformers": "Transformers",
          "transformers-graph": "Transformers, one graph"}  # fmt: skip


def scale_case(case: Mapping[str, Any], by: float) -> dict[str, float | None]:
    """Divide a case's estimate and bounds by `by`; a bound is None if it is unknown, such as after a single round."""
    return {name: None if pd.isna(case[name]) else float(case[name]) / by for name in _ENDS}


def percent_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a case's estimate and bounds from fractions to percent."""
    return {**case, **scale_case(case, 0.01)}


def is_single_round(case: Mapping[str, Any]) -> bool:
    """True if the case comes from a single round, which gives no interval."""
    return case.get("n_rounds") == 1 and bool(pd.isna(case["low"]))


def estimate_row(
    label: str, case: Mapping[str, Any], unit: str, by: float = 1.0, text: str = "", **more: Any
) -> dict[str, Any]:
    """Return a row for `charts.estimate_chart`.

    by: divisor to convert the estimate and its bounds to the axis unit.
    text: text at the end of the row; '' prints the estimate with its unit.
    """
    text = (text or with_unit(float(case["estimate"]), unit)) + (f", {ONE_ROUND}" if is_single_round(case) else "")
    return {"label": label, **scale_case(case, by), "text": text, "one_round": is_single_round(case), **more}


def line_points(
    cases: Iterable[Mapping[str, Any]], along: str, by: float = 1.0, x_by: float = 1.0
) -> list[dict[str, Any]]:
    """Return points for `charts.line_chart`, sorted by x.

    A point has x, y, low, high and one_round, which is True for a single round.
    along: case label that gives x.
    by, x_by: divisors for y and x.
    """
    rows = [
        {"x": float(case[along]) / x_by, "one_round": is_single_round(case), **scale_case(case, by)} for case in cases
    ]
    return sorted(({"y": point.pop("estimate"), **point} for point in rows), key=lambda point: float(point["x"] or 0.0))


def alt_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Describe chart rows in a sentence for screen readers."""
    return "; ".join(f"{' '.join(str(row['label']).split())}: {row['text']}" for row in rows)


def figure_suffix(place: int, device: str) -> str:
    """Return the suffix for a figure's name: '1' for the first node's processor, '1-cuda0' for its GPU."""
    return f"{place}" if device == "cpu" else f"{place}-{device.replace(':', '')}"


def model_and_batch(case: Mapping[str, Any]) -> str:
    """Format model and batch: 'resnet18, batch 1,024'."""
    return f"{case['model']}, batch {int(case['batch']):,}"


def as_percent(share: float) -> str:
    """Format a fraction as a percentage with two significant digits: '4.1%'."""
    return f"{two_digits(100 * share)}%"


def format_rough(value: float) -> str:
    """Format a number with two significant digits: '24,000', '4.1', '3 million'."""
    return two_digits(float(f"{value:.1e}")).replace(".0 ", " ")


def library_name(name: str) -> str:
    """Spell a library's name as its makers do: 'PyTorch', 'oneDNN graph'."""
    first, _, suffix = name.partition(" ")
    return f"{_SPELT.get(first, first)} {suffix}".strip()


def device_suffix(view: View, device: str) -> str:
    """Return a label suffix for a device: ', GPU', or the GPU's name if there are several; '' for a CPU."""
    if device_kind(device) == "cpu":
        return ""
    several = sum(device_kind(device) == "gpu" for device in view.devices()) > 1
    return f", {view.device_name(device)}" if several else ", GPU"
