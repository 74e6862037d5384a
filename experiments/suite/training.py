"""Training steps of real models on real data: forward, backward and update, each timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.models.catalogue import networks
from experiments.models.gradient_tolerance import of_gradients
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """An eighth of the batch, down to one sample; without compiling or capturing, which take longer than any step."""
    backend = "torch" if params["backend"] in ("inductor", "graph") else params["backend"]
    return {**params, "batch": max(1, params["batch"] // 8), "backend": backend} if params["batch"] > 1 else None


def memory(model: str, batch: int, threads: int, dtype: str = "float32", **_: Any) -> float:
    """Weights that are trained, their gradients and moments in float32, in the check in float64; the others once.

    And what a batch keeps for backward, on a CPU: on a GPU a batch that does not fit is what is looked for.
    """
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    trained = entry.trained_parameters()
    frozen = (entry.parameters() - trained) * (2.0 if dtype == Dtype.BFLOAT16 else 4.0)
    return trained * 8 * 4.0 + frozen + (entry.activation_bytes() * batch if threads else 0.0)


def flop(model: str, batch: int, **_: Any) -> float:
    """FLOP of a step."""
    from experiments.models.zoo import ZOO

    return ZOO[model].step_flop(batch)


# Seconds for each FLOP and core that steps of networks by name take on a CPU beside the products' own rate (2 cores of
# Zen 4: ResNet-50, BERT-base and ViT-B take 45 to 64 GFLOP/s a core in float32, 90 to 130 in bfloat16).
BESIDE_S = {Dtype.FLOAT32: 1e-11, Dtype.BFLOAT16: 5e-12}


def extra_s(
    model: str, batch: int, dtype: str, call_s: float, point_s: float, backend: str, threads: int, **_: Any
) -> float:
    """The check in float64, and the steps that are traced and profiled; compiling.

    On a GPU the host takes the time: it reads some thousand events of the profile, for which the model is made again.
    """
    compiling = 4.0 if backend == "inductor" else 0.0
    if not threads:
        return (1.0 if backend == "graph" else 3.0) + compiling
    if model in networks():
        # One step in the check, three that are observed and profiled, and two samples at least.
        step_s = call_s + flop(model, batch) * BESIDE_S.get(Dtype(dtype), 1e-11) / threads
        return 1.0 + 4 * step_s + max(point_s, 2 * step_s) - max(0.66 * point_s, 4 * call_s) + compiling
    # What takes much longer than the point has is not called so often.
    return 0.5 + min((14 if call_s < 0.05 else 6) * call_s, 3 * point_s) + compiling


@experiment("training", smaller=smaller, memory=memory, flop=flop, extra_s=extra_s, load_s=0.7)
def training(
    device: Device,
    model: Model,
    batch: int,
    dtype: Dtype,
    backend: Literal["torch", "channels_last", "onednn", "inductor", "graph"],
    threads: Threads,
) -> Workload:
    """One step of Adam on a batch that lies on the device; bfloat16 means autocast over float32 weights.

    Networks of the catalogue are trained by AdamW; weights that are not trained (LoRA) are kept in bfloat16 there.
    backend: torch as it comes; torch tuned (channels_last: images with channels last; onednn: on a CPU
    the products of linear layers by oneDNN; both with the optimiser fused into one pass); torch compiled
    (inductor: kernels made by `torch.compile` for this batch, images with channels last, fused); or on a GPU the
    whole step captured as one graph (graph: fused), which has no phases.

    Work: the FLOP of its products and convolutions, by formula (checked against
    `torch.utils.flop_counter` in the tests).
    """
    from experiments.models.zoo import ZOO

    # Raises Unsupported where the device would fall back to another format.
    device.torch_dtype(dtype)
    entry = ZOO[model]
    tolerance = of_gradients(model, dtype)

    from experiments.models.graph_capture import CapturedTrainer
    from experiments.models.trainer import Trainer, least_error, make_model

    if backend == "graph" and device.kind == "cpu":
        raise device.unsupported(backend)
    if backend == "channels_last" and not entry.images:
        raise Unsupported(f"{model} takes no images, which alone have channels")
    made = make_model(entry, device, dtype)
    if backend == "graph":
        captured = CapturedTrainer(made, *entry.batch(batch), device, dtype)
        return Workload(
            run=captured.replay,
            flop=entry.step_flop(batch),
            check=lambda: least_error(captured, entry.batch, entry.step_flop(1), tolerance),
            tolerance=tolerance,
        )
    trainer = Trainer(
        through(backend, made, device, dtype),
        *entry.batch(batch),
        device,
        dtype,
        tuned=backend != "torch",
        channels_last=backend in ("channels_last", "inductor") and entry.images,
    )
    if backend == "inductor":
        trainer.compile(threads)
    return Workload(
        phases=[("forward", trainer.forward), ("backward", trainer.backward), ("update", trainer.update)],
        flop=entry.step_flop(batch),
        check=lambda: least_error(trainer, entry.batch, entry.step_flop(1), tolerance),
        tolerance=tolerance,
        # What oneDNN and compiled kernels do bypasses the operators that are counted.
        observe=lambda: trainer.observe(operators=backend in ("torch", "channels_last")),
        profile=trainer.profile(operators=backend in ("torch", "channels_last")),
    )


def through(backend: str, model: torch.nn.Module, device: Device, dtype: Dtype) -> torch.nn.Module:
    """The model, its linear layers going through oneDNN if that is the backend. Raises Unsupported."""
    if backend != "onednn":
        return model
    if device.kind != "cpu":
        raise device.unsupported(backend)
    if dtype is not Dtype.FLOAT32:
        raise Unsupported(f"in {dtype}, PyTorch goes through oneDNN by itself")
    from experiments.models.onednn import through_onednn

    return through_onednn(model)
