"""Worker on a played GPU, with the protocol in `experiments.worker`, to test its parent processes.

    python -u -m tests.experiments.played_worker [--device-error EXPERIMENT] [--hangs EXPERIMENT]

The device in the first order (cuda:0, mps or xpu:0) selects the played GPU. The experiment in --device-error ends
the device's context by an illegal access, which makes the process useless; the experiment in --hangs never answers.
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
    """Answer orders until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device-error", default="")
    parser.add_argument("--hangs", default="")
    faults = parser.parse_args()
    played_gpu.install()
    real_answer = worker.answer_order

    def answer_to(order: dict[str, Any], device: Device, watch: Watch) -> dict[str, Any]:
        if order["experiment"] == faults.hangs:
            time.sleep(3600)
        GPU.lost = GPU.lost or order["experiment"] == faults.device_error
        return real_answer(order, device, watch)

    worker.answer_order = answer_to
    worker.open_device = played_gpu.open_played
    with Playing():
        worker.serve()


if __name__ == "__main__":
    main()
