"""Machine kinds that articles compare with a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# A machine with at least this many cores counts as a server, as in claim W01.
SERVER_CORES = 64
# Regex to match laptop processors by name. Intel's model numbers end in H, HK, HX, P, U or V, or in G and a digit.
# AMD's end in H, HS, HX or U. Apple's M and Qualcomm's Snapdragon X match too, because no server uses them.
LAPTOP = re.compile(
    r"core.*(\d{3,5}(hx|hk|h|p|u|v)|\d{3,4}g\d)\b|ryzen.*\d{3,4}(hx|hs|h|u)\b|apple m\d|snapdragon\(?r?\)? x", re.I
)
# Regex to match desktop processors that support only dual-channel DDR5: AMD's for socket AM5 and Intel's for LGA 1851,
# without a laptop suffix. Intel's 12th to 14th generations do not match, because they also support DDR4, and node
# records do not distinguish DDR4 from DDR5. Source: the makers' product pages.
DESKTOP = re.compile(r"ryzen \d (pro )?[789]\d{3}(x3d|xt|x|ge|g|f)?\b|core.*ultra \d 2\d5(kf|ks|k|f|t)?\b", re.I)

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """Machine kind.

    name: its name in sentences, without an article. matches: returns True for such a machine's record.
    device: 'gpu' if such a machine must have a GPU, else ''.
    """

    name: str
    matches: Callable[[Record], bool]
    device: str = ""


def _cpu_model(record: Record) -> str:
    return str(record["hardware"]["cpu"]["model"])


def _is_gpu_server(record: Record) -> bool:
    there = any(device["kind"] == "gpu" for device in record["devices"])
    return there and int(record["hardware"]["cpu"]["usable_cores"]) >= SERVER_CORES


KINDS = {
    "laptop": Kind("laptop", lambda record: bool(LAPTOP.search(_cpu_model(record)))),
    "desktop": Kind("desktop with DDR5 memory", lambda record: bool(DESKTOP.search(_cpu_model(record)))),
    "many-core": Kind(
        f"server with {SERVER_CORES} cores",
        lambda record: int(record["hardware"]["cpu"]["usable_cores"]) >= SERVER_CORES,
    ),
    "server": Kind(f"server with {SERVER_CORES} cores beside a GPU", _is_gpu_server, "gpu"),
}
