"""Time to train: whole jobs from data on disk to a declared accuracy, and the parts that predict their time."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from contract import running_time
from experiments.devices import Device
from experiments.machine_state import Reading
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.registry import experiment
from experiments.timing import Policy, measure
from experiments.workload import Dtype, Observed, Threads, Unsupported, Workload

if TYPE_CHECKING:
    from experiments.models.training_jobs import Fit, Job

Name = Literal[
    "digits-mlp", "digits-cnn", "mnist-resnet", "mnist-wide-resnet", "mnist-resnet-50", "bytes-nanogpt-cpu",
    "bytes-nanogpt", "bytes-nanogpt-hour", "origin-minilm-l6", "table-boosting", "digits-boosting", "digits-logistic",
]  # fmt: skip

# SAMPLES: maximum number of samples for each separately timed part of a job.
# STEP_S: seconds in which to time a training step, warm-up included.
# DRAW_S: seconds in which to time the draw of a batch, warm-up included.
SAMPLES, STEP_S, DRAW_S = 20, 3.0, 0.5


def memory(job: Name, **_: Any) -> float:
    """Estimate the bytes for two copies of all data, for training with Adam, for the float64 check and activations.

    Adam needs four numbers per weight: weight, gradient and two moments.
    """
    from experiments.models.training_jobs import JOBS

    if job not in JOBS:
        return 1e8
    entry = JOBS[job].entry
    return 5e8 + entry.parameters() * 8 * 4.0 + entry.activation_bytes() * JOBS[job].batch


@experiment("time-to-train", memory=memory, observed=True, protocol=2)
def time_to_train(
    device: Device, job: Name, dtype: Dtype, backend: Literal["torch", "sklearn"], threads: Threads
) -> Workload:
    """Run a job once from beginning to end, with new shuffles and initial weights each time.

    The same script runs on every device. Networks (torch) step with Adam until a test on held-out samples reaches the
    target; job_time covers everything but imports. Four parts that predict job_time are timed before the job, with
    separate data and a separate model: the preparation (prepare_time), the draw of a batch (draw_time), a step on a
    batch in memory as in `training` (step_time), and the step's forward phase (forward_time). The job's steps and tests
    are counted, not predicted. scikit-learn models are fitted once, on the CPU, in float64, and their time is not
    predicted.
    """
    from experiments.models.training_jobs import FITS, JOBS

    if (backend == "sklearn") != (job in FITS):
        raise Unsupported(f"{job} is a job for {'scikit-learn' if job in FITS else 'torch'}")
    if job in FITS:
        if device.kind != "cpu":
            raise device.unsupported_backend(backend)
        if dtype is not Dtype.FLOAT64:
            raise Unsupported(f"scikit-learn works in float64, not in {dtype}")
        return Workload(observe=lambda: _fit_job(FITS[job], threads))
    # Raises Unsupported if the device would fall back to another format.
    device.torch_dtype(dtype)
    from experiments.models.trainer import least_error
    from experiments.models.training_jobs import Learner

    tolerance = largest_gradient_error(JOBS[job].model, dtype)
    learner, entry = Learner(JOBS[job], device, dtype), JOBS[job].entry
    return Workload(
        observe=lambda: _train_job(JOBS[job], learner, device, dtype),
        check=lambda: least_error(learner.trainer, entry.batch, entry.step_flop(1), tolerance),
        tolerance=tolerance,
    )


def _fit_job(task: Fit, threads: int) -> dict[str, Observed]:
    from threadpoolctl import threadpool_limits

    from experiments.models.training_jobs import run_fit

    task.model(), task.samples()  # trigger their imports, which job_time leaves out
    with threadpool_limits(limits=threads or None):
        return _job_metrics(run_fit(task), task.target)


def _train_job(job: Job, learner: Any, device: Device, dtype: Dtype) -> dict[str, Observed]:
    """Time the parts that predict job_time, then run the job."""
    import torch

    from experiments.models.training_jobs import Learner, run_job

    torch.seed()
    parts: dict[str, Observed] = {}
    device.synchronise()
    started_s = running_time.now()
    Learner(job, device, dtype)
    device.synchronise()
    parts["prepare_time"] = running_time.now() - started_s, "s"
    trainer = learner.trainer
    phases = [("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)]
    step = _median_times(Workload(phases=phases), device, STEP_S)
    parts["step_time"], parts["forward_time"] = (step[""], "s"), (step["forward"], "s")
    parts["draw_time"] = _median_times(Workload(run=learner.draw), device, DRAW_S)[""], "s"
    result = run_job(job, device, dtype)
    forward, entry = result["tests"] * job.test_batches, job.entry
    flop = result["steps"] * entry.step_flop(job.batch) + result["tests"] * entry.forward_flop(job.test_size)
    return {
        **parts,
        **_job_metrics(result, job.target),
        "steps": (result["steps"], "1"),
        "forward_passes": (forward, "1"),
        "job_flop": (flop, "FLOP"),
    }


def _job_metrics(result: dict[str, float], target: float) -> dict[str, Observed]:
    """Return a job's time, its accuracy, and 1 if it reached the target, else 0."""
    return {
        "job_time": (result["job_time"], "s"),
        "accuracy": (result["accuracy"], "1"),
        "target": (target, "1"),
        "reached_share": (float(result["accuracy"] >= target), "1"),
    }


def _median_times(work: Workload, device: Device, budget_s: float) -> dict[str, float]:
    """Return the median seconds per call and per phase, timed by `measure` as in all other experiments."""
    policy = Policy(target=0.0, budget_s=budget_s, max_samples=SAMPLES)
    samples = measure(work, device, policy, lambda: Reading(0.0)).samples
    return {name: median(values) for name, values in samples.items()}
