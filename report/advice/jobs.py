"""Jobs: work with a model, sizes, a machine and a program; and the numbers that formulas take from them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from report.advice.chips import CORE_BYTES_PER_S, Machine, find_machine, integrated_gpu
from report.advice.formats import Format, find_format, find_program
from report.advice.models import Model, find_model, unlisted_network

KINDS = (
    "decode", "prompt", "serve", "train", "fine-tune", "lora", "classify", "detect", "embed", "transcribe", "pictures",
    "tables", "fit", "memory",
)  # fmt: skip
TRAINING = ("train", "fine-tune", "lora")
WORK = (
    "tokens_in", "tokens_out", "users", "samples", "tokens_per_sample", "steps", "batch", "epochs", "rows", "columns",
    "trees", "leaves", "audio_s", "pictures", "pixels",
)  # fmt: skip
# Usual sizes to fill in where askers leave them out.
USUAL: Mapping[str, Mapping[str, float]] = {
    "decode": {"tokens_in": 64, "tokens_out": 128},
    "prompt": {"tokens_in": 512},
    "serve": {"tokens_in": 256, "tokens_out": 128, "users": 256},
    "train": {"tokens_per_sample": 512, "batch": 32, "audio_s": 8},
    "fine-tune": {"tokens_per_sample": 512, "batch": 32, "audio_s": 8},
    "lora": {"tokens_per_sample": 512, "batch": 16, "audio_s": 8},
    "classify": {"batch": 1},
    "detect": {"batch": 1},
    "embed": {"tokens_per_sample": 160, "batch": 32},
    "transcribe": {"audio_s": 600, "batch": 1},
    "pictures": {"steps": 25, "batch": 1, "pictures": 1},
    "tables": {"columns": 30, "trees": 100, "leaves": 64},
    "fit": {"tokens_in": 512, "tokens_out": 512, "users": 1, "batch": 1, "tokens_per_sample": 512},
    "memory": {"tokens_in": 512, "tokens_out": 512, "users": 1, "batch": 1, "tokens_per_sample": 512},
}
# Year of the software, where askers tell none.
USUAL_YEAR = 2025.0
# Tokens in a text for encoders, steps for networks that were distilled to few, and users where only samples are told.
ENCODER_TOKENS, FEW_STEPS, MOST_USERS = 160.0, 4.0, 256.0
# Programs that let several GPUs work on one layer at once; others go through the GPUs one after the other.
PARALLEL = ("vllm", "tensorrt-llm", "megatron")
# Kinds whose programs work in another way on GPUs than on processors, and the words to tell the two apart.
TWO_WAYS, ON_GPU = ("tables", "transcribe"), " on a GPU"
MATRIX_UNITS = ("whisper.cpp", "mlx")
# Models that are published in fewer than 16 bits.
_NATIVE_FORMATS = re.compile(
    r"(?P<eight>deepseek[- ]?(v3|r1)(?!.*distill)(?!.*\b\d{1,2}b)|kimi[- ]k2|minimax[- ]m[12])|gpt[- ]?oss"
)
# Networks whose convolutions take each channel by itself, which leaves little arithmetic for each byte.
_DEPTHWISE = re.compile(
    r"mobilenet|efficient|shufflenet|mnasnet|nanodet|ghostnet|mixnet|convnext|squeezenet|regnety|mobilevit|fastvit"
)
_FEW_STEPS = re.compile(r"turbo|lcm|lightning|schnell|sdxs|hyper")
_UNGUIDED = re.compile(r"flux|z-image|turbo|lcm|lightning|schnell|sdxs|hyper")
_LOADED = re.compile(r"inference only|already loaded|load(ing)?( of the model)? (told apart|not counted|excluded)")
_ONLY_ENCODER = re.compile(r"encod(er|e|ing) (pass |time )?only|only the encoder|encoder time")
# GPUs whose units compute twice as fast in FP8 as in 16 bits.
_EIGHT_BIT_UNITS = re.compile(r"\b([HB]\d00|H20|GH200|GB\d+|L4|L20|L40S?|MI3\d\d[AX]?|RTX [45]0\d\d)\b|Ada|Blackwell")
_ON_GPU = re.compile(r"metal|mps|gpu|core ?ml|\bmlx")


# Parameters in text encoders and decoders beside networks that make pictures.
_COMPANIONS = (
    (r"flux|sd-?3|stable-diffusion-3|auraflow|hunyuan|pixart|z-image|qwen-image|wan", 4.9e9),
    (r"xl|kolors|playground", 0.9e9),
    (r"stable-diffusion|sd-?[12]|lcm|dit", 0.21e9),
)


class UnclearJobError(Exception):
    """A job that cannot be answered: what is missing or makes no sense."""


@dataclass(frozen=True)
class Job:
    """A job as its asker tells it. work: the columns WORK, None where not told; text: the work in free words."""

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
        return self.work.get(name)


@dataclass(frozen=True)
class Situation:
    """A job with its names recognised. inputs: numbers for the formulas, in SI units; assumed: what was not told."""

    job: Job
    machine: Machine
    model: Model | None
    format: Format
    program: str
    inputs: Mapping[str, float]
    assumed: Mapping[str, float | str]

    @property
    def hardware_class(self) -> str:
        return hardware_class(self.machine)

    @property
    def features(self) -> dict[str, str]:
        """Features with a factor of their own on the time: names by feature, '' where not known."""
        on_gpu = self.program and self.job.kind in TWO_WAYS and not self.machine.is_cpu
        return {
            "program": self.program + (ON_GPU if on_gpu else ""),
            "model": self.model.key if self.model else "",
            "chip": self.machine.chip,
        }


def hardware_class(machine: Machine) -> str:
    """Return the class that shares constants: cpu, apple, integrated, card or datacentre."""
    if machine.is_cpu:
        return "cpu"
    classes = {"gpu-card": "card", "gpu-laptop": "card", "gpu-datacentre": "datacentre", "gpu-integrated": "integrated"}
    return classes.get(machine.kind, machine.kind)


def parse_job(record: Mapping[str, Any]) -> Job:
    """Read a job from JSON. Raises UnclearJobError if a field has the wrong type, or the kind is not known."""

    def number(value: Any, name: str) -> float | None:
        if value is None or value == "":
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise UnclearJobError(f"{name} must be a number of at least 0, not {value!r}")
        return float(value) or None

    kind = record.get("kind")
    if kind not in KINDS:
        raise UnclearJobError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    work = record.get("work") or {}
    if not isinstance(work, Mapping):
        raise UnclearJobError(f"work must be an object, not {work!r}")
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


def _usual_format(job: Job, program: str, machine: Machine, model: Model | None) -> Format:
    """Return the format that a program uses if the asker tells none."""
    native = _NATIVE_FORMATS.search(job.model.lower())
    if native:
        return Format("FP8", 8.0, "float8") if native["eight"] else Format("MXFP4", 4.3, "float16")
    if program in ("tensorrt", "openvino") and job.kind in ("classify", "detect") and not machine.is_cpu:
        return Format("16 bits", 16.0, "float16")
    if job.kind in ("decode", "prompt", "fit", "memory") and (program in ("", "llama.cpp")):
        return Format("Q4_K_M", 4.85, "float16")
    if program == "mlx" and job.kind in ("decode", "prompt"):
        return Format("4bit", 4.5, "float16")
    if job.kind in ("train", "fine-tune", "classify", "detect"):
        parameters = job.parameters or (model.parameters if model else 0)
        if parameters > 1e9:
            return Format("16 bits, mixed", 16.0, "float16")
        return Format("not told", 32.0, "unknown")
    if machine.is_cpu and job.kind in ("embed", "pictures"):
        return Format("float32", 32.0, "float32")
    return Format("16 bits", 16.0, "float16")


def rated_flops(machine: Machine, arithmetic: str) -> float:
    """Return one chip's rated FLOP/s in a format."""
    if machine.is_cpu and arithmetic in ("bfloat16", "int8"):
        return min(machine.matrix_flops, SHORT_FORMATS * machine.vector_flops)
    if machine.is_cpu or (machine.is_apple and arithmetic in ("unknown", "float32", "tf32")):
        return machine.vector_flops
    if arithmetic == "unknown":
        # Between 32 and 16 bits, nearer to the 32 that most programs start with.
        return machine.vector_flops**0.75 * machine.matrix_flops**0.25
    if arithmetic == "float32":
        # Since Ampere, PyTorch's convolutions use the units for TF32 by default.
        newer = machine.year >= 2020 and machine.matrix_flops > 2 * machine.vector_flops
        return machine.vector_flops * (1.5 if newer else 1.0)
    if arithmetic == "float8" and _EIGHT_BIT_UNITS.search(machine.name):
        return 2 * machine.matrix_flops
    return machine.matrix_flops


