"""Chips by the names that people write: GPUs, processors, Apple's chips and rented machines.

`data/reference/advice/chips.csv` lists chips with their ratings. A processor that is not in this list belongs to a
family in chip_families.csv, by a pattern. A text can also tell how many chips or cores, the memory and its speed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from report.data.names import read_rows
from report.data.reference_figures import REFERENCE

ADVICE = REFERENCE / "advice"
GIB = 2**30
# Words that say nothing about a model.
_BRANDS = re.compile(
    r"\b(nvidia|geforce|amd|intel|radeon|tesla|instinct|apple|gpus?|graphics|core ?tm|tm|r"
    r"|generation|edition|workstation|one of its four|one card|desktop)\b"
)
# Words for a chip's builds, in names and in texts.
_BUILDS = ("laptop", "pcie", "sxm", "nvl", "server", "ws", "max-q")
_BUILD_WORDS = {
    "laptop": r"laptop|mobile|notebook|max ?q",
    "pcie": r"pcie?|pci e",
    "sxm": r"sxm\d?|hgx|dgx|nvlink|oam",
    "nvl": r"nvl",
    "server": r"server",
    "ws": r"workstation",
    "max-q": r"max ?q",
}
# GB in names; vendors mean 2^30 bytes.
_MEMORY = re.compile(r"(?<![a-z0-9.])(\d{1,3}(?:\.\d+)?) ?g(?:i?b)?(?![a-z0-9])")
_COUNT = re.compile(
    r"^\W*(\d{1,3}) ?(?:x|×|\*)\s*(?=[a-z0-9(])|(?<![a-z0-9])(?:x|×) ?(\d{1,3})(?=$|[ ,;)])"
    # Memory has modules, not chips.
    r"|\b(\d{1,3}) ?(?:x|×) (?=[a-z])(?!(?:lp)?ddr|s?o?-?dimm|channel|gi?b\b)"
)
_PAIRS = re.compile(
    r"\b(dual|two|2|2-)[ -]?(?:socket|s\b|p\b|way|xeon|epyc|cpus|rtx|gtx|a100|h100)|\bdual\b(?! ?channel)"
)
_CORES = re.compile(r"(?<![a-z0-9])(\d{1,3})[ -]?(?:cores?|c)\b(?! ?gpu)")
_GPU_CORES = re.compile(r"(\d+)[ -]?core ?gpu|gpu ?(\d+)[ -]?core|(\d+) ?gpu cores|\b(\d+)c gpu")
_VCPUS = re.compile(r"(\d+) ?(?:vcpus?|threads\b)")
_INSTANCE = re.compile(r"\b([a-z]+\d[a-z]*)[.-](?:(\d*)(x?)large|(?:standard|highmem|highcpu)-(\d+))")
_DDR = re.compile(r"(?:lp)?ddr(\d)x?(?:[ @]{1,3}(\d{4,5}))?")
_CHANNELS = re.compile(r"(\d+|single|dual|quad|octa|eight|twelve)[ -]?channel")
_CHANNEL_WORDS = {"single": 1, "dual": 2, "quad": 4, "octa": 8, "eight": 8, "twelve": 12}
# Words for software that only GPUs run, and GPUs inside processors by the processors' names.
_FOR_GPUS = re.compile(r"vulkan|rocm|\bhip\b|gfx\d{3}|\bigpu|integrated (gpu|graphics)|directml")
_INTEGRATED = (
    (r"ai max|strix halo|gfx1151", "Radeon 8060S"),
    (r"ryzen ai 9|\bhx? ?3[67]\d\b", "Radeon 890M"),
    (r"\b(78|79|88|89)4[05][hu]", "Radeon 780M"),
    (r"\b6[89]\d\d[hu]", "Radeon 680M"),
)
# Transfers per second by DDR generation, where a text tells no more.
_DDR_SPEEDS = {3: 1.6e9, 4: 3.2e9, 5: 5.6e9}
# Bytes per second that one core can read, as far as its memory allows.
CORE_BYTES_PER_S = 14e9
# FLOP/s in products by an Apple core with its share in the matrix units, fast and slow cores averaged.
APPLE_CORE_FLOPS = 130e9
# Laptop builds without a row have this share from the card's arithmetic and bandwidth.
LAPTOP_SHARE = 0.75
# Usual memory where a text tells none, in bytes, by class.
_USUAL_MEMORY = {
    "cpu-laptop": 16 * GIB, "cpu-desktop": 32 * GIB, "cpu-server": 256 * GIB, "gpu-integrated": 16 * GIB,
}  # fmt: skip
_APPLE_MEMORY = {"ultra": 128 * GIB, "max": 64 * GIB, "pro": 32 * GIB, "": 16 * GIB}


class UnknownNameError(Exception):
    """A name that is in no table. kind: chip, model or format. nearest: known names like it."""

    def __init__(self, kind: str, name: str, nearest: Sequence[str]) -> None:
        self.kind, self.name, self.nearest = kind, name, tuple(nearest)
        hint = f"; the nearest known: {', '.join(self.nearest)}" if self.nearest else ""
        super().__init__(f"{kind} {name!r} is not known{hint}")


@dataclass(frozen=True)
class Machine:
    """A chip, or several equal ones.

    chip: id; name: as shown; kind: class such as gpu-card; count: chips. For one chip: memory_bytes; bandwidth in B/s;
    vector_flops and matrix_flops, in float32 and in 16 bits, in FLOP/s; cores; memory channels; year when it came;
    power_w, rated. threads: used on all processors;
    usd: launch price of one chip; rated: whether the chip has a row of its own.
    """

    chip: str
    name: str
    kind: str
    count: int
    memory_bytes: float
    bandwidth: float
    vector_flops: float
    matrix_flops: float
    cores: int = 0
    channels: int = 0
    threads: int = 0
    year: int = 0
    power_w: float | None = None
    usd: float | None = None
    rated: bool = True
    memory_told: bool = True

    @property
    def label(self) -> str:
        """The name as shown, with the number of chips if there are several."""
        return f"{self.count}x {self.name}" if self.count > 1 else self.name

    @property
    def is_cpu(self) -> bool:
        return self.kind.startswith("cpu")

    @property
    def is_apple(self) -> bool:
        return self.kind == "apple"


@dataclass(frozen=True)
class _Row:
    """A line in chips.csv, with the texts that find it."""

    machine: Machine
    words: str
    pattern: re.Pattern[str]
    builds: frozenset[str]
    memory: float
    gpu_cores: int


@dataclass(frozen=True)
class _Family:
    pattern: re.Pattern[str]
    machine: Machine
    channels: float
    flops_per_core: float
    matrix_flops_per_core: float


def normalise(text: str) -> str:
    """Write a name in lower case, with single spaces for punctuation, and letters apart from digits after a series."""
    text = text.lower().replace("™", " ").replace("®", " ").replace("(r)", " ").replace("(tm)", " ")
    text = re.sub(r"\b(rtx|gtx|rx|gt|tesla|arc|ryzen|epyc|xeon)(?=[a-z]?\d)", r"\1 ", text)
    text = re.sub(r"(?<=\d)(ti|xtx|xt|super|gre|laptop|mobile)\b", r" \1", text)
    text = re.sub(r"\b(ti)(super)\b", r"\1 \2", text)
    return re.sub(r"[^a-z0-9+.×*@]+", " ", text).strip()


def cell_number(text: str) -> float:
    """Parse a cell of a table; an empty one is 0."""
    return float(text) if text else 0.0


def _identity(name: str) -> str:
    """Return a chip's name without brand, memory, build and bracketed remarks."""
    text = normalise(re.sub(r"\(.*?\)|, \d+-core GPU", "", name))
    text = _MEMORY.sub(" ", text)
    for pattern in _BUILD_WORDS.values():
        text = re.sub(rf"\b({pattern})\b", " ", text)
    return " ".join(_BRANDS.sub(" ", text).split())


