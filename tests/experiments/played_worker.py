"""A measuring process on a played GPU, with the protocol of `experiments.worker`: for tests of what starts one.

    python -u -m tests.experiments.played_worker [--device-error EXPERIMENT] [--hangs EXPERIMENT]

The device of the first order, cuda:0, mps or xpu:0, says whose GPU is played. In an experiment of --device-error an
illegal access ends the device's context, so that the process is of no more use; one of --hangs never answers.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from experiments import worker
from experiments.devices.base import Device
from experiments.machine_state import Watch
from tests.experiments import played_gpu
from tests.experiments.played_torch import GPU, Playing


def main() -> None:
    """Answer orders until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device-error", default="")
    parser.add_argument("--hangs", default="")
    faults = parser.parse_args()
    played_gpu.install()
    right = worker.answer_order

    def answer_to(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
        if order["experiment"] == faults.hangs:
            time.sleep(3600)
        GPU.lost = GPU.lost or order["experiment"] == faults.device_error
        return right(order, device, watch)

    worker.answer_order = answer_to
    worker.open_device = played_gpu.open_played
    with Playing():
        worker.serve()


if __name__ == "__main__":
    main()