# Gain by formats of 16 and 8 bits on processors with instructions for them, however fast these are rated.
SHORT_FORMATS = 2.0
# Two processors read little faster than one, because data lie in the other's memory: exponent of their number.
SOCKETS = 0.4


def machine_inputs(machine: Machine, arithmetic: str) -> dict[str, float]:
    """Return the inputs that come from a machine."""
    if machine.is_cpu:
        cores = max(machine.cores, 1) * machine.count
        used = min(machine.threads or cores, cores)
        return {
            "bandwidth": min(machine.bandwidth * machine.count**SOCKETS, used * CORE_BYTES_PER_S),
            "flops": rated_flops(machine, arithmetic) * machine.count * used / cores,
            "devices": 1.0,
            "cores": float(used),
            "processor": 1.0,
            "memory": machine.memory_bytes * USABLE["cpu"],
            "memory_each": machine.memory_bytes * USABLE["cpu"],
        }
    return {
        "bandwidth": machine.bandwidth,
        "flops": rated_flops(machine, arithmetic),
        "devices": float(machine.count),
        "cores": 1.0,
        "processor": 0.0,
        "memory": machine.memory_bytes * machine.count * USABLE["apple" if machine.is_apple else "gpu"],
        "memory_each": machine.memory_bytes * USABLE["apple" if machine.is_apple else "gpu"],
    }


