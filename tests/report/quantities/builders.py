"""Builders for synthetic nodes, to test quantities and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from report.quantities import offload
from report.quantities.training import METHODS
from tests.report.conftest import Factory, SyntheticNode
from tests.report.priced_nodes import GIGA, add_training

MIB = 2**20
COUNTED, ADDED = METHODS
ONE_GPU: dict[str, Any] = {"device": "cuda:0"}


def add_product(
    node: SyntheticNode, rate: float, n: int = 512, graph: float | None = None, **more: Any
) -> SyntheticNode:
    """Add a GPU product (n x n matrices) at `rate` FLOP/s. Every sample reports a 1.5 GHz clock.

    graph: if it is given, also add the same product in a CUDA graph, at `graph` FLOP/s.
    """
    flop = 2.0 * n**3
    about = {**ONE_GPU, "spread": 0, "flop": flop, "params": {"m": n, "n": n, "k": n}, **more}
    first = len(node.rows)
    node.point("gemm", flop / rate, **about)
    if graph:
        node.point("gemm", flop / graph, metric="graph_time", **about)
    for row in node.rows[first:]:
        row["clock_mhz"] = 1500.0
    return node


def add_step(node: SyntheticNode, rate: float, batch: int = 32, model: str = "mlp", **more: Any) -> SyntheticNode:
    """Add a training step at `rate` samples/s, with a million FLOP per sample."""
    more = {"spread": 0, "flop": 1e6 * batch, **more}
    return node.point("training", batch / rate, params={"model": model, "batch": batch}, **more)


def cpu_node(synthetic: Factory, name: str = "node-a", gain: float = 1.0, gpus: int = 0) -> SyntheticNode:
    """Return a CPU node that trains 10 samples/s on one core and 18 on two, in PyTorch and float32.

    In its best library and number format, the node trains 60 samples/s. gain: factor for all these rates.
    """
    node = synthetic(name, gpus=gpus)
    for threads, more in ((1, 1.0), (2, 1.8)):
        add_step(node, 10 * gain * more, threads=threads)
        add_step(node, 15 * gain * more, threads=threads, backend="onednn")
    add_step(node, 20 * gain, dtype="bfloat16")
    add_step(node, 60 * gain, threads=2, dtype="bfloat16", backend="inductor")
    return add_step(node, 0.1, backend="scalar")


def cpu_gpu_node(synthetic: Factory) -> SyntheticNode:
    """Return `cpu_node` with a GPU. The CPU's peak is measured, and a product serves as the GPU's peak."""
    node = cpu_node(synthetic, gpus=1)
    add_step(node, 900, **ONE_GPU)
    add_step(node, 3000, dtype="bfloat16", **ONE_GPU)
    node.peak(45e6, spread=0).peak(90e6, threads=2, spread=0)
    return node.gemm(1e10 / 6e9, spread=0, **ONE_GPU)


def add_layer(
    node: SyntheticNode, seconds: float, variant: str = "library", kind: str = "convolution", shape: str = "conv4-3x3",
    **more: Any,
) -> SyntheticNode:  # fmt: skip
    """Add the time of a layer with 1 GFLOP. variant: way to compute the layer, such as `library` or `native`."""
    params = {"layer": kind, "shape": shape, "batch": 32, "passes": "forward", "variant": variant}
    about = {**ONE_GPU, "spread": 0.0, "backend": "", "flop": 1e9, **more}
    return node.point("libraries", seconds, params=params, **about)


def add_copy(
    node: SyntheticNode, seconds: float, size: int, direction: str = "host_to_device", host_memory: str = "pinned",
    **more: Any,
) -> SyntheticNode:  # fmt: skip
    """Add a copy of `size` bytes. In the directions `both` and `device_to_device`, twice as many bytes move."""
    moved = size * (2 if direction in ("both", "device_to_device") else 1)
    params = {"direction": direction, "size": size, "host_memory": host_memory}
    more = {"spread": 0.0, **more}
    return node.point("transfer", seconds, params=params, bytes=moved, device="cuda:0", dtype="", **more)


def link_node(synthetic: Factory) -> SyntheticNode:
    """Return a node that copies to its GPU at 50 GB/s and from its GPU at 40 GB/s, with 10 µs latency per copy.

    Copies in both directions at once reach 75 GB/s together.
    """
    node = synthetic("node-a", gpus=1)
    for size in (4, 65536, MIB, 16 * MIB, 256 * MIB):
        for way, rate in (("host_to_device", 50e9), ("device_to_host", 40e9)):
            add_copy(node, 10e-6 + size / rate, size, way)
        add_copy(node, 2 * size / 75e9, size, "both")
    return add_copy(node, 512 * MIB / 2e12, 256 * MIB, "device_to_device", "none")


def add_passes(node: SyntheticNode, footprint: int, rate: float, op: str = "triad", **more: Any) -> SyntheticNode:
    """Add memory passes over `footprint` bytes at `rate` bytes/s. op: operation in the passes, such as `triad`."""
    params = {"op": op, "footprint": footprint}
    return node.point("bandwidth", footprint / rate, params=params, bytes=footprint, **{"spread": 1e-4, **more})


SQUARE: dict[str, Any] = {"op": "gemm", "m": 1000, "n": 1000, "k": 1000, "uses": 1}
ON_HOST = {"eager": ["enqueue_h2d", "enqueue_compute", "enqueue_d2h", "synchronise"],
           "graph": ["launch", "synchronise"]}  # fmt: skip


def add_gpu_request(
    node: SyntheticNode, seconds: float, parts: tuple[float, ...] = (), *, device: str = "cuda:0",
    host_memory: str = "pinned", launch: str = "eager", **more: Any,
) -> None:  # fmt: skip
    """Add a request that a GPU computes.

    parts: the seconds that the GPU reports for the copy to the GPU, for the computation and for the copy back.
    """
    shape = {name: more.pop(name, value) for name, value in SQUARE.items()}
    on_gpu = device != "cpu"
    params = {**shape, "host_memory": host_memory if on_gpu else "none", "launch": launch}
    values = {"time": seconds, **{f"time.{name}": seconds / len(ON_HOST[launch])
                                  for name in ON_HOST[launch] if on_gpu}}  # fmt: skip
    values |= {f"device_time.{name}": value for name, value in zip(offload.PARTS, parts, strict=False)}
    node.point("offload", values, params=params, device=device, **{"spread": 1e-4, **more})


def add_cpu_request(node: SyntheticNode, seconds: float, **more: Any) -> None:
    """Add the same request as `add_gpu_request`, on the CPU."""
    add_gpu_request(node, seconds, device="cpu", **more)


def add_load(
    node: SyntheticNode, rate: int, service: str = "classifier", seconds: int = 4, cores: int = 2,
    device: str = "cpu", spread: float = 1e-3, backend: str = "torch", dtype: str = "float32", **metrics: float,
) -> SyntheticNode:  # fmt: skip
    """Add measurements of a server that receives `rate` requests per second. metrics: values by metric."""
    runtime = {"backend": backend, "dtype": dtype}
    params = {"service": service, "requests_per_s": rate, "cores": cores, "seconds": seconds}
    for name, value in metrics.items():
        node.point("serving", value, metric=name, params=params, device=device, spread=spread, samples=1, **runtime)
    return node


def add_tails(node: SyntheticNode, by_rate: Mapping[int, float], **more: Any) -> SyntheticNode:
    """Add a server's 99th percentile latencies. by_rate: seconds, by requests per second."""
    for rate, seconds in by_rate.items():
        add_load(node, rate, p99_latency=seconds, **more)
    return node


