"""Time to train: whole jobs from data on disk to a declared accuracy, and what their time is predicted from."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from contract import running_time
from experiments.devices import Device
from experiments.machine_state import Reading
from experiments.models.gradient_tolerance import of_gradients
from experiments.registry import experiment
from experiments.timing import Policy, measure
from experiments.workload import Dtype, Observed, Threads, Unsupported, Workload

if TYPE_CHECKING:
    from experiments.models.training_jobs import Fit, Job

Name = Literal[
    "digits-mlp", "digits-cnn", "mnist-resnet", "mnist-wide-resnet", "mnist-resnet-50", "bytes-nanogpt-cpu",
    "bytes-nanogpt", "origin-minilm-l6", "table-boosting", "digits-boosting", "digits-logistic",
]  # fmt: skip

# Samples of a step alone, and the seconds that they, or those of drawing a batch, may take together with the warm-up.
SAMPLES, STEP_S, DRAW_S = 20, 3.0, 0.5


def memory(job: Name, **_: Any) -> float:
    """All data twice, Adam's four numbers a weight and float64 for the check, and what a batch keeps for backward."""
    from experiments.models.training_jobs import JOBS

    if job not in JOBS:
        return 1e8
    entry = JOBS[job].entry
    return 5e8 + entry.parameters() * 8 * 4.0 + entry.activation_bytes() * JOBS[job].batch


@experiment("time-to-train", memory=memory, observed=True)
def time_to_train(
    device: Device, job: Name, dtype: Dtype, backend: Literal["torch", "sklearn"], threads: Threads
) -> Workload:
    """A job, run once from beginning to end, with other shuffles and first weights each time.

    The same script on every device. Networks (torch) step with Adam until a test on held-out
    samples shows the target; job_time is the time of everything but imports. Before the job
    the parts of which its time is predicted are timed each for itself, on data and a model of
    their own: to prepare it (prepare_time), to draw a batch (draw_time), to step on one that
    lies there, as `training` does it (step_time), and the forward part of that
    (forward_time). How many steps and tests the job takes is counted, not predicted.
    Models of scikit-learn are fitted once, on the CPU, in float64; nothing predicts them.
    """
    from experiments.models.training_jobs import FITS, JOBS

    if (backend == "sklearn") != (job in FITS):
        raise Unsupported(f"{job} is a job for {'scikit-learn' if job in FITS else 'torch'}")
    if job in FITS:
        if device.kind != "cpu":
            raise device.unsupported(backend)
        if dtype is not Dtype.FLOAT64:
            raise Unsupported(f"scikit-learn works in float64, not in {dtype}")
        return Workload(observe=lambda: _fitted(FITS[job], threads))
    # Raises Unsupported where the device would fall back to another format.
    device.torch_dtype(dtype)
    from experiments.models.trainer import least_error
    from experiments.models.training_jobs import Learner

    tolerance = of_gradients(JOBS[job].model, dtype)
    learner, entry = Learner(JOBS[job], device, dtype), JOBS[job].entry
    return Workload(
        observe=lambda: _learnt(JOBS[job], learner, device, dtype),
        check=lambda: least_error(learner.trainer, entry.batch, entry.step_flop(1), tolerance),
        tolerance=tolerance,
    )


def _fitted(task: Fit, threads: int) -> dict[str, Observed]:
    from threadpoolctl import threadpool_limits

    from experiments.models.training_jobs import fit

    task.model(), task.samples()  # import what they need
    with threadpool_limits(limits=threads or None):
        return _told(fit(task), task.target)


def _learnt(job: Job, learner: Any, device: Device, dtype: Dtype) -> dict[str, Observed]:
    """The parts, and then the job."""
    import torch

    from experiments.models.training_jobs import Learner, learn

    torch.seed()
    found: dict[str, Observed] = {}
    device.synchronise()
    begun = running_time.now()
    Learner(job, device, dtype)
    device.synchronise()
    found["prepare_time"] = running_time.now() - begun, "s"
    trainer = learner.trainer
    phases = [("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)]
    step = _alone(Workload(phases=phases), device, STEP_S)
    found["step_time"], found["forward_time"] = (step[""], "s"), (step["forward"], "s")
    found["draw_time"] = _alone(Workload(run=learner.draw), device, DRAW_S)[""], "s"
    did = learn(job, device, dtype)
    forward, entry = did["tests"] * job.test_batches, job.entry
    flop = did["steps"] * entry.step_flop(job.batch) + did["tests"] * entry.forward_flop(job.held)
    return {
        **found,
        **_told(did, job.target),
        "steps": (did["steps"], "1"),
        "forward_passes": (forward, "1"),
        "job_flop": (flop, "FLOP"),
    }


def _told(did: dict[str, float], target: float) -> dict[str, Observed]:
    """The time of a job, what it reached, and whether that is what was asked."""
    return {
        "job_time": (did["job_time"], "s"),
        "accuracy": (did["accuracy"], "1"),
        "target": (target, "1"),
        "reached_share": (float(did["accuracy"] >= target), "1"),
    }


def _alone(work: Workload, device: Device, budget_s: float) -> dict[str, float]:
    """Median seconds of one call of the work, and of each of its phases, taken as every time of the study."""
    policy = Policy(target=0.0, budget_s=budget_s, max_samples=SAMPLES)
    samples = measure(work, device, policy, lambda: Reading(0.0)).samples
    return {name: median(values) for name, values in samples.items()}
