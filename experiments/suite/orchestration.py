"""Training loops with data loading: time that a step waits for its batch, by data source and worker count."""

from __future__ import annotations

from typing import Any, Literal

from experiments.devices import Device
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.suite import training
from experiments.workload import Dtype, Observed, Threads, Workload, largest_error

# Number of steps between synchronisations on a GPU. A usual training loop also waits for the GPU only now and then,
# when it reads the loss.
AHEAD = 16


def extra_s(call_s: float, point_s: float, source: str, workers: int, threads: int, **_: Any) -> float:
    """Estimate the seconds to check, to prepare samples for the check, and to start the worker processes."""
    # On a GPU, workers come from a fork server, which has to load torch first.
    starting = 0.2 * workers if threads else 1.5 + (2.0 + 0.5 * workers if workers else 0.0)
    return 0.5 + min(call_s, 2 * point_s) + starting + (0.5 if source == "photographs" else 0.0)


@experiment("orchestration", memory=training.memory, flop=training.flop, extra_s=extra_s, load_s=2.0, protocol=2)
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
    """Run one training loop iteration: move a batch to the device (load), then forward, backward and update (step).

    source: batches already on the device (preloaded); samples in host memory (memory); compressed text (encoded); JPEG
        photographs to crop and scale (photographs).
    workers: number of processes that prepare batches ahead; with 0, the loop prepares the batches itself.

    Both phases, load and step, wait for the device. On a GPU, `loop_time` times the loop as usually written: the host
    runs ahead of the GPU and waits only after AHEAD iterations.
    Observed: decode_time, seconds per sample in one process.
    Checked: loaded batches against their source, and a step's gradients.
    """
    from experiments.models.data_loading import Feed
    from experiments.models.trainer import Trainer, least_error
    from experiments.models.zoo import ZOO

    tolerance = largest_gradient_error(model, dtype)
    device.torch_dtype(dtype)
    entry = ZOO[model]
    feed = Feed(entry, batch, source, workers, device)
    trainer = Trainer(entry.model().to(device.name), *feed.next(), device, dtype)

    def load() -> None:
        trainer.set_batch(*feed.next())
        device.synchronise()

    def step() -> None:
        trainer.step()
        device.synchronise()

    def loop() -> None:
        for _ in range(AHEAD):
            trainer.set_batch(*feed.next())
            trainer.step()

    def observe() -> dict[str, Observed]:
        return {"decode_time": (feed.samples.sample_times(), "s")} if feed.samples else {}

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
