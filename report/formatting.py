"""Format numbers, intervals, labels and node names for the report."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from contract.machine_kinds import SERVER_CORES
from contract.node import count_machines, kind_of_node

ALLOWED_PREFIX = {"FLOP/s", "B/s", "B", "Hz", "FLOP", "W", "s", "J", "J/FLOP", "J/B"}
# Units that take only prefixes below 1 (m, µ, n, p). The other units in ALLOWED_PREFIX take only prefixes above 1 (k, M
# and so on).
_SMALL = {"s", "J", "J/FLOP", "J/B"}
_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_NOT_SHOWN = {"1", ""}
_SPELT = {"d": "days", "h": "hours"}
# Match plural words in units, which become singular after 1.
_PLURAL = re.compile(r"\b(cycle|day|hour|node|request|row|sample|server|thread|token)s\b")
_DEVICE = {"cpu": "CPU", "gpu": "GPU"}
BASELINES = {
    "core": "one core",
    "socket": "one socket",
    "node": "all cores",
    "fleet": "the fastest CPU of all nodes",
    "server": f"all cores of a server with {SERVER_CORES} or more",
    "desktop": "a desktop with DDR5 memory",
    "laptop": "a laptop",
}


# Unit for quantities that answer yes (1) or no (0).
YES_NO = "yes or no"


def si_prefix(value: float, unit: str) -> tuple[float, str]:
    """Return divisor and prefixed unit: (1e9, 'GFLOP/s'). Counts and shares get no prefix."""
    if unit not in ALLOWED_PREFIX or not value or not math.isfinite(value):
        return 1.0, "" if unit in _NOT_SHOWN else _SPELT.get(unit, unit)
    power = 3 * math.floor(math.log10(abs(value)) / 3 + 1e-12)
    low, high = (-12, 0) if unit in _SMALL else (0, 18)
    power = max(low, min(high, power))
    return 10.0**power, f"{_PREFIXES[power]}{unit}"


def _append_unit(shown: str, name: str) -> str:
    """Append a unit to a printed number, singular after '1': '2 hours', '1 hour', '1 request/s', '3%'."""
    if name == "%":
        return f"{shown}%"
    return f"{shown} {_PLURAL.sub(lambda match: match[1], name) if shown == '1' else name}".strip()


def format_number(value: float | None, digits: int = 3) -> str:
    """Format a number to this many significant digits: 27.9, 0.500, 3,571.

    Thousands are separated by commas, and words are used from a million on: 3.19 billion.
    """
    if value is None or math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "without end"
    divisor, word = _large_number_word(value)
    return (
        f"{value / divisor:,.{_decimals(value / divisor, digits)}f}{word}"
        if _has_plain_notation(value)
        else f"{value:.2e}"
    )


def two_digits(value: float) -> str:
    """Format a number for a sentence: '24', '0.85', '5,100'."""
    return format_number(value, 2).removesuffix(".0")


def format_exact(value: float) -> str:
    """Format a declared number without trailing zeros: 0.5, 1,000, 59.4, 2 billion."""
    divisor, word = _large_number_word(value)
    if not _has_plain_notation(value):
        return f"{value:g}"
    text = f"{value / divisor:,.10g}" if abs(value / divisor) >= 1e-3 else f"{value:g}"
    return f"{text}{word}"


def _has_plain_notation(value: float) -> bool:
    return value == 0 or 1e-5 <= abs(value) < 1e18


def _large_number_word(value: float) -> tuple[float, str]:
    for size, word in ((1e15, " quadrillion"), (1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if abs(value) >= size:
            return size, word
    return 1.0, ""


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0


# Units for durations, in s, with the number of the smaller unit from which each is used.
_DURATIONS = (("years", 31_557_600.0, 2.0), ("days", 86_400.0, 3.0), ("hours", 3600.0, 1.5), ("minutes", 60.0, 1.5))


def duration_words(seconds: float) -> str:
    """Format a duration in the unit that readers would use: '42 s', '8.5 minutes', '31 hours', '12 days'."""
    for name, size, least in _DURATIONS:
        if seconds >= size * least:
            return f"{two_digits(seconds / size)} {name}"
    return f"{two_digits(seconds)} s" if seconds >= 1 else f"{two_digits(seconds * 1000)} ms"


def with_unit(value: float | None, unit: str, digits: int = 3) -> str:
    """Format a measured number with its unit: '412 GFLOP/s', '0.930', '67.2 days'; 'yes' or 'no' for YES_NO."""
    if value is None:
        return "unknown"
    if unit == YES_NO:
        return "yes" if value >= 0.5 else "no"
    scale, name = si_prefix(value, unit)
    return _append_unit(format_number(value / scale, digits), name)


def format_interval(estimate: float | None, low: float | None, high: float | None, unit: str) -> str:
    """Format a number with its interval: '27.9 [27.1, 28.7] MAC/cycle'.

    Exact numbers have no brackets. A number without an interval is followed by '(no interval)'.
    """
    if estimate is None or unit == YES_NO:
        return with_unit(estimate, unit)
    if low is None or high is None:
        return f"{with_unit(estimate, unit)} (no interval)"
    scale, name = si_prefix(estimate, unit)
    if low == high == estimate:
        value = estimate / scale
        short = float(f"{value:.5g}") == value
        return _append_unit(format_exact(value) if short else format_number(value), name)
    divisor, word = _large_number_word(estimate / scale)
    values = [value / scale / divisor for value in (estimate, low, high)]
    # Decimals are added until the two printed ends of a narrow interval differ.
    decimals = next((d for d in range(7) if d >= _decimals(values[0], 3) and _ends_differ(values, d)), 6)
    shown = [f"{value:,.{decimals}f}" for value in values]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]{word} {name}".strip()


def _ends_differ(values: Sequence[float], decimals: int) -> bool:
    return f"{values[1]:.{decimals}f}" != f"{values[2]:.{decimals}f}"


def threshold_text(value: float | Sequence[float], unit: str) -> str:
    """Format a threshold or a range with its unit: '1,000 MAC/cycle', '10 to 60'."""
    return thresholds_text([value], unit)


def thresholds_text(values: Sequence[float | Sequence[float]], unit: str, last: str = "and") -> str:
    """Format several thresholds, with the unit once if all share it: '1, 2 or 4 MAC/cycle'."""
    if unit == YES_NO:
        return join_words([with_unit(value, unit) for value in values if isinstance(value, (int, float))], last)
    # A range with equal ends becomes one number.
    numbers = [[value] if isinstance(value, (int, float)) else list(dict.fromkeys(value)) for value in values]
    scaled = {si_prefix(float(number), unit) for pair in numbers for number in pair}
    if len(scaled) == 1:
        scale, name = scaled.pop()
        texts = [" to ".join(format_exact(number / scale) for number in pair) for pair in numbers]
        return _append_unit(join_words(texts, last), name)
    return join_words([" to ".join(_exact_with_unit(number, unit) for number in pair) for pair in numbers], last)


def _exact_with_unit(value: float, unit: str) -> str:
    scale, name = si_prefix(float(value), unit)
    return _append_unit(format_exact(value / scale), name)


def join_words(items: Sequence[str], last: str = "and") -> str:
    """Join words: 'a', 'a and b', 'a, b and c'."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def range_words(first: str, last: str) -> str:
    """Join two formatted numbers to a range: '2.4 to 5.1 GB/s', '9% to 27%'.

    A unit after a space is printed once if it is the same. Equal numbers are printed once: '2.4 GB/s'.
    """
    if first == last:
        return first
    number, _, unit = first.partition(" ")
    return f"{number if unit and unit == last.partition(' ')[2] else first} to {last}"