# For each model: number of weights, seconds per CPU request in PyTorch, and seconds per CPU request in ONNX Runtime.
MODELS = {"mlp": (3e5, 50e-6, 25e-6), "gpt-1m": (1e6, 4e-3, 2e-3), "gpt-10m": (1e7, 40e-3, 30e-3),
          "gpt2": (8.5e7, 0.4, 0.2)}  # fmt: skip


def add_request(node: SyntheticNode, model: str, seconds: float, batch: int = 1, **more: Any) -> SyntheticNode:
    return node.point("inference", seconds, params={"model": model, "batch": batch}, **{"spread": 0, **more})


def all_models_node(synthetic: Factory, name: str = "node-a", gpus: int = 0) -> SyntheticNode:
    """Return a CPU node with requests to all models."""
    node = synthetic(name, gpus=gpus, cache=2**25)
    for model, (parameters, eager, onnx) in MODELS.items():
        add_request(node, model, eager, threads=2, samples=120)
        add_request(node, model, onnx, threads=2, backend="onnx", samples=120)
        node.point("models", parameters, metric="parameters", unit="1", params={"model": model}, rounds=1, samples=1,
                   spread=0, backend="", dtype="", threads=0)  # fmt: skip
    return node


def add_generation(node: SyntheticNode, phase: str, seconds: float, flop: float, moved: float, **more: Any) -> None:
    params = {"model": "gpt2", "phase": phase, "context": 256, "batch": 4}
    node.point("generation", seconds, params=params, flop=flop, bytes=moved, **{"spread": 0, **more})


