"""Text token by token: what of the memory's bandwidth and of the arithmetic peak a prompt and a token use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from report.formatting import count, label_value, with_unit
from report.render import dots
from report.render.figures import BLUE, MARKERS, VERMILION
from report.render.measurements.base import Exhibit, Family, View
from report.render.measurements.marks import mark, multiple, over, records, stated
from report.render.words import LEVEL

_SHARES = {
    "bandwidth_share": ("of the bandwidth", [BLUE, MARKERS[0]]),
    "peak_share": ("of the peak", [VERMILION, MARKERS[1]]),
}
_PHASES = {"prefill": "the prompt at once", "decode": "one token after it"}
_CALL = ("model", "phase", "context", "batch", "dtype", "backend", "threads")


def show(view: View) -> Iterable[Exhibit]:
    """A figure for each device: shares of bandwidth and peak by call, tokens per second told."""
    for device in view.devices():
        rates = records(view.quantity("generation.tokens_per_s", device=device))
        if not rates:
            continue
        shares = {name: records(view.quantity(f"generation.{name}", device=device)) for name in _SHARES}
        groups = list(_groups(rates, shares))
        reading = [view.say(line, device) for line in _told(rates, shares)]
        drawing = _drawing(view, device, groups) if groups else None
        if drawing or reading:
            yield Exhibit(reading, drawing)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one.get(name) == other.get(name) for name in _CALL)


def _groups(rates: Sequence[Mapping[str, Any]], shares: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterable[Any]:
    """The calls by phase, those with a share alone."""
    for phase, title in _PHASES.items():
        rows = []
        for rate in sorted((one for one in rates if one["phase"] == phase), key=_order):
            marks = [mark(one, _SHARES[name][1]) for name, found in shares.items() for one in found if _same(one, rate)]
            if marks:
                below = f"{rate['dtype']}, batch {rate['batch']}, {_way(rate)}"
                rows.append({"label": str(rate["model"]), "below": below, "marks": marks,
                             "told": with_unit(rate["estimate"], "tokens/s")})  # fmt: skip
        if rows:
            yield {"title": title, "rows": rows, "lines": []}


def _order(rate: Mapping[str, Any]) -> tuple[float, str, int, str]:
    return (float(rate.get("parameters") or 0.0), str(rate["dtype"]), int(rate["batch"]), _way(rate))


def _way(rate: Mapping[str, Any]) -> str:
    return count(int(rate["threads"]), "thread") if rate["threads"] else str(rate["backend"])


def _drawing(view: View, device: str, groups: Sequence[Any]) -> dots.Drawing:
    legend = [{"label": name, "look": look, "hollow": False} for name, look in _SHARES.values()]
    shows = {"groups": groups, "x": "share", "unit": "1", "scale": "log", "legend": legend}
    caption = (
        f"What a GPT that continues texts uses of the measured bandwidth and peak; {view.where(device)}. Bandwidth: "
        f"weights and cache, each read once, of models that no cache holds. With {LEVEL} intervals; at the right the "
        "rate."
    )
    return dots.drawing(
        view.name("generation", device), shows, caption, f"Shares of bandwidth and peak on {view.where(device)}."
    )


def _told(rates: Sequence[Mapping[str, Any]], shares: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterable[str]:
    """Both phases of the largest model of which both were measured alike, side by side."""
    for prompt in sorted((one for one in rates if one["phase"] == "prefill"), key=_order, reverse=True):
        token = next(
            (one for one in rates if _same({**one, "phase": "prefill"}, prompt) and one["phase"] == "decode"), None
        )
        if token is None:
            continue
        parts = []
        for what, rate in (("reads", prompt), ("writes", token)):
            used = [
                f"{stated(one, '1')} {_SHARES[name][0]}"
                for name, found in shares.items()
                for one in found
                if _same(one, rate)
            ]
            parts.append(
                f"{what} {with_unit(rate['estimate'], 'tokens/s')}" + (f" ({', '.join(used)})" if used else "")
            )
        yield (
            f"{prompt['model']} in {prompt['dtype']}, {label_value('batch', int(prompt['batch']))}, "
            f"{' and '.join(parts)}: a token of the prompt costs {multiple(over(token, prompt))} what one costs "
            "that is written."
        )
        return


FAMILY = Family("generation", "Text, token by token", show)