# Share in a machine's memory that a job can use: macOS keeps a fourth from its GPU; drivers and desktops take theirs.
USABLE = {"cpu": 0.9, "apple": 0.75, "gpu": 0.95}


def model_inputs(model: Model) -> dict[str, float]:
    """Return the inputs that come from a model."""
    whisper = "whisper" in model.key
    turbo, distilled = "turbo" in model.key, "distil" in model.key
    # In Whisper's large models, and in models that were cut from them, the encoder has 637 million parameters.
    encoder = model.parameters * (0.42 if whisper else 1.0)
    if whisper and ("large" in model.key or turbo or distilled):
        encoder = 637e6
    decoder = max(model.parameters - encoder, 0.1 * model.parameters) if whisper else 0.0
    text = max(model.parameters - model.vocab * model.hidden, 0.28 * model.parameters)
    return {
        "parameters": model.parameters,
        "active": model.active or model.parameters,
        "counted": text if model.kind == "encoder" else model.active or model.parameters,
        "layers": model.layers,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "kv_width": model.kv_width,
        "experts": float((model.active or model.parameters) < 0.7 * model.parameters),
        "item_flop": model.flop_per_item or 400 * model.parameters,
        "item_pixels": model.pixels,
        "network_flop": model.flop_per_item if model.pixels else 0.0,
        "language": float(model.kind == "language"),
        "encoder": float(model.kind == "encoder"),
        "picture": float(model.kind in ("vision", "detection", "segmentation")),
        "diffusion": float(model.kind == "diffusion"),
        "speech": float(model.kind == "speech"),
        "whisper": float(whisper),
        "convolution": float(model.is_convolution),
        "depthwise": float(bool(_DEPTHWISE.search(model.key))),
        "encoder_parameters": encoder,
        "decoder_parameters": decoder,
        "decoder_layers": (4.0 if turbo else 2.0 if distilled else model.layers) if whisper else 0.0,
        "companions": next((size for pattern, size in _COMPANIONS if re.search(pattern, model.key)), 0.0),
        "guided": 1.0 if _UNGUIDED.search(f"{model.key} {model.name}".lower()) else 2.0,
    }


