"""Microarchitectures of processors, by vendor, family and model number.

Sources: the Linux kernel's arch/x86/kernel/cpu/amd.c ("Figure out Zen generations") for AMD, and
arch/x86/include/asm/intel-family.h for Intel, which names the platform and, in comments, the cores. For Arm, the kernel
reports the core itself (`experiments.topology.cpu_models`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# AMD: family, first and last model number, microarchitecture.
_AMD = (
    (0x17, 0x00, 0x2F, "Zen"), (0x17, 0x50, 0x5F, "Zen"),
    (0x17, 0x30, 0x4F, "Zen 2"), (0x17, 0x60, 0x7F, "Zen 2"), (0x17, 0x90, 0x91, "Zen 2"), (0x17, 0xA0, 0xAF, "Zen 2"),
    (0x19, 0x00, 0x0F, "Zen 3"), (0x19, 0x20, 0x5F, "Zen 3"),
    (0x19, 0x10, 0x1F, "Zen 4"), (0x19, 0x60, 0xAF, "Zen 4"),
    (0x1A, 0x00, 0x2F, "Zen 5"), (0x1A, 0x40, 0x4F, "Zen 5"), (0x1A, 0x60, 0x7F, "Zen 5"),
)  # fmt: skip
# Intel, family 6: model numbers and microarchitecture. Model 0x55 is Cascade Lake and Cooper Lake too, with Skylake's
# cores.
_INTEL = {
    (0x1A, 0x1E, 0x1F, 0x2E): "Nehalem",
    (0x25, 0x2C, 0x2F): "Westmere",
    (0x2A, 0x2D): "Sandy Bridge",
    (0x3A, 0x3E): "Ivy Bridge",
    (0x3C, 0x3F, 0x45, 0x46): "Haswell",
    (0x3D, 0x47, 0x4F, 0x56): "Broadwell",
    (0x4E, 0x55, 0x5E): "Skylake",
    (0x8E, 0x9E): "Kaby Lake",
    (0xA5, 0xA6): "Comet Lake",
    (0x66,): "Cannon Lake",
    (0x6A, 0x6C, 0x7D, 0x7E, 0x9D): "Ice Lake (Sunny Cove)",
    (0xA7,): "Rocket Lake (Cypress Cove)",
    (0x8C, 0x8D): "Tiger Lake (Willow Cove)",
    (0x8F,): "Sapphire Rapids (Golden Cove)",
    (0xCF,): "Emerald Rapids (Raptor Cove)",
    (0xAD, 0xAE): "Granite Rapids (Redwood Cove)",
    (0x97, 0x9A): "Alder Lake (Golden Cove / Gracemont)",
    (0xB7, 0xBA, 0xBF): "Raptor Lake (Raptor Cove / Gracemont)",
    (0xAA, 0xAC): "Meteor Lake (Redwood Cove / Crestmont)",
    (0xB5, 0xC5, 0xC6): "Arrow Lake",
    (0xBD,): "Lunar Lake",
    (0x5C, 0x5F): "Goldmont",
    (0xBE,): "Alder Lake-N (Gracemont)",
    (0xAF,): "Sierra Forest (Crestmont)",
    (0xDD,): "Clearwater Forest (Darkmont)",
    (0x57,): "Knights Landing",
    (0x85,): "Knights Mill",
}


def microarchitecture(cpu: Mapping[str, Any]) -> str:
    """Return the microarchitecture for a record's `hardware.cpu`; '' if the tables do not have it."""
    family, model = (_parse_number(cpu.get(key)) for key in ("family", "model_number"))
    if cpu.get("vendor") == "AuthenticAMD":
        names = (name for of, first, last, name in _AMD if of == family and first <= model <= last)
    elif cpu.get("vendor") == "GenuineIntel" and family == 6:
        names = (name for models, name in _INTEL.items() if model in models)
    else:
        return ""
    return next(names, "")


def _parse_number(value: object) -> int:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 9 else -1
