"""Skip tests that need instructions which this processor lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from experiments import hardware
from experiments.workload import Unsupported

# oneDNN multiplies bfloat16 only with these instructions.
_WIDE = ("avx512", "amx", "bf16", "sve")


@contextmanager
def skip_without_instructions() -> Iterator[None]:
    """Skip the test if a library refuses a number format for lack of instructions."""
    try:
        yield
    except (Unsupported, RuntimeError) as refusal:
        if any(name.startswith(_WIDE) for name in hardware.cpu().get("simd", [])):
            raise
        pytest.skip(f"without AVX-512, AMX or Arm's bfloat16: {refusal}")