# At most this many names are printed; longer lists are shortened.
_MOST_NAMES = 6


def shorten_names(names: Sequence[str], noun: str, numbers: Sequence[int] = ()) -> str:
    """Join names, and shorten long lists: 'a, b, c and 997 other machines'.

    numbers: how many items each name stands for; by default 1 each.
    """
    if len(names) <= _MOST_NAMES:
        return join_words(names)
    left = sum((numbers or [1] * len(names))[_MOST_NAMES // 2 :])
    return join_words([*names[: _MOST_NAMES // 2], f"{left:,} other {noun}s"])


def first_items(items: Sequence[str], most: int, between: str = ", ") -> str:
    """Join the first `most` items and count the rest: 'a, b and 3 more'."""
    more = len(items) - most
    return between.join(items[:most]) + (f" and {more:,} more" if more > 0 else "")


def capitalize(text: str) -> str:
    """Return `text` with its first letter capitalized."""
    return text[:1].upper() + text[1:]


# Match an ordinary capitalized word: one capital letter, no digit, and possibly hyphens ("Pre-training", "A").
_ORDINARY = re.compile(r"[A-Z](?:[a-z]*(?:-[a-z]+)*)(?=[,;:.]?(?:\s|\Z))")
# Names that look like ordinary words, but keep their capital letter.
NAMES = {
    "Adam", "Ampere", "Apple", "Azure", "Blackwell", "Claude", "Fugaku", "Gemini", "Google", "Grace", "Hopper", "Intel",
    "Lambda", "Linux", "Llama", "Meta", "Python", "Rubin", "Stanford", "Triton", "Turing", "Vera", "Volta", "Vulkan",
    "Wikipedia", "Xeon", "Zen",
}  # fmt: skip


def uncapitalize(text: str) -> str:
    """Return `text` with a small first letter, to continue a sentence, unless it begins with a name."""
    first = _ORDINARY.match(text)
    return text if first is None or first[0] in NAMES else text[:1].lower() + text[1:]


def format_count(n: int, noun: str) -> str:
    """Format a count: '1 case', '3 cases'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def format_part(n: int, total: int, nouns: str, singular: str, plural: str) -> str:
    """Format a part of a total with a verb that agrees: '1 of 3 cases lies', '2 of 3 cases lie'."""
    return f"{n:,} of {total:,} {nouns} {singular if n == 1 else plural}"


# Printed names for values in the label `service`, which tells what a server program computes. `classifier` and `int8`
# are small networks that occur only in earlier nodes' data.
SERVICES = {
    "text-classifier": "classifier of texts",
    "image-classifier": "classifier of photographs",
    "classifier": "classifier of images",
    "lookup": "rows of a table of vectors",
    "embedding": "search of a million vectors",
    "int8": "language model in 8-bit integers",
}


def label_value(name: str, value: Any) -> str:
    """Format one label: 'float32', '2 threads', 'batch 64', 'footprint 268 MB'."""
    if name in ("device", "kind"):
        return _DEVICE.get(str(value), str(value))
    if name == "threads":
        if value == "all":
            return "all threads"
        return "no CPU threads" if value == 0 else format_count(int(value), "thread")
    if name == "in_flight":
        return f"{format_count(int(value), 'thread')} in flight"
    if name == "requests_per_s":
        return _append_unit(format_exact(float(value)), "requests/s")
    if name == "users":
        return format_count(int(value), "user")
    if name in ("prompt_tokens", "new_tokens"):
        return f"{format_exact(float(value))} {name.removesuffix('_tokens')} tokens"
    if name == "traffic":
        return f"{format_number(float(value))} tokens a day"
    if name == "service":
        return SERVICES.get(str(value), str(value))
    if name == "cores":
        return format_count(int(value), "core") if value else "all cores"
    if name == "runtime":
        return f"by {value}"
    if name == "cpu_runtime":
        return f"CPU by {value}"
    if name == "paths":
        return format_count(int(value), "path")
    if name == "uses":
        return format_count(int(value), "use")
    if name == "shape":
        return "the best shape" if value == "best" else f"shape {value}"
    if name == "backend":
        return "the best library" if value == "best" else str(value)
    if name == "precision":
        return f"{value} precision"
    if name == "baseline":
        return f"against {BASELINES.get(str(value), value)}"
    if name in ("footprint", "size") and not isinstance(value, str):
        return f"{name} {with_unit(float(value), 'B')}"
    if name == "parameters":
        return f"{format_number(float(value))} parameters"
    if name == "flop":
        return with_unit(float(value), "FLOP")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{name} {format_exact(float(value))}"
    if name in ("node", "dtype", "model", "op", "phase", "entry", "run", "layer"):
        return str(value)
    return f"{name.replace('_', ' ')} {value}"


def labels_text(labels: Mapping[str, Any], leave_out: Sequence[str] = ()) -> str:
    """Format a case's labels, except those in `leave_out`."""
    return ", ".join(
        label_value(name, value)
        for name, value in labels.items()
        if name not in leave_out and not (name == "threads" and value == 0)
    )


# Labels that are not printed for a published figure, because they describe its source or method, or because they are
# printed in another way.
_HIDDEN_PUBLISHED = {
    "source", "family", "records", "measure", "task", "strength", "comparison", "variant", "baseline", "gpus",
    "software", "node", "device", "gpu", "cpu", "machine", "of", "to", "model", "precision", "transfers", "copied",
    "ceilings", "cpu_result",
}  # fmt: skip


def case_name(labels: Mapping[str, Any], detail: str) -> str:
    """Format a case's labels and detail.

    The label value `best` for a library or shape is not printed; 'fastest: ' and the detail take its place.
    """
    if "family" in labels:
        return _published_case_name(labels, detail)
    hidden = ["node", "device"]
    if "best" in (labels.get("backend"), labels.get("shape")):
        hidden += ["backend", "shape"]
        detail = f"fastest: {detail}" if detail else ""
    if "shape" in labels:
        hidden += ["m", "n", "k"]
    if "entry" in labels:
        return detail
    device = str(labels.get("device", "cpu"))
    words = labels_text(labels, hidden)
    return ", ".join(text for text in ("" if device == "cpu" else device, words, detail) if text)


def verdict_case_name(case: Mapping[str, Any]) -> str:
    """Format a case record from `verdicts.json`."""
    return case_name({**case["labels"], "device": case.get("device") or "cpu"}, case.get("detail", ""))


def _published_case_name(labels: Mapping[str, Any], detail: str) -> str:
    """Format a published figure's work, hardware, setting and source.

    'ResNet-50, H100 SXM over 2 x Xeon Platinum 8480+, mixed over bfloat16, MLPerf Training v3.1 (mlperf-training-3.1)'
    """
    hardware = " over ".join(str(labels[name]) for name in ("gpu", "cpu") if labels.get(name)) or labels.get("machine")
    sides = " over ".join(str(labels[name]) for name in ("of", "to") if labels.get(name))
    formats = labels.get("precision", "") if " over " in str(labels.get("precision", "")) else ""
    others = {name: value for name, value in labels.items() if name not in _HIDDEN_PUBLISHED}
    parts = [labels.get("model"), hardware, sides, formats, labels_text(others).replace("setting ", ""), detail]
    text = ", ".join(str(part) for part in parts if part)
    return f"{text} ({labels['source']})" if labels.get("source") else text


def side_name(value: Any) -> str:
    """Format a compared value, such as a device or a number format: 'CPU', 'bfloat16'."""
    return str(value).upper() if value in ("cpu", "gpu") else str(value)


# Maximum length to print for a processor name. The names that manufacturers give are shorter.
_LONGEST_NAME = 48


def short_processor(name: str) -> str:
    """Strip trademark signs and filler from a processor's name, and truncate it to fit figures."""
    name = re.sub(r"\((r|tm|c)\)|®|™", "", name, flags=re.IGNORECASE)
    name = re.sub(r"@.*|\b\d+-Core\b|\b(CPU|Processor)\b", "", name)
    name = " ".join(name.split())
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"


def count_machines_and_runs(nodes: Sequence[str]) -> str:
    """Count nodes in words: '3 machines', '2 runs of one machine', '5 runs of 3 machines'."""
    machines = count_machines(nodes)
    if machines == len(nodes):
        return format_count(machines, "machine")
    return (
        f"{format_count(len(nodes), 'run')} of {'one machine' if machines == 1 else format_count(machines, 'machine')}"
    )


def machine_names(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Format node records from `verdicts.json`, grouped by kind: 'AMD EPYC, 2 cores, 3 runs of 2 machines'."""
    kinds: dict[str, dict[str, str]] = {}
    for node in nodes:
        kinds.setdefault(kind_of_node(node["id"]), {})[node["id"]] = str(node.get("label") or node["id"])
    texts = []
    for labels in kinds.values():
        label, *others = labels.values()
        make = label.rpartition(" (")[0] or label
        texts.append(f"{make}, {count_machines_and_runs([*labels])}" if others else label)
    return shorten_names(texts, "machine", [count_machines([*labels]) for labels in kinds.values()])


def case_nodes(case: Mapping[str, Any]) -> list[str]:
    """Return the nodes that measured a case in `verdicts.json`: several if pooled, none for published figures."""
    return [str(node) for node in case.get("instances") or [case.get("node")] if node]


def case_machine(case: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Format the node or pooled machines for a case in `verdicts.json`; '' if there is none."""
    return str(case.get("machines") or labels.get(str(case.get("node"))) or case.get("node") or "")


def substitutes_text(device: Mapping[str, Any]) -> str:
    """Format the number formats that a GPU lacks: 'no units for bfloat16: measured in float16'; '' if there are none.

    device: an entry in a node record's `devices`.
    """
    instead = device.get("substitutes") or {}
    return (
        f"no units for {join_words(list(instead))}: measured in {join_words(list(instead.values()))}" if instead else ""
    )


def host_label(record: Mapping[str, Any]) -> str:
    """Format a node's short name without GPUs: 'AMD EPYC 9654, 2 cores'."""
    cpu = record["hardware"].get("cpu") or {}
    about = cpu if isinstance(cpu, Mapping) else {"model": str(cpu)}
    first = next((device["name"] for device in record["devices"] if device["kind"] == "cpu"), "")
    label = short_processor(str(about.get("model") or first or record["id"]))
    cores = about.get("usable_cores") or about.get("cores")
    quota = f" (quota {about['quota']:g})" if about.get("quota") else ""
    return f"{label}, {format_count(int(cores), 'core')}{quota}" if cores else label


def node_label(record: Mapping[str, Any]) -> str:
    """Format a node's short name: 'AMD EPYC 9654, 2 cores', 'Intel Xeon, 64 cores + 2 × NVIDIA H100'."""
    label = host_label(record)
    cards = [short_processor(device["name"]) for device in record["devices"] if device["kind"] == "gpu"]
    for card in sorted(set(cards)):
        many = cards.count(card)
        label += f" + {f'{many} × ' if many > 1 else ''}{card}"
    return label
