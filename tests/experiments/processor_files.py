"""What the processor that runs the tests lacks: nothing can install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from experiments import hardware
from experiments.workload import Unsupported

# oneDNN multiplies bfloat16 with these alone.
_WIDE = ("avx512", "amx", "bf16", "sve")


@contextmanager
def skip_without_instructions() -> Iterator[None]:
    """Leave a test out where a library refuses a number format on a processor without instructions for it."""
    try:
        yield
    except (Unsupported, RuntimeError) as refusal:
        if any(name.startswith(_WIDE) for name in hardware.cpu().get("simd", [])):
            raise
        pytest.skip(f"without AVX-512, AMX or Arm's bfloat16: {refusal}")