def _name_pattern(identity: str) -> re.Pattern[str]:
    """Match a chip's identity in a normalised text, with or without its series and spaces."""
    words = identity.split()
    # Words that people leave out: a series before a number that belongs to it alone.
    may_lack = {"core", "ryzen", "xeon", "gold", "platinum", "epyc", "threadripper", "ada", "blackwell", "quadro"}
    if re.match(r"rtx (\d{2}[5-9]0|a\d{4})|rx \d{4} (xtx?|gre)", identity):
        may_lack |= {"rtx", "rx"}
    if re.match(r"(ryzen|core) \w+ (\d{4,5}[a-z0-9]+|i\d)", identity):
        may_lack |= {"5", "7", "9"}
    parts = [f"(?:{re.escape(word)} ?)?" if word in may_lack else f"{re.escape(word)} ?" for word in words]
    # EPYC processors for one socket end in P.
    ending = "p?" if words[0] == "epyc" else ""
    return re.compile(r"(?<![a-z0-9])" + "".join(parts).removesuffix(" ?") + ending + r"(?![a-z0-9+])")


@cache
def _families(folder: Path = ADVICE) -> tuple[_Family, ...]:
    families = []
    for row in read_rows(folder / "chip_families.csv"):
        cores = int(row["cores"])
        bandwidth = cell_number(row["channels"]) * 8 * cell_number(row["transfers_per_s"])
        machine = Machine(
            chip=re.sub(r"[^a-z0-9]+", "-", row["name"].lower()).strip("-"),
            name=row["name"],
            kind=row["class"],
            count=1,
            memory_bytes=_USUAL_MEMORY[row["class"]],
            bandwidth=bandwidth,
            vector_flops=cores * cell_number(row["flops_per_core"]),
            matrix_flops=cores * (cell_number(row["matrix_flops_per_core"]) or cell_number(row["flops_per_core"])),
            cores=cores,
            channels=int(row["channels"]),
            year=int(row["year"]),
            rated=False,
            memory_told=False,
        )
        pattern = re.compile(rf"(?<![a-z0-9.])(?:{row['pattern']})(?![a-z0-9])")
        families.append(
            _Family(
                pattern,
                machine,
                cell_number(row["channels"]),
                cell_number(row["flops_per_core"]),
                cell_number(row["matrix_flops_per_core"]) or cell_number(row["flops_per_core"]),
            )
        )
    return tuple(families)