def examine(job: Job) -> Situation:
    """Recognise a job's names, and work out the inputs to its formula.

    Raises UnknownNameError for a name that is in no table, and UnclearJobError if something that decides is missing.
    """
    if not job.hardware.strip():
        raise UnclearJobError("hardware is missing")
    # A program's threads do not mean that an Apple chip's GPU is idle.
    on_gpu = _ON_GPU.search(f"{job.text} {job.software or ''}".lower()) and re.search(r"\bm\d\b", job.hardware.lower())
    processor = True if job.kind == "tables" else False if on_gpu else None
    machine = find_machine(job.hardware, job.count, job.threads, processor)
    if job.kind != "tables":
        machine = integrated_gpu(machine, f"{job.hardware} {job.software or ''}") or machine
    program = find_program(f"{job.model} {job.software or ''}" if job.kind == "tables" else job.software)
    assumed: dict[str, float | str] = {}
    model = None
    if job.kind != "tables":
        if not job.model.strip() and not job.parameters:
            raise UnclearJobError("model is missing")
        model = find_model(job.model, job.kind, job.parameters)
        pixels = job.amount("pixels")
        if job.kind in ("train", "fine-tune") and pixels and model.kind == "language" and not model.listed:
            model = unlisted_network(model, pixels)
        if not model.parameters and not model.flop_per_item:
            raise UnclearJobError(f"the size of {model.name} is not known: tell parameters")
    form = find_format(job.precision) or find_format(job.model if job.kind in ("decode", "prompt", "serve") else "")
    if form is None:
        form = _usual_format(job, program, machine, model)
        assumed["format"] = form.name
    inputs = {
        **machine_inputs(machine, form.arithmetic),
        # Some programs use the matrix units in Apple's processors.
        "matrix_units": float(machine.is_cpu and "Apple" in machine.name and program in MATRIX_UNITS),
        **(model_inputs(model) if model else {}),
        "weight_bits": form.weight_bits,
        "parallel": float(program in PARALLEL),
        "year": min(max((job.year or USUAL_YEAR) - 2023, -6.0), 3.0),
        **work_inputs(job, model, program, assumed),
    }
    return Situation(job, machine, model, form, program, inputs, assumed)


def work_inputs(job: Job, model: Model | None, program: str, assumed: dict[str, float | str]) -> dict[str, float]:
    """Return the inputs that come from the work, with usual sizes for those that are not told.

    Raises UnclearJobError for tables without rows.
    """
    usual = dict(USUAL[job.kind])
    if model and model.kind == "encoder":
        usual["tokens_per_sample"] = ENCODER_TOKENS
    if job.kind == "pictures" and _FEW_STEPS.search(f"{job.model} {model.key if model else ''}".lower()):
        usual["steps"] = FEW_STEPS
    if job.kind == "embed" and job.unit == "request/s":
        usual["batch"] = 1.0
    if job.kind == "serve":
        usual["tokens_in"] = 2 * (job.amount("tokens_out") or usual["tokens_out"])
        usual["users"] = min(job.amount("samples") or MOST_USERS, MOST_USERS)
    if job.kind == "tables":
        rows = job.amount("rows") or job.amount("samples")
        if not rows:
            raise UnclearJobError("work.rows is missing")
        # Forests let trees grow until their leaves are pure.
        usual["leaves"] = rows / 4 if program == "forest" else usual["leaves"]
        usual["rows"] = rows
    inputs = {}
    for name in WORK:
        stated = job.amount(name)
        if name == "batch" and job.kind in ("embed", "classify", "detect") and stated is None:
            stated = job.amount("users")
        if stated is None and name in usual:
            assumed[name] = usual[name]
        inputs[name] = stated if stated is not None else float(usual.get(name, 0.0))
    pixels = inputs["pixels"] or (model.pixels if model else 0.0)
    inputs["pixels"] = pixels or (1048576.0 if job.kind == "pictures" else 50176.0)
    if model and not model.pixels:
        # The model's count is for its own pictures, whose size is not told.
        inputs["item_pixels"] = inputs["pixels"]
    inputs["loaded"] = float(bool(_LOADED.search(job.text.lower())))
    inputs["whole"] = float(not _ONLY_ENCODER.search(job.text.lower()))
    inputs["exact"] = float("exact" in program)
    inputs["forest"] = float(program == "forest")
    inputs["leafwise"] = float(program == "lightgbm")
    # LightGBM's first build for GPUs, in OpenCL, is slow; the later one for CUDA is not.
    inputs["opencl"] = float(program == "lightgbm" and "cuda" not in f"{job.model} {job.software or ''}".lower())
    return inputs


def run_length(situation: Situation) -> float:
    """Return the samples in a whole training run; 0 if their number is not told."""
    inputs, job = situation.inputs, situation.job
    if job.amount("samples") and (job.amount("epochs") or not job.amount("steps")):
        return inputs["samples"] * (job.amount("epochs") or 1.0)
    return (job.amount("steps") or 0.0) * inputs["batch"]
