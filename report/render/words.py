"""How the page speaks of verdicts, tiers and tallies; numbers are put into words by report.formatting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report import formatting, statistics
from report.model import ARITHMETIC, DECIDED

# The level of the intervals that are drawn and told, as captions say it.
LEVEL = f"{100 * statistics.LEVEL:g}%"
# The order in which verdicts are told; the class name (style sheet, PDF) of each.
VERDICTS: dict[str, str] = {
    "supported": "supported",
    "challenged": "challenged",
    "depends": "depends",
    "outdated": "outdated",
    "undecided": "undecided",
    "awaiting hardware": "awaiting",
    "awaiting experiment": "awaiting",
    "awaiting source": "awaiting",
    "not testable": "opinion",
}
MEANING = {
    "supported": "most cases lie on the article's side of the threshold, interval included, and none on the other",
    "challenged": "most cases lie on the other side of the threshold, interval included, and none on the article's",
    "depends": "its cases differ: some support it and some challenge it; the boundary is named",
    "outdated": "it was so when the article was written, and no longer is",
    "undecided": "too close to call: the interval straddles the threshold, or its model was never checked",
    "awaiting hardware": "the experiment exists; no node that has reported owns the hardware",
    "awaiting experiment": "the experiment that would decide it is named, and not yet part of this edition",
    "awaiting source": "the primary source that would decide it could not be read and checked",
    "not testable": "an opinion, advice, or words that no measurement could decide: shown with the reason",
}
TIERS = {
    "measured": "measured by this study",
    "derived": "arithmetic on measured or published figures",
    "published": "measured by others and published",
    "documented": "a published primary source",
    "none": "no evidence yet",
}
_FARES = {
    "supported": ("holds", "hold"),
    "challenged": ("does not", "do not"),
    "depends": ("depends on the case", "depend on the case"),
    "outdated": ("no longer does", "no longer do"),
    "undecided": ("is too close to call", "are too close to call"),
}
_LACKS = {
    "awaiting hardware": "for hardware that no node here has",
    "awaiting experiment": "for an experiment still to come",
    "awaiting source": "for a source",
}


def verdict_class(verdict: str) -> str:
    """Class name of a verdict, for the style sheet and the PDF; `awaiting` for one that is not known here."""
    return VERDICTS.get(verdict, "awaiting")


def with_interval(cell: Mapping[str, Any], unit: str) -> str:
    """Estimate, interval and unit of a cell, part or verdict; '' without an estimate."""
    if cell.get("estimate") is None:
        return ""
    return formatting.interval(cell["estimate"], cell.get("low"), cell.get("high"), unit)


def size(count: float) -> str:
    """Bytes in powers of two, as caches and memories are sold: 1.5 MiB."""
    for name in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{_short(count)} {name}"
        count /= 1024
    return f"{_short(count)} TiB"


def _short(value: float) -> str:
    return formatting.exactly(float(f"{value:.3g}"))


def sentence(text: str) -> str:
    """`text` with a capital letter, unless it begins with a name that has its own spelling (gemm.rate)."""
    first = text.split(" ", 1)[0]
    return formatting.capital(text) if first.isalpha() and first.islower() else text


def quantity_name(quantity: str) -> str:
    """What a quantity counts, from its name: 'matmul FLOP share'; '' for published figures, which are of many kinds."""
    if quantity in ("", "reference.value"):
        return ""
    spelt = {"mac": "MAC", "flop": "FLOP", "mfu": "MFU", "gpu": "GPU", "gpus": "GPUs", "cpu": "CPU", "onnx": "ONNX"}
    return " ".join(spelt.get(word, word) for word in quantity.split(".")[-1].split("_"))


def counted(part: Mapping[str, Any]) -> str:
    """What the bare numbers of a part's rule count: 'repeat share'; '' where a unit or the rule itself says it."""
    if str(part.get("unit") or "1") != "1" or part.get("rule") in ("ratio", "trend", "crossover"):
        return ""
    return quantity_name(str(part.get("quantity") or ""))


def answer(tally: Mapping[str, int]) -> list[str]:
    """Two sentences that say what the tally says."""
    count = {verdict: int(tally.get(verdict, 0)) for verdict in VERDICTS}
    total = sum(count.values())
    told = fares(count)
    if not told:
        first = f"None of the {formatting.count(total, 'claim')} can be decided on the evidence gathered so far."
    else:
        decided = sum(count[verdict] for verdict in DECIDED)
        first = f"Of {formatting.count(total, 'claim')}, {decided} can be decided on the evidence gathered so far: "
        first += f"{told}."
    return [first, _others(count)]


def fares(tally: Mapping[str, int]) -> str:
    """How the decided claims fare: '15 hold and 11 do not'; '' if there are none."""
    count = {verdict: int(tally.get(verdict, 0)) for verdict in DECIDED}
    return formatting.several([_counted(count[verdict], *_FARES[verdict]) for verdict in DECIDED if count[verdict]])


def close(tally: Mapping[str, int]) -> str:
    """'2 are too close to call'; '' if none is."""
    return _counted(count, *_FARES["undecided"]) if (count := int(tally.get("undecided", 0))) else ""


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _others(count: Mapping[str, int]) -> str:
    """What the claims that are not decided lack."""
    lacking = [name for name in _LACKS if count[name]]
    near = close(count)
    opinions = _counted(
        count["not testable"], "is nothing that a measurement decides", "are nothing that a measurement decides"
    )
    if not lacking and not near:
        return f"The other {opinions}." if count["not testable"] else "None is left open."
    told = [near] if near else []
    told += [f"{_counted(count[name], 'waits', 'wait')} {_LACKS[name]}" for name in lacking[:1]]
    told += [f"{count[name]} {_LACKS[name]}" for name in lacking[1:]]
    return f"Of the others, {formatting.several(told)}" + (f"; {opinions}." if count["not testable"] else ".")


def checked(part: Mapping[str, Any]) -> str:
    """How well the model of a derived part held against measurements; '' where it needs none, or nothing is known."""
    by, known = part.get("checked"), part.get("check")
    if by is None or by == ARITHMETIC:
        return ""
    if by == "":
        return "Derived by a model that no measurement checked: it is shown, and decides nothing alone."
    if not known:
        return f"Derived by a model that is held against measurements where there are any ({by})."
    if "cases" in known:
        least, most = (formatting.number(100 * known[name], 2) for name in ("least", "most"))
        cases = formatting.count(known["cases"], "measurement")
        return f"Derived by a model that was held against {cases}: it was off by {least}% to {most}%."
    times = [formatting.number(known[name], 2) for name in ("shortest", "longest", "width")]
    return (
        f"Derived, and held against {formatting.count(known['jobs'], 'job')} that were run whole: they took {times[0]} "
        f"to {times[1]} times as long as was derived. Times are corrected by that and their intervals widened; "
        f"{known['predicted']} of the {known['jobs']} jobs are predicted from the others so, to within a factor of "
        f"{times[2]} either way."
    )
