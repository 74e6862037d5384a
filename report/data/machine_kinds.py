"""Kinds of machines that articles compare a GPU with, and the nodes that are of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from report.data.dataset import Dataset
from report.formatting import SERVER_CORES

# Processors of laptops, by the letters after their number: Intel's H, HK, HX, P, U, V and G, AMD's H, HS, HX and U;
# Apple's M and Qualcomm's Snapdragon X, of which no server exists.
LAPTOP = re.compile(
    r"core.*(\d{3,5}(hx|hk|h|p|u|v)|\d{3,4}g\d)\b|ryzen.*\d{3,4}(hx|hs|h|u)\b|apple m\d|snapdragon\(?r?\)? x", re.I
)
# Processors of desktops with two channels of memory that is DDR5 and nothing else: AMD's for socket AM5 and Intel's for
# LGA 1851, by their numbers without a laptop's letters. Intel's 12th to 14th generation take DDR4 as well, and what a
# machine has of the two no node records. Source: the makers' product pages.
DESKTOP = re.compile(r"ryzen \d (pro )?[789]\d{3}(x3d|xt|x|ge|g|f)?\b|core.*ultra \d 2\d5(kf|ks|k|f|t)?\b", re.I)

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A test of a node's record for a kind of machine, and the kind of device that is the point of it, if any."""

    matches: Callable[[Record], bool]
    device: str = ""


def _cpu_model(record: Record) -> str:
    return str(record["hardware"]["cpu"]["model"])


def _is_gpu_server(record: Record) -> bool:
    there = any(device["kind"] == "gpu" for device in record["devices"])
    return there and int(record["hardware"]["cpu"]["usable_cores"]) >= SERVER_CORES


KINDS = {
    "laptop": Kind(lambda record: bool(LAPTOP.search(_cpu_model(record)))),
    "desktop": Kind(lambda record: bool(DESKTOP.search(_cpu_model(record)))),
    "many-core": Kind(lambda record: int(record["hardware"]["cpu"]["usable_cores"]) >= SERVER_CORES),
    "server": Kind(_is_gpu_server, "gpu"),
}


def nodes_of_kind(data: Dataset, kind: str) -> list[str]:
    """Ids of the nodes that are machines of a kind: laptop, desktop, many-core or server."""
    return [node.id for node in data.nodes.nodes if KINDS[kind].matches(node.record)]