def _family_spans(text: str) -> list[tuple[tuple[int, int], _Family]]:
    matches = ((family.pattern.search(text), family) for family in _families())
    return [(match.span(), family) for match, family in matches if match]


def _longest_family(text: str) -> _Family | None:
    """Return the family whose pattern matches most; among equals, the first in the table."""
    spans = _family_spans(text)
    spans = [item for item in spans if not item[1].machine.name.startswith("a ")] or spans
    return max(spans, key=lambda item: item[0][1] - item[0][0])[1] if spans else None


@cache
def rows(folder: Path = ADVICE) -> tuple[_Row, ...]:
    """Read chips.csv, and add processors' arithmetic from their families."""
    table = []
    for row in read_rows(folder / "chips.csv"):
        name, kind = row["name"], row["class"]
        vector = cell_number(row["fp32_flops"])
        matrix = cell_number(row["matrix_flops"])
        cores, channels = int(cell_number(row["cores"])), 2
        if kind.startswith("cpu"):
            family = _longest_family(normalise(name.removeprefix("AMD ").removeprefix("Intel ")))
            if family is None:
                raise ValueError(f"{folder / 'chip_families.csv'}: no family for {name}")
            cores, channels = cores or family.machine.cores, family.machine.channels
            vector = vector or cores * family.flops_per_core
            matrix = matrix or cores * family.matrix_flops_per_core
        # Cards before Volta have no faster units for 16 bits; later ones have at least twice the rate.
        if not matrix:
            year = int(cell_number(row["year"]) or 2020)
            doubled = kind.startswith("gpu") and year >= 2018 and not re.search(r"gtx|cmp", name.lower())
            matrix = vector * (2 if doubled else 1)
        memory = cell_number(row["memory_bytes"]) or _USUAL_MEMORY.get(kind, 16 * GIB)
        if kind == "apple":
            memory = next(size for word, size in _APPLE_MEMORY.items() if word in name.lower())
        machine = Machine(
            chip=row["chip"],
            name=name,
            kind=kind,
            count=1,
            memory_bytes=memory,
            bandwidth=cell_number(row["memory_bytes_per_s"]),
            vector_flops=vector or matrix / 8,
            matrix_flops=matrix,
            cores=cores,
            channels=channels,
            year=int(cell_number(row["year"]) or 2020),
            power_w=cell_number(row["power_w"]) or None,
            usd=cell_number(row["usd_launch"]) or None,
            memory_told=bool(row["memory_bytes"]),
        )
        text = normalise(name)
        builds = frozenset(build for build in _BUILDS if re.search(rf"\b({_BUILD_WORDS[build]})\b", text))
        identity = _identity(name)
        stated = _MEMORY.search(text)
        gpu_cores = _GPU_CORES.search(text)
        table.append(
            _Row(
                machine,
                identity,
                _name_pattern(identity),
                builds,
                float(stated[1]) if stated else memory / GIB,
                int(next(filter(None, gpu_cores.groups()))) if gpu_cores else 0,
            )
        )
    return tuple(table)


