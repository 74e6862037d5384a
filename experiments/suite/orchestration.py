"""Training loops with their data: how long a step waits for its batch, by where that comes from and who prepares it."""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.models.gradient_tolerance import of_gradients
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.suite import training
from experiments.workload import Dtype, Observed, Threads, Workload, largest_error

# Steps in a row after which a loop on a GPU waits for it: loops read their loss now and then.
AHEAD = 16


def extra_s(call_s: float, point_s: float, source: str, workers: int, threads: int, **_: Any) -> float:
    """The check, the samples that are prepared for it, and the start of the processes that prepare batches."""
    # A GPU's workers come from a server that loads torch.
    starting = 0.2 * workers if threads else 1.5 + (2.0 + 0.5 * workers if workers else 0.0)
    return 0.5 + min(call_s, 2 * point_s) + starting + (0.5 if source == "photographs" else 0.0)


@experiment("orchestration", memory=training.memory, flop=training.flop, extra_s=extra_s, load_s=2.0)
def orchestration(
    device: Device,
    model: Model,
    batch: int,
    source: Literal["preloaded", "memory", "encoded", "photographs"],
    workers: int,
    dtype: Dtype,
    backend: Literal["torch"],
    threads: Threads,
) -> Workload:
    """One turn of a training loop: the next batch to the device (load), then forward, backward and update (step).

    source: batches that lie on the device already (preloaded); samples in host memory; compressed text (encoded); or
    photographs (JPEG, cut and scaled). workers: processes that prepare batches ahead of the loop; 0: the loop itself.

    Both phases wait for the device. On a GPU the same loop is timed again as it is usually
    written, `loop_time`: the host runs ahead and waits only after AHEAD turns. Observed:
    decode_time, seconds of one sample in one process. Checked: loaded batches against what
    they come from, and the gradients of a step.
    """
    from experiments.models.data_loading import Feed
    from experiments.models.trainer import Trainer, least_error
    from experiments.models.zoo import ZOO

    tolerance = of_gradients(model, dtype)
    device.torch_dtype(dtype)
    entry = ZOO[model]
    feed = Feed(entry, batch, source, workers, device)
    trainer = Trainer(entry.model().to(device.name), *feed.next(), device, dtype)

    def load() -> None:
        trainer.take(*feed.next())
        device.synchronise()

    def step() -> None:
        trainer.step()
        device.synchronise()

    def loop() -> None:
        for _ in range(AHEAD):
            trainer.take(*feed.next())
            trainer.step()

    def observe() -> dict[str, Observed]:
        return {"decode_time": (feed.samples.seconds(), "s")} if feed.samples else {}

    ahead = Workload(run=loop, metric="loop_time", per=AHEAD)
    return Workload(
        phases=[("load", load), ("step", step)],
        flop=entry.step_flop(batch),
        check=lambda: largest_error(feed.error(), least_error(trainer, entry.batch, entry.step_flop(1), tolerance)),
        tolerance=tolerance,
        observe=observe,
        clock="host",
        beside=[ahead] if device.kind == "gpu" else [],
    )
