"""Jobs: a kind of work with a model, its size, a machine and a program; and the numbers that formulas need of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from report.advice.chips import CORE_BYTES_PER_S, Machine, find_machine
from report.advice.formats import Format, find_format, find_program
from report.advice.models import Model, find_model

KINDS = (
    "decode", "prompt", "serve", "train", "fine-tune", "lora", "classify", "detect", "embed", "transcribe", "pictures",
    "tables", "fit", "memory",
)  # fmt: skip
TRAINING = ("train", "fine-tune", "lora")
WORK = (
    "tokens_in", "tokens_out", "users", "samples", "tokens_per_sample", "steps", "batch", "epochs", "rows", "columns",
    "trees", "leaves", "audio_s", "pictures", "pixels",
)  # fmt: skip
# Sizes of work that askers leave out, as most published runs have them.
USUAL = {"tokens_in": 256.0, "tokens_out": 128.0, "prompt": 512.0, "encoder": 160.0, "language": 512.0}
# Programs that let several GPUs work on one layer at once; others go through the GPUs one after the other.
PARALLEL = ("vllm", "tensorrt-llm", "exllama", "megatron")
# Steps of denoising that programs take by default; models that were distilled take few.
USUAL_STEPS, FEW_STEPS = 25.0, 4.0


# Models that are published in fewer than 16 bits.
_NATIVE_FORMATS = re.compile(r"(?P<eight>deepseek[- ]?(v3|r1)(?!.*distill)(?!.*\b\d{1,2}b)|kimi[- ]k2|minimax[- ]m[12])|gpt[- ]?oss")
# Networks whose convolutions take each channel by itself, which leaves little arithmetic for each byte.
_DEPTHWISE = re.compile(r"mobilenet|efficient|shufflenet|mnasnet|nanodet|ghostnet|mixnet|convnext|squeezenet|regnety|mobilevit|fastvit")


class Unclear(Exception):
    """A job that cannot be answered: what is missing or makes no sense."""


@dataclass(frozen=True)
class Job:
    """A job as asked. work: the columns WORK, None where not told."""

    id: str
    kind: str
    model: str
    hardware: str
    parameters: float | None = None
    precision: str | None = None
    count: int | None = None
    threads: int | None = None
    work: Mapping[str, float | None] = field(default_factory=dict)
    software: str | None = None
    year: float | None = None
    unit: str = ""
    text: str = ""

    def amount(self, name: str) -> float | None:
        value = self.work.get(name)
        return None if value is None else float(value)


@dataclass(frozen=True)
class Situation:
    """A job with its machine, model, format and program recognised. inputs: numbers for the formulas, in SI units."""

    job: Job
    machine: Machine
    model: Model | None
    format: Format
    program: str
    inputs: Mapping[str, float]
    assumed: tuple[str, ...]

    @property
    def hardware_class(self) -> str:
        return hardware_class(self.machine)


def hardware_class(machine: Machine) -> str:
    """Return the class that shares constants: cpu, apple, integrated, card or datacentre."""
    if machine.is_cpu:
        return "cpu"
    return {"gpu-card": "card", "gpu-laptop": "card", "gpu-datacentre": "datacentre", "gpu-integrated": "integrated"}.get(
        machine.kind, machine.kind
    )


def parse_job(record: Mapping[str, Any]) -> Job:
    """Read a job from JSON. Raises Unclear if a field has the wrong type, or the kind is not known."""

    def number(value: Any, name: str) -> float | None:
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise Unclear(f"{name} must be a number above 0, not {value!r}")
        return float(value)

    kind = record.get("kind")
    if kind not in KINDS:
        raise Unclear(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    work = record.get("work") or {}
    if not isinstance(work, Mapping):
        raise Unclear(f"work must be an object, not {work!r}")
    count, threads = number(record.get("count"), "count"), number(record.get("threads"), "threads")
    return Job(
        id=str(record.get("id", "")),
        kind=str(kind),
        model=str(record.get("model") or ""),
        hardware=str(record.get("hardware") or ""),
        parameters=number(record.get("parameters"), "parameters"),
        precision=str(record["precision"]) if record.get("precision") else None,
        count=int(count) if count else None,
        threads=int(threads) if threads else None,
        work={name: number(work.get(name), f"work.{name}") for name in WORK},
        software=str(record["software"]) if record.get("software") else None,
        year=number(record.get("year"), "year"),
        unit=str(record.get("unit") or ""),
        text=str(work.get("text") or ""),
    )


def _usual_format(job: Job, program: str, machine: Machine) -> Format:
    """Return the format that a program uses if the asker tells none."""
    native = _NATIVE_FORMATS.search(job.model.lower())
    if native:
        return Format("FP8", 8.0, "float8") if native["eight"] else Format("MXFP4", 4.3, "float16")
    if program in ("tensorrt", "openvino") and job.kind in ("classify", "detect") and not machine.is_cpu:
        return Format("16 bits", 16.0, "float16")
    if job.kind in ("decode", "prompt", "fit", "memory") and (
        program == "llama.cpp" or (not program and (machine.is_cpu or machine.is_apple))
    ):
        return Format("Q4_K_M", 4.85, "float16")
    if program == "mlx" and job.kind in ("decode", "prompt"):
        return Format("4bit", 4.5, "float16")
    if job.kind in ("train", "fine-tune", "classify", "detect"):
        if (job.parameters or 0) > 1e9:
            return Format("16 bits, mixed", 16.0, "float16")
        return Format("not told", 32.0, "unknown")
    if machine.is_cpu:
        return Format("float32", 32.0, "float32") if job.kind in ("embed", "pictures") else Format("16 bits", 16.0, "float16")
    return Format("16 bits", 16.0, "float16")


def _rated_flops(machine: Machine, form: Format) -> float:
    """Return the rated FLOP/s of one chip for a format."""
    if machine.is_cpu:
        return machine.vector_flops
    if machine.is_apple:
        return machine.vector_flops
    if form.arithmetic == "unknown":
        # Halfway between 32 and 16 bits.
        return (machine.vector_flops * machine.matrix_flops) ** 0.5
    if form.arithmetic == "float32":
        # Since Ampere, PyTorch's convolutions use the units for TF32 by default.
        return machine.vector_flops * (1.5 if machine.year >= 2020 and machine.matrix_flops > 2 * machine.vector_flops else 1.0)
    return machine.matrix_flops


def _recognise_machine(job: Job) -> Machine:
    if not job.hardware.strip():
        raise Unclear("hardware is missing")
    # A program's threads do not mean that an Apple chip's GPU is idle.
    on_gpu = bool(re.search(r"metal|mps|gpu|core ?ml|\bmlx", f"{job.text} {job.software or ''}".lower()))
    return find_machine(job.hardware, job.count, None if on_gpu and re.search(r"\bm\d\b", job.hardware.lower()) else job.threads)


def examine(job: Job) -> Situation:
    """Recognise the names of a job and work out the inputs of its formula.

    Raises UnknownName for a name that is in no table, and Unclear if the work is not told.
    """
    machine = _recognise_machine(job)
    program = find_program(f"{job.model} {job.software or ''}" if job.kind == "tables" else job.software)
    model = None
    if job.kind != "tables":
        if not job.model.strip() and not job.parameters:
            raise Unclear("model is missing")
        model = find_model(job.model, job.kind, job.parameters)
    form = find_format(job.precision) or find_format(job.model if job.kind in ("decode", "prompt", "serve") else "")
    form = form or _usual_format(job, program, machine)
    assumed: list[str] = []
    if not job.precision:
        assumed.append(f"format: {form.name}")
    cores = max(machine.cores, 1) * machine.count
    used = min(machine.threads or cores, cores) if machine.is_cpu else 1
    share = used / cores if machine.is_cpu else 1.0
    inputs = {
        "bandwidth": machine.bandwidth,
        "flops": _rated_flops(machine, form),
        "devices": float(machine.count),
        "cores": float(used),
        "year": (job.year or 2024) - 2023,
        "quantised": float(form.weight_bits < 15),
        "parallel": float(program in PARALLEL),
    }
    if machine.is_cpu:
        inputs["bandwidth"] = min(machine.bandwidth * machine.count, used * CORE_BYTES_PER_S)
        inputs["flops"] = machine.vector_flops * machine.count * share
        inputs["devices"] = 1.0
    inputs |= _WORK_INPUTS[job.kind](job, machine, model, form, assumed)
    return Situation(job, machine, model, form, program, inputs, tuple(assumed))


def _amount(job: Job, name: str, usual: float, assumed: list[str]) -> float:
    value = job.amount(name)
    if value is None:
        assumed.append(f"{name}: {usual:g}")
        return usual
    return value


def model_bytes(model: Model, form: Format) -> float:
    """Return the bytes of all weights in a format."""
    return model.parameters * form.weight_bits / 8


def kv_bytes(model: Model) -> float:
    """Return the bytes that one token of context keeps in all layers, in 16 bits."""
    return 2 * 2 * model.layers * model.kv_width


def _language_inputs(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    active = model.active if model.active else model.parameters
    # A tied or separate table of words is not read for each token.
    return {
        "weight_bytes": active * form.weight_bits / 8,
        "all_bytes": model_bytes(model, form),
        "kv_bytes": kv_bytes(model),
        "layers": model.layers,
        "active": active,
        "hidden": model.hidden,
        "experts": float(model.active < 0.7 * model.parameters),
        "processor": float(machine.is_cpu),
    }


def _decode(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    before = job.amount("tokens_in") or 64.0
    made = job.amount("tokens_out") or USUAL["tokens_out"]
    return _language_inputs(job, machine, model, form, assumed) | {"context": before + made / 2}


def _prompt(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    tokens = _amount(job, "tokens_in", USUAL["prompt"], assumed)
    inputs = _language_inputs(job, machine, model, form, assumed)
    attention = 2 * 2 * model.layers * model.hidden * tokens / 2
    return inputs | {"tokens": tokens, "work_flop": tokens * (2 * inputs["active"] + attention)}


def _serve(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    inputs = _language_inputs(job, machine, model, form, assumed)
    before = _amount(job, "tokens_in", USUAL["tokens_in"], assumed)
    made = _amount(job, "tokens_out", USUAL["tokens_out"], assumed)
    context = before + made / 2
    room = machine.memory_bytes * machine.count * 0.9 - inputs["all_bytes"]
    most = max(room, 0.02 * machine.memory_bytes) / (inputs["kv_bytes"] * (before + made))
    users = job.amount("users") or min(job.amount("samples") or 256.0, 256.0)
    if job.amount("users") is None:
        assumed.append(f"users: {users:g}")
    return inputs | {
        "context": context,
        "users": max(min(users, most, 256.0), 1.0),
        "asked_users": users,
        "prompt_share": before / made,
        "tokens_out": made,
    }


def _training_flop(job: Job, model: Model, form: Format, assumed: list[str]) -> tuple[float, float, bool]:
    """Return the FLOP of one sample's step, its tokens, and whether the model follows the memory's speed."""
    passes = {"train": 3.0, "fine-tune": 3.0, "lora": 2.0}[job.kind]
    if model.kind in ("vision", "detection", "segmentation"):
        return passes * picture_flop(job, model), 0.0, model.is_convolution
    if model.kind == "diffusion":
        return passes * step_flop(job, model), 0.0, False
    if model.kind == "speech":
        if "whisper" in model.key:
            return passes * 2 * model.parameters * 1000.0, 0.0, False
        seconds = job.amount("audio_s") or 8.0
        return passes * 2 * model.parameters * seconds * 60, 0.0, False
    tokens = _amount(job, "tokens_per_sample", USUAL["encoder" if model.kind == "encoder" else "language"], assumed)
    counted = model.active
    if model.kind == "encoder":
        counted = max(model.parameters - model.vocab * model.hidden, 0.3 * model.parameters)
    attention = 2 * 2 * model.layers * model.hidden * tokens / (1 if model.kind == "encoder" else 2)
    return passes * tokens * (2 * counted + attention), tokens, False


def picture_flop(job: Job, model: Model) -> float:
    """Return the FLOP of one forward pass of one picture."""
    flop = model.flop_per_item or 2 * model.parameters * 200
    pixels = job.amount("pixels")
    if pixels and model.pixels:
        flop *= pixels / model.pixels
    return flop


def step_flop(job: Job, model: Model) -> float:
    """Return the FLOP of one denoising step of one picture, without guidance."""
    pixels = job.amount("pixels") or model.pixels or 1048576.0
    if model.flop_per_item and model.pixels:
        # Attention makes large pictures dearer than in proportion.
        return model.flop_per_item * (pixels / model.pixels) ** 1.1
    return 2 * model.parameters * (pixels / 256 + 256)


def _training(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    flop, tokens, convolution = _training_flop(job, model, form, assumed)
    batch = job.amount("batch") or (32.0 if job.kind != "lora" else 16.0)
    if job.amount("batch") is None:
        assumed.append(f"batch: {batch:g}")
    samples = job.amount("samples")
    epochs = job.amount("epochs") or 1.0
    steps = job.amount("steps")
    whole = steps * batch if steps else (samples * epochs if samples else 0.0)
    if samples and job.amount("epochs"):
        whole = samples * epochs
    return {
        "sample_flop": flop,
        "tokens": tokens,
        "batch": batch,
        "samples": whole,
        "convolution": float(convolution),
        "depthwise": float(bool(_DEPTHWISE.search(model.key))),
        "speech": float(model.kind == "speech"),
        "parameters": model.parameters,
        "layers": model.layers,
    }


def _pictures_seen(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    if not model.flop_per_item and not model.parameters:
        raise Unclear(f"the arithmetic of {model.name} is not known")
    return {
        "item_flop": picture_flop(job, model),
        "batch": job.amount("batch") or 1.0,
        "samples": job.amount("samples") or job.amount("pictures") or 0.0,
        "convolution": float(model.is_convolution),
        "depthwise": float(bool(_DEPTHWISE.search(model.key))),
        "parameters": model.parameters,
        "pixels": job.amount("pixels") or model.pixels or 50176.0,
    }


def _embed(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    tokens = _amount(job, "tokens_per_sample", USUAL["encoder"], assumed)
    counted = model.active
    if model.kind == "encoder":
        counted = max(model.parameters - model.vocab * model.hidden, 0.25 * model.parameters)
    attention = 2 * 2 * model.layers * model.hidden * tokens
    return {
        "item_flop": tokens * (2 * counted + attention),
        "batch": job.amount("batch") or job.amount("users") or (1.0 if job.unit == "request/s" else 32.0),
        "samples": job.amount("samples") or 0.0,
        "layers": model.layers,
        "tokens": tokens,
    }


def _transcribe(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    audio = _amount(job, "audio_s", 600.0, assumed)
    windows = max(audio / 30, 1.0)
    turbo = bool(re.search(r"turbo|distil", model.key))
    # Encoder and decoder have equally many layers, but for models whose decoder was cut.
    decoder_layers = 4.0 if "turbo" in model.key else 2.0 if "distil" in model.key else model.layers
    encoder = 637e6 if "large" in model.key or turbo else model.parameters * 0.42
    decoder = max(model.parameters - encoder, 0.1 * model.parameters)
    if "whisper" not in model.key:
        encoder, decoder, decoder_layers = model.parameters, 0.0, 0.0
    # Some report only the encoder, which their program times.
    only_encoder = bool(re.search(r"encod(er|e|ing) (pass |time )?only|only the encoder|encoder time", job.text.lower()))
    return {
        "audio_s": audio,
        "whole": float(not only_encoder),
        "file_bytes": model_bytes(model, form),
        "encoder_flop": windows * 2 * encoder * 1500,
        "spoken": max(audio, 10.0) * 3.5,
        "decoder_bytes": decoder * form.weight_bits / 8,
        "decoder_flop": 2 * decoder,
        "decoder_layers": decoder_layers,
        "batch": job.amount("batch") or 1.0,
    }


def _pictures_made(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    few = bool(re.search(r"turbo|lcm|lightning|schnell|sdxs|hyper", f"{job.model} {model.key}".lower()))
    steps = _amount(job, "steps", FEW_STEPS if few else USUAL_STEPS, assumed)
    pixels = job.amount("pixels") or model.pixels or 1048576.0
    # Classifier-free guidance runs the network twice a step; distilled models go without.
    guided = 1.0 if few or re.search(r"flux|z-image", model.key) else 2.0
    return {
        "step_flop": guided * step_flop(job, model),
        "steps": steps,
        "pixels": pixels,
        "batch": job.amount("batch") or 1.0,
        "pictures": job.amount("pictures") or 1.0,
        "parameters": model.parameters,
    }


def _tables(job: Job, machine: Machine, model: Model | None, form: Format, assumed: list[str]) -> dict[str, float]:
    rows = job.amount("rows") or job.amount("samples")
    if not rows:
        raise Unclear("work.rows is missing")
    columns = _amount(job, "columns", 30.0, assumed)
    trees = _amount(job, "trees", 100.0, assumed)
    program = find_program(f"{job.model} {job.software or ''}")
    forest = program == "forest"
    # Forests let trees grow until their leaves are pure.
    leaves = _amount(job, "leaves", rows / 4 if forest else 64.0, assumed)
    return {
        "rows": rows,
        "columns": columns,
        "trees": trees,
        "depth": max(math.log2(max(leaves, 2.0)), 1.0),
        "leaves": min(leaves, 4096.0),
        "exact": float("exact" in program),
        "forest": float(forest),
        "leafwise": float(program == "lightgbm"),
        "leafwise_gpu": float(program == "lightgbm" and not machine.is_cpu),
    }


def _fit(job: Job, machine: Machine, model: Model, form: Format, assumed: list[str]) -> dict[str, float]:
    return {}


_WORK_INPUTS: Mapping[str, Any] = {
    "decode": _decode,
    "prompt": _prompt,
    "serve": _serve,
    "train": _training,
    "fine-tune": _training,
    "lora": _training,
    "classify": _pictures_seen,
    "detect": _pictures_seen,
    "embed": _embed,
    "transcribe": _transcribe,
    "pictures": _pictures_made,
    "tables": _tables,
    "fit": _fit,
    "memory": _fit,
}
