"""What all tests of the experiments share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.experiments.points import CPU


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small work on cores that others use too: its threads would wait for one another."""
    before = torch.get_num_threads()
    # Whatever another test has asked of the device that they share.
    CPU.set_threads(1)
    yield
    torch.set_num_threads(before)
