"""Whole training runs on real images: the accuracy and its spread over seeds, by batch size and learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from experiments.devices import Device
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.registry import experiment
from experiments.workload import Dtype, Observed, Threads, Unsupported, Workload

# Maximum number of images in a check. So few images exercise the same code as a larger batch.
CHECKED = 64


def extra_s(point_s: float, **_: Any) -> float:
    """Estimate the seconds for the tests between epochs."""
    return 0.2 * point_s


@experiment("convergence", observed=True, fits=("cpu",), load_s=1.0, extra_s=extra_s)
def convergence(
    device: Device,
    data: Literal["digits", "mnist"],
    model: Literal["mlp", "cnn"],
    batch: int,
    rate: float,
    epochs: int,
    seeds: int,
    dtype: Dtype,
    backend: Literal["torch"],
    threads: Threads,
) -> Workload:
    """Train once for each seed from 1 to `seeds`; the seed alone determines every random draw.

    batch: images per update, at most as many as there are training images.
    rate: factor on the base learning rate. To compare batch sizes, take 1 for a fixed learning rate, batch / 32 for a
        learning rate that grows with the batch, or the best among several values for a tuned learning rate.
    epochs: passes over the training images. Batch sizes are compared at equal epochs, so a larger batch means fewer
        updates.

    Observed: test_accuracy and validation_accuracy, one value per seed from seed 1 on; updates per run; reached_share,
        the share of runs that reach the target accuracy; time_to_target, the training time to the target in each run
        that reaches it.
    """
    from experiments.models import training_runs as runs
    from experiments.models.trainer import least_error

    tolerance = largest_gradient_error(model, dtype)
    device.torch_dtype(dtype)
    images, labels = runs.split_images(data, device.name).training
    if not 1 <= batch <= len(labels):
        raise Unsupported(f"batch must be 1 to {len(labels)}: {data} has {len(labels)} training images")
    if epochs < 1 or seeds < 1:
        raise Unsupported("epochs and seeds must be at least 1")
    trainer = runs.make_trainer(data, model, rate, device, dtype, seed=0)
    weights = sum(parameter.numel() for parameter in trainer.model.parameters())

    def observe() -> Mapping[str, Observed]:
        all_runs = [runs.train(data, model, batch, rate, epochs, device, dtype, seed) for seed in range(1, seeds + 1)]
        reached = [run for run in all_runs if run.target_s is not None]
        metrics: dict[str, Observed] = {
            "test_accuracy": ([run.test_accuracy for run in all_runs], "1"),
            "validation_accuracy": ([run.validation_accuracy for run in all_runs], "1"),
            "updates": (all_runs[0].updates, "1"),
            "reached_share": (len(reached) / len(all_runs), "1"),
            "time_to_target": ([run.target_s for run in reached if run.target_s is not None], "s"),
        }
        return {name: values for name, values in metrics.items() if values[0] != []}

    def draw_images(size: int) -> runs.Images:
        import torch

        indices = torch.randint(len(labels), (size,))
        return images[indices.to(images.device)], labels[indices.to(labels.device)]

    trainer.set_batch(*draw_images(min(batch, CHECKED)))
    return Workload(
        observe=observe,
        check=lambda: least_error(trainer, draw_images, 6.0 * weights, tolerance),
        tolerance=tolerance,
    )
