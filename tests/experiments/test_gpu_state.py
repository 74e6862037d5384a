"""What a GPU's counters tell."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from experiments import counters
from tests.experiments.nvml_standin import Library


def power_field(milliwatts: int, status: int) -> Any:
    """What the driver answers of a field: whether it has it stands beside the value."""
    fields = (pynvml.c_nvmlFieldValue_t * 1)()
    fields[0].fieldId, fields[0].nvmlReturn = pynvml.NVML_FI_DEV_POWER_INSTANT, status
    fields[0].valueType, fields[0].value.uiVal = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, milliwatts
    return fields


class Old(Library):
    """A library from before there were fields."""

    def __getattr__(self, name: str) -> Any:
        if "FieldValue" in name or "_FI_" in name:
            raise AttributeError(name)
        return super().__getattr__(name)


@pytest.mark.parametrize(
    ("library", "watts"),
    [
        pytest.param(Library({"FieldValues": power_field(650_000, 0)}), 650.0, id="as it is now"),
        pytest.param(Library({"FieldValues": power_field(0, 3)}), 80.0, id="the driver has no such field"),
        pytest.param(Library({}), 80.0, id="the driver has no fields"),
        pytest.param(Old({}), 80.0, id="the library has no fields"),
    ],
)
def test_power_is_that_of_this_moment_where_the_driver_has_it_and_else_what_it_tells(
    library: Library, watts: float
) -> None:
    assert counters.gpu_counters("cuda:0", library).values()["power_w"] == watts
