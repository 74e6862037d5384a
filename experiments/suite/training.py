"""Training steps of real models on real data: forward, backward and update, each timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.models.catalogue import networks
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.workload import Dtype, Threads, Unsupported, Workload

if TYPE_CHECKING:
    import torch


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    """Take an eighth of the batch, down to one sample, for a cheaper sweep point.

    Replace the backends inductor and graph by torch, because compiling and capturing take longer than any step.
    """
    backend = "torch" if params["backend"] in ("inductor", "graph") else params["backend"]
    return {**params, "batch": max(1, params["batch"] // 8), "backend": backend} if params["batch"] > 1 else None


def memory(model: str, batch: int, threads: int, dtype: str = "float32", **_: Any) -> float:
    """Estimate the bytes for frozen weights, and for trained weights with gradients and moments.

    Trained weights, gradients and moments are held in float32 and, for the check, in float64. The estimate includes the
    stored activations on a CPU only: on a GPU, a batch that does not fit is a result in itself.
    """
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    trained = entry.trained_parameters()
    frozen = (entry.parameters() - trained) * (2.0 if dtype in (Dtype.BFLOAT16, Dtype.FLOAT16) else 4.0)
    return trained * 8 * 4.0 + frozen + (entry.activation_bytes() * batch if threads else 0.0)


def flop(model: str, batch: int, **_: Any) -> float:
    from experiments.models.zoo import ZOO

    return ZOO[model].step_flop(batch)


# Seconds per FLOP to add to call_s, which covers only the products in a step, for a catalogue network on one core. On
# 2 cores of Zen 4, steps of ResNet-50, BERT-base and ViT-B reach 45 to 64 GFLOP/s per core in float32, and 90 to 130
# GFLOP/s in bfloat16.
BESIDE_S = {Dtype.FLOAT32: 1e-11, Dtype.BFLOAT16: 5e-12}


def extra_s(
    model: str, batch: int, dtype: str, call_s: float, point_s: float, backend: str, threads: int, **_: Any
) -> float:
    """Estimate the seconds for the float64 check, for the traced and profiled steps, and to compile.

    On a GPU most of these seconds are the host's, which makes the model again and reads some thousand profiler events.
    """
    compiling = 4.0 if backend == "inductor" else 0.0
    if not threads:
        return (1.0 if backend == "graph" else 3.0) + compiling
    if model in networks():
        # The check takes one step, counting and profiling take three steps, and timing takes at least two samples.
        step_s = call_s + flop(model, batch) * BESIDE_S.get(Dtype(dtype), 1e-11) / threads
        return 1.0 + 4 * step_s + max(point_s, 2 * step_s) - max(0.66 * point_s, 4 * call_s) + compiling
    # Fewer steps run if a step takes much longer than the point's time.
    return 0.5 + min((14 if call_s < 0.05 else 6) * call_s, 3 * point_s) + compiling


@experiment(
    "training",
    smaller=smaller,
    memory=memory,
    flop=flop,
    extra_s=extra_s,
    load_s=0.7,
    # 2: the step is recorded meanwhile.
    metric_protocols={"peak_memory": 2},
)
def training(
    device: Device,
    model: Model,
    batch: int,
    dtype: Dtype,
    backend: Literal["torch", "channels_last", "onednn", "inductor", "graph"],
    threads: Threads,
) -> Workload:
    """Take one Adam step on a batch that lies on the device; bfloat16 and float16 mean autocast over float32 weights.

    In float16, the loss is scaled by a constant. Catalogue networks use AdamW; their frozen weights (LoRA) are stored
    in the format with 16 bits.
    backend: torch (default settings). All other backends use a fused optimiser: channels_last (images with channels
        last); onednn (on a CPU, linear layers through oneDNN); inductor (`torch.compile` for this batch, images with
        channels last); graph (on a GPU, the whole step captured as one graph, without phases).

    Work: the FLOP for products and convolutions, by formula (tests compare it with `torch.utils.flop_counter`).
    """
    from experiments.models.zoo import ZOO

    # Raises Unsupported if the device would fall back to another format.
    device.torch_dtype(dtype)
    entry = ZOO[model]
    tolerance = largest_gradient_error(model, dtype)

    from experiments.models.graph_capture import CapturedTrainer
    from experiments.models.trainer import Trainer, least_error, make_model

    if backend == "graph" and device.kind == "cpu":
        raise device.unsupported_backend(backend)
    if backend == "channels_last" and not entry.images:
        raise Unsupported(f"{model} takes no images: channels_last needs them")
    network = make_model(entry, device, dtype)
    if backend == "graph":
        captured = CapturedTrainer(network, *entry.batch(batch), device, dtype)
        return Workload(
            run=captured.replay,
            flop=entry.step_flop(batch),
            check=lambda: least_error(captured, entry.batch, entry.step_flop(1), tolerance),
            tolerance=tolerance,
        )
    trainer = Trainer(
        route_linear_layers(backend, network, device, dtype),
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
        # Count operators for these backends only, because oneDNN and compiled kernels bypass PyTorch's operators.
        observe=lambda: trainer.observe(operators=backend in ("torch", "channels_last")),
        profile=trainer.profile(operators=backend in ("torch", "channels_last")),
    )


def route_linear_layers(backend: str, model: torch.nn.Module, device: Device, dtype: Dtype) -> torch.nn.Module:
    """Return the model; for the backend onednn, route its linear layers through oneDNN.

    Raises Unsupported for onednn on a GPU, or in another format than float32.
    """
    if backend != "onednn":
        return model
    if device.kind != "cpu":
        raise device.unsupported_backend(backend)
    if dtype is not Dtype.FLOAT32:
        raise Unsupported(f"in {dtype}, PyTorch goes through oneDNN by itself")
    from experiments.models.onednn import use_onednn

    return use_onednn(model)