def add_run(
    node: SyntheticNode, load: str, seconds: Sequence[float], *, calls: int = 1, rounds: int = 1, extent: int = 8192,
    flop: float = 1e12, device: str = "cuda:0", dtype: str = "bfloat16", **beside: Callable[[int, int], Any],
) -> SyntheticNode:  # fmt: skip
    """Add a sustained run.

    seconds: time per call in each sample. beside: for each column to replace, a function that computes its value from
    the round and the sample.
    """
    start = len(node.rows)
    node.point("sustained", 1.0, params={"load": load, "extent": extent}, dtype=dtype, device=device, rounds=rounds,
               samples=len(seconds), spread=0, flop=flop)  # fmt: skip
    ends = 100 + np.cumsum(seconds) * calls
    for row in node.rows[start:]:
        row.update(value=seconds[row["sample"]], calls=calls, elapsed_s=ends[row["sample"]])
        row.update({name: column(row["round"], row["sample"]) for name, column in beside.items()})
    return node


def slowing_times(loss: float, each: float = 1.25, samples: int = 100, noise: float = 0.0) -> list[float]:
    """Return a time for each sample. The rate falls in nine equal steps, by the fraction `loss` altogether.

    each: time before the first step. noise: standard deviation of the logarithm of a time.
    """
    course = np.clip((np.arange(samples) // (samples // 10)) / 9, 0, 1)
    return list(each / (1 - loss * course) * np.exp(noise * np.random.default_rng(7).standard_normal(samples)))


def add_energy(node: SyntheticNode, experiment: str, energy: float, metric: str = COUNTED, **more: Any) -> None:
    node.point(experiment, energy, metric=metric, unit="J", samples=1, **{"spread": 0.0, **more})


def add_counts(node: SyntheticNode, model: str, rounds: int = 1, **metrics: float) -> SyntheticNode:
    for metric, number in metrics.items():
        node.point("models", number, metric=metric, unit="B" if "bytes" in metric else "1", params={"model": model},
                   rounds=rounds, samples=1, spread=0)  # fmt: skip
    return node


def add_peak_memory(node: SyntheticNode, model: str, batch: int, peak_bytes: float, **more: Any) -> SyntheticNode:
    params, more = {"model": model, "batch": batch}, {"spread": 1e-3, **more}
    return node.point("training", peak_bytes, metric="peak_memory", unit="B", params=params, samples=1, **more)


# A job takes 1 s to prepare, 100 steps of 10 ms plus 1 ms to draw a batch, and 50 forward passes of 4 ms: 2.3 s in all.
PARTS = {"prepare_time": 1.0, "step_time": 0.01, "draw_time": 0.001, "forward_time": 0.004}
PREDICTED = 1.0 + 100 * (0.01 + 0.001) + 50 * 0.004


def add_job(node: SyntheticNode, name: str, seconds: float, flop: float = 0.0, **more: Any) -> SyntheticNode:
    """Add a whole job. If `flop` is not 0, the job trains a network, and its parts' times and counts are added."""
    more = {"threads": 2, "spread": 0, "params": {"job": name}, **more}
    node.point("time-to-train", {"job_time": seconds, **(PARTS if flop else {})}, **more)
    exact = {**more, "spread": 0}
    counts = {"steps": 100, "forward_passes": 50} if flop else {}
    node.point("time-to-train", {"accuracy": 0.97, "reached_share": 1.0, **counts}, unit="1", **exact)
    return node.point("time-to-train", flop, metric="job_flop", unit="FLOP", **exact) if flop else node


# Names of the study's jobs. Some train networks, and the others train models in scikit-learn.
TASKS = {"digits-mlp", "digits-cnn", "mnist-resnet", "table-net", "text-classifier", "bytes-gpt", "table-boosting",
         "digits-boosting", "digits-logistic"}  # fmt: skip


def all_jobs_node(synthetic: Factory) -> SyntheticNode:
    """Return a node with known training rates and all jobs.

    The job bytes-gpt runs in two number formats, and the job table-boosting runs in scikit-learn.
    """
    node = synthetic("node-a")
    for model, rate in (("gpt", 200), ("cnn", 100)):
        add_training(node, rate, model=model, dtype="bfloat16")
    add_job(node, "bytes-gpt", 2.0, 100 * GIGA, spread=1e-4)
    add_job(node, "bytes-gpt", 1.6, 100 * GIGA, dtype="bfloat16")
    for other in TASKS - {"bytes-gpt", "table-boosting"}:
        add_job(node, other, 2.5, GIGA)
    return add_job(node, "table-boosting", 0.5, backend="sklearn", dtype="float64")


def add_accuracies(
    node: SyntheticNode, batch: int, rate: float, test: Sequence[float], validation: float | None = None, *,
    device: str = "cpu", data: str = "digits", reached: float = 1.0, rounds: int = 1, epochs: int = 30,
    **others: Sequence[float],
) -> SyntheticNode:  # fmt: skip
    """Add training runs with several seeds.

    test: test accuracy for each seed. validation: validation accuracy, equal for all seeds; by default it is the mean
    test accuracy.
    """
    mean = sum(test) / len(test)
    metrics: dict[str, Sequence[float]] = {
        "test_accuracy": test, "validation_accuracy": [mean if validation is None else validation] * len(test),
        "reached_share": [reached], **others,
    }  # fmt: skip
    params: dict[str, Any] = {
        "data": data, "model": "mlp", "batch": batch, "rate": rate, "epochs": epochs, "seeds": len(test),
    }  # fmt: skip
    for metric, values in metrics.items():
        start = len(node.rows)
        node.point("convergence", 1.0, params=params, device=device, metric=metric, spread=0, rounds=rounds,
                   samples=len(values), unit="s" if "time" in metric else "1")  # fmt: skip
        for row in node.rows[start:]:
            row["value"] = float(values[row["sample"]])
    return node


AGREE, DIFFER = (1.0,) * 3, (0.0,) * 3
CURVES = ("mlp", "cnn", "gpt-1m", "tabular")


def add_curve(
    node: SyntheticNode,
    model: str,
    agrees: Sequence[float] = AGREE,
    status: str = "ok",
    steps: int = 20,
    apart: float = 1e-4,
    **more: Any,
) -> None:
    """Add a model's loss curve on the GPU. agrees: for each round, 1 if its losses agree with the reference, else 0."""
    about = {"params": {"model": model, "batch": 8, "steps": steps}, "device": "cuda:0", "spread": 0, "unit": "1",
             "status": status, "reason": "" if status == "ok" else "why", "rounds": len(agrees), **more}  # fmt: skip
    if status not in ("ok", "wrong"):
        node.point("equivalence", 1.0, **{**about, "unit": "s"})
        return
    start = len(node.rows)
    node.point("equivalence", 1.0, metric="agrees_share", samples=1, **about)
    for row in node.rows[start:]:
        row["value"] = agrees[row["round"] - 1]
    node.point("equivalence", 2.0, metric="loss", samples=steps, **about)
    node.point("equivalence", apart, metric="loss_deviation", samples=1, **about)