def _matches(text: str) -> tuple[list[_Row], _Family | None]:
    """List the chips that a text names with the most letters, GPUs before processors; else its family.

    A name within a longer name does not count: the 7600 in "Ryzen 5 7600" is no Radeon.
    """
    chips = [(match.span(), row) for row in rows() if (match := row.pattern.search(text))]
    families = _family_spans(text)
    spans = [span for span, _ in chips] + [span for span, _ in families]

    def is_whole(span: tuple[int, int]) -> bool:
        return not any(
            other[0] <= span[0] and span[1] <= other[1] and other[1] - other[0] > span[1] - span[0] for other in spans
        )

    whole = [(span, row) for span, row in chips if is_whole(span)]
    graphics = [(span, row) for span, row in whole if not row.machine.is_cpu]
    whole = graphics or whole
    if whole:
        longest = max(end - start for (start, end), _ in whole)
        return [row for (start, end), row in whole if end - start == longest], None
    return [], _longest_family(text)


def _best_build(candidates: Sequence[_Row], text: str) -> _Row:
    """Choose the build that agrees best with a text: form, GPU cores, then memory."""
    sizes = [float(size) for size in _MEMORY.findall(text)]
    cores = _GPU_CORES.search(text)
    told_cores = int(next(filter(None, cores.groups()))) if cores else 0

    def disagreement(row: _Row) -> tuple[float, float, float]:
        builds = {build for build in _BUILDS if re.search(rf"\b({_BUILD_WORDS[build]})\b", text)}
        form = float(len(row.builds - builds)) * 0.5 + 2.0 * len(
            (builds & {"laptop", "nvl", "pcie", "sxm"}) - row.builds
        )
        size = (
            min((abs(size - row.memory) / row.memory for size in sizes), default=0.0)
            if row.machine.memory_told
            else 0.0
        )
        wrong_cores = float(bool(told_cores) and row.gpu_cores != told_cores)
        return wrong_cores, min(size, 1.0) + (form if form >= 2 else 0), form

    # Equal builds keep the table's order, in which the usual build comes first.
    best = min(candidates, key=disagreement)
    if not sizes and not told_cores:
        plain = [row for row in candidates if not ({"laptop"} & row.builds)]
        wanted = disagreement(best)[1]
        best = next((row for row in plain if disagreement(row)[1] <= wanted and disagreement(row)[2] < 2), best)
    return best


