"""Steps of real models by operator: FLOP, bytes and time, to compare with the machine's balance.

An operator's intensity is its FLOP over the bytes that it has to move. The machine's balance is peak arithmetic over
bandwidth. Arithmetic limits operators with an intensity above the balance, bandwidth limits operators below it.
Machines differ in balance, so the metrics are cumulative: the shares of operator time, bytes and FLOP in operators with
an intensity up to 1/4, 1/2, 1, 2, … FLOP/B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from experiments.devices import Device
from experiments.models.gradient_tolerance import largest_gradient_error
from experiments.models.network_names import Model
from experiments.registry import experiment
from experiments.suite import training
from experiments.suite.inference import TOLERANCE
from experiments.workload import Dtype, Profile, Threads, Unsupported, Workload, relative_error

if TYPE_CHECKING:
    from experiments.models.operator_traffic import Operator

Phase = Literal["training", "forward", "prefill", "decode"]

# Intensities in FLOP/B. For each, a metric gives the share of time, bytes or FLOP in operators up to this intensity.
BELOW = [2.0**power for power in range(-2, 13)]
# CALLS: number of calls to count, and to profile.
# SLOW_S: if a call takes this many seconds or more, fewer calls are counted and profiled.
CALLS, SLOW_S = 3, 0.25
# Metrics from the profiler, with units; all others are counted without it.
TIMED = {"matmul_time_share": "1", **{f"time_below.{limit:g}_share": "1" for limit in BELOW}}


def smaller(params: dict[str, Any]) -> dict[str, Any] | None:
    return {**params, "batch": max(1, params["batch"] // 8)} if params["batch"] > 1 else None


def memory(model: str, batch: int, phase: str, dtype: str, threads: int, **_: Any) -> float:
    """Estimate the bytes.

    A training step needs as many bytes as in `training`. The other phases need bytes for the weights, for the check's
    float64 weights, and for activations and the key-value cache, which together need half as many bytes as the
    activations of a training step.
    """
    from experiments.models.zoo import ZOO

    if phase == "training":
        return training.memory(model, batch, threads)
    return ZOO[model].parameters() * (Dtype(dtype).itemsize + 8.0) + ZOO[model].activation_bytes() * batch / 2


def flop(model: str, batch: int, phase: str, **_: Any) -> float:
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    whole = entry.step_flop(batch) if phase == "training" else entry.forward_flop(batch)
    return whole / entry.length if phase == "decode" else whole


def extra_s(call_s: float, point_s: float, phase: Phase, threads: int = 0, **_: Any) -> float:
    """Estimate the seconds for the float64 check, for the counted step, and for the profiled steps.

    Counting and profiling record every operator. On a GPU, the model is also made again for the profile.
    """
    return 0.8 + (16 if phase == "training" else 10) * min(call_s, 2 * point_s) if threads else 4.0


@experiment("roofline", smaller=smaller, memory=memory, flop=flop, extra_s=extra_s, load_s=2.0)
def roofline(
    device: Device,
    model: Model,
    batch: int,
    phase: Phase,
    dtype: Dtype,
    backend: Literal["torch"],
    threads: Threads,
) -> Workload:
    """Run one step of a model with PyTorch's own operators, one after the other.

    phase: training, an Adam step as in `training`; forward, the answer to a batch; prefill and decode, for causal
        networks in the catalogue: all tokens in a prompt, or only the last one with the others cached.
    Work: FLOP and bytes over all operators; each reads its operands and writes its result once.
    Observed: kernels (operators that move data), the products' share of FLOP and of operator time, product_intensity,
        the share of bytes that would fit the last cache (cached_bytes_share), and the shares of time, bytes and FLOP in
        operators up to an intensity (for example time_below.16_share, up to 16 FLOP/B).
    Unsupported: prefill and decode for models that generate no text, and formats without a tolerance.
    """
    tolerance = largest_gradient_error(model, dtype) if phase == "training" else TOLERANCE.get(dtype)
    if tolerance is None:
        raise Unsupported(f"answers in {dtype} are not part of this experiment")
    # Raises Unsupported if the device would fall back to another format.
    device.torch_dtype(dtype)
    from experiments.models import operator_traffic

    step, check = _step_and_check(device, model, batch, phase, dtype)
    step()
    counted, moved = operator_traffic.total_traffic(step)
    return Workload(
        run=step,
        flop=counted,
        bytes=moved,
        check=check,
        tolerance=tolerance,
        observe=lambda: counted_metrics(step, device),
        profile=Profile(TIMED, lambda: timed_metrics(step, device)),
    )


def _step_and_check(
    device: Device, model: str, batch: int, phase: str, dtype: Dtype
) -> tuple[Callable[[], object], Callable[[], float]]:
    """Return a step and its check on fresh inputs. Raises Unsupported if the model lacks the phase."""
    from experiments.models.zoo import ZOO

    entry = ZOO[model]
    if phase == "training":
        from experiments.models.trainer import Trainer, least_error, make_model

        trainer = Trainer(make_model(entry, device, dtype), *entry.batch(batch), device, dtype)
        return trainer.step, lambda: least_error(
            trainer, entry.batch, entry.step_flop(1), largest_gradient_error(model, dtype)
        )
    from experiments.models.text_generation import Generator, seeded_weights, set_tf32

    if phase != "forward" and not (entry.described and entry.described.is_causal):
        raise Unsupported(f"{model} generates no text: its phases are training and forward")
    set_tf32(device, dtype)
    with seeded_weights(device, dtype):
        built: Any = entry.model()
    if phase == "forward":
        return _forward_and_check(device, built, batch, dtype, entry.batch)
    generator = Generator(built, lambda: entry.batch(batch)[0], device)
    return getattr(generator, phase), lambda: generator.error(phase)


def _forward_and_check(
    device: Device, built: Any, batch: int, dtype: Dtype, draw: Callable[[int], tuple[Any, Any]]
) -> tuple[Callable[[], object], Callable[[], float]]:
    import torch

    from experiments.models.text_generation import exact_logits

    built.eval()

    def draw_inputs() -> Any:
        inputs = draw(batch)[0].to(device.name)
        return inputs.to(device.torch_dtype(dtype)) if inputs.is_floating_point() else inputs

    inputs = draw_inputs()

    @torch.no_grad()
    def step() -> None:
        built(inputs)

    def error() -> float:
        other = draw_inputs()
        with torch.no_grad():
            computed = built(other)
        return relative_error(computed.cpu().double(), exact_logits(built, other, device))

    return step, error


def counted_metrics(step: Callable[[], object], device: Device) -> Mapping[str, tuple[float, str]]:
    """Return the counted metrics: operations, bytes and their shares by intensity."""
    from experiments.models import operator_traffic, profiling

    calls = profiling.call_count(step, device, CALLS, SLOW_S)
    operators = [operator for _ in range(calls) for operator in operator_traffic.record_operators(step)]
    metrics = operator_metrics(operators, calls)
    metrics["cached_bytes_share"] = operator_traffic.cached_share(operators, device.last_level_cache_bytes), "1"
    return {name: metric for name, metric in metrics.items() if name not in TIMED and not math.isnan(metric[0])}


def timed_metrics(step: Callable[[], object], device: Device) -> Mapping[str, float]:
    """Return the metrics for which the profiler times the operators in a step.

    Raises Unsupported if the profiler does not support the device, and ProfileError if it lost operators.
    """
    from experiments.models import operator_traffic, profiling

    calls = profiling.call_count(step, device, CALLS, SLOW_S)
    metrics = operator_metrics(operator_traffic.time_operators(step, device, calls), calls)
    return {name: metrics[name][0] for name in TIMED}


def operator_metrics(operators: Sequence[Operator], calls: int) -> dict[str, tuple[float, str]]:
    """Return the metrics for operators recorded over `calls` calls; metrics of time are nan if no operator was timed.

    An operator that moves nothing (a view of its operand) has no intensity and is left out of the distributions.
    """
    moving = sorted((operator for operator in operators if operator.bytes), key=lambda operator: operator.intensity)
    products = [operator for operator in moving if operator.product]
    metrics = {
        "kernels": (len(moving) / calls, "1"),
        "matmul_flop_share": (_share(_total_flop(products), _total_flop(operators)), "1"),
        "matmul_time_share": (_share(_total_seconds(products), _total_seconds(operators)), "1"),
        "product_intensity": (_share(_total_flop(products), _total_bytes(products)), "FLOP/B"),
    }
    for measure, total in (("time", _total_seconds), ("bytes", _total_bytes), ("flop", _total_flop)):
        for limit in BELOW:
            below = [operator for operator in moving if operator.intensity <= limit]
            metrics[f"{measure}_below.{limit:g}_share"] = _share(total(below), total(moving)), "1"
    return metrics


def _total_seconds(operators: Sequence[Operator]) -> float:
    return math.fsum(operator.seconds for operator in operators)


def _total_bytes(operators: Sequence[Operator]) -> float:
    return math.fsum(operator.bytes for operator in operators)


def _total_flop(operators: Sequence[Operator]) -> float:
    return math.fsum(operator.flop for operator in operators)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