def _count(text: str) -> int:
    match = _COUNT.search(text)
    if match:
        return int(next(filter(None, match.groups())))
    return 2 if _PAIRS.search(text) else 1


def find_machine(
    text: str, count: int | None = None, threads: int | None = None, processor: bool | None = None
) -> Machine:
    """Recognise a machine in a text such as '2x Xeon 8480+', 'M2 Ultra 76-core GPU 192GB' or 'RTX 3060 12GB'.

    count: chips, where the asker tells it apart from the text. processor: take an Apple chip's processor, or
    its GPU; None to decide by the text and the threads. Raises UnknownNameError.
    """
    plain = normalise(text)
    found_count = max(_count(text.lower()), count or 1)
    plain = re.sub(r"^\d{1,3} ?[x×*] ?| [x×] ?\d{1,3}$", "", plain)
    own = _own_machine(text)
    if own is not None:
        return replace(own, count=found_count, threads=threads or 0)
    stripped = " ".join(_BRANDS.sub(" ", plain).split())
    named, family = _matches(stripped)
    if not named and family is None:
        raise UnknownNameError("hardware", text, nearest_chips(text))
    if named:
        row = _best_build(named, plain)
        machine = row.machine
        if re.search(_BUILD_WORDS["laptop"], plain) and machine.kind == "gpu-card" and "max-q" not in row.builds:
            machine = replace(
                machine,
                kind="gpu-laptop",
                name=f"{machine.name} for laptops",
                bandwidth=machine.bandwidth * LAPTOP_SHARE,
                vector_flops=machine.vector_flops * LAPTOP_SHARE,
                matrix_flops=machine.matrix_flops * LAPTOP_SHARE,
                rated=False,
            )
    else:
        assert family is not None
        machine = family.machine
    if machine.is_cpu or machine.kind == "gpu-integrated":
        machine = _with_told_cores(machine, plain)
    elif machine.is_apple:
        machine = _apple_in_text(machine, plain)
        by_text = bool(threads) or ("cpu" in plain and "gpu" not in plain)
        if by_text if processor is None else processor:
            machine = _apple_processor(machine, plain)
    else:
        sizes = [float(size) * GIB for size in _MEMORY.findall(plain)]
        # A card's own memory is within its builds; other sizes are the computer's.
        fitting = [size for size in sizes if 0.85 <= size / machine.memory_bytes <= 1.15]
        machine = replace(machine, memory_bytes=fitting[0] if fitting else machine.memory_bytes)
    return replace(machine, count=found_count, threads=threads or 0)


def integrated_gpu(machine: Machine, text: str) -> Machine | None:
    """Return the GPU inside a processor if a text names what only GPUs run, such as Vulkan; None otherwise."""
    if not machine.is_cpu or not _FOR_GPUS.search(text.lower()):
        return None
    name = next((gpu for pattern, gpu in _INTEGRATED if re.search(pattern, text.lower())), None)
    return replace(find_machine(name), memory_bytes=machine.memory_bytes) if name else None


def _own_machine(text: str) -> Machine | None:
    """Read a machine from its bandwidth, FLOP/s and memory, as in '936 GB/s, 71 TFLOP/s, 24 GB'."""
    speed = re.search(r"([\d.]+) ?([gt])i?b ?/ ?s", text.lower())
    flops = re.search(r"([\d.]+) ?([gt])flop", text.lower())
    if not speed or not flops:
        return None
    scale = {"g": 1e9, "t": 1e12}
    bandwidth = float(speed[1]) * scale[speed[2]]
    arithmetic = float(flops[1]) * scale[flops[2]]
    size = _MEMORY.search(re.sub(r"[\d.]+ ?[gt]i?b ?/ ?s", "", text.lower()))
    kind = "cpu-desktop" if re.search(r"cpu|processor|cores", text.lower()) else "gpu-card"
    cores = _CORES.search(text.lower())
    return Machine(
        chip="own",
        name="your machine",
        kind=kind,
        count=1,
        memory_bytes=float(size[1]) * GIB if size else _USUAL_MEMORY.get(kind, 16 * GIB),
        bandwidth=bandwidth,
        vector_flops=arithmetic / (1 if kind == "cpu-desktop" else 2),
        matrix_flops=arithmetic,
        cores=int(cores[1]) if cores else 8,
        channels=2,
        year=2023,
        rated=False,
    )


def _apple_in_text(machine: Machine, text: str) -> Machine:
    sizes = [float(size) for size in _MEMORY.findall(text) if float(size) >= 4]
    cores = _GPU_CORES.search(text)
    if sizes:
        machine = replace(machine, memory_bytes=max(sizes) * GIB)
    if cores:
        stated = int(next(filter(None, cores.groups())))
        own = re.search(r"(\d+)-core", machine.name)
        share = stated / int(own[1]) if own else 1.0
        machine = replace(machine, vector_flops=machine.vector_flops * share, matrix_flops=machine.matrix_flops * share)
    return machine


def _apple_processor(machine: Machine, text: str) -> Machine:
    """Return an Apple chip's processor, whose cores reach about half the memory's bandwidth."""
    cores = _CORES.search(text)
    usual = 20 if "Ultra" in machine.name else 12 if "Max" in machine.name else 10 if "Pro" in machine.name else 8
    number = int(cores[1]) if cores else usual
    return replace(
        machine,
        name=f"processor of {machine.name.split(',')[0]}",
        kind="cpu-laptop",
        cores=number,
        channels=2,
        bandwidth=max(machine.bandwidth / 2, min(machine.bandwidth, 6e10)),
        vector_flops=number * APPLE_CORE_FLOPS,
        matrix_flops=number * APPLE_CORE_FLOPS,
    )


def _with_told_cores(machine: Machine, text: str) -> Machine:
    """Take cores, memory and its speed from a text where it tells them."""
    instance, vcpus, cores = _INSTANCE.search(text.replace(" ", "-")), _VCPUS.search(text), _CORES.search(text)
    instance = instance or _INSTANCE.search(text)
    own = machine.cores or 4
    stated = own
    if instance:
        whole = int(instance[4]) if instance[4] else (4 * int(instance[2] or 1) if instance[3] else 2)
        stated = max(whole // 2, 1)
    elif vcpus and not cores:
        stated = max(int(vcpus[1]) // 2, 1)
    elif cores:
        stated = int(cores[1])
    if not machine.rated or instance or vcpus:
        share = stated / own
        machine = replace(
            machine,
            cores=stated,
            vector_flops=machine.vector_flops * share,
            matrix_flops=machine.matrix_flops * share,
            bandwidth=machine.bandwidth * (min(1.0, 3 * share) if instance or vcpus else 1.0),
        )
    ddr, channels = _DDR.search(text), _CHANNELS.search(text)
    if ddr or channels:
        lanes = machine.channels
        if channels:
            lanes = _CHANNEL_WORDS.get(channels[1]) or int(channels[1])
        speed = machine.bandwidth / 8 / machine.channels
        if ddr:
            speed = float(ddr[2]) * 1e6 if ddr[2] else _DDR_SPEEDS.get(int(ddr[1]), speed)
        machine = replace(machine, bandwidth=lanes * 8 * speed)
    sizes = [float(size) for size in _MEMORY.findall(re.sub(r"[\d.]+ ?ghz", "", text)) if float(size) >= 2]
    if sizes:
        machine = replace(machine, memory_bytes=max(sizes) * GIB, memory_told=True)
    return machine


def nearest_chips(text: str, number: int = 3) -> list[str]:
    """List the known chips whose names are most like a text."""
    names = {row.words: row.machine.name for row in rows()}
    close = difflib.get_close_matches(_BRANDS.sub(" ", normalise(text)).strip(), names, n=number, cutoff=0.5)
    return [names[name] for name in close]
