"""Language model files, and runtimes that read them."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from torch.utils.flop_counter import FlopCounterMode

from contract.files import acquire_lock
from experiments.devices.base import Device
from experiments.language import gguf_files, llama_bench, runtimes, token_check, transformers_reference, weights
from experiments.language.shapes import SHAPES, Shape
from experiments.suite import language_models
from experiments.workload import HarnessError, Unsupported
from tests.experiments.point_runs import (
    CPU,
    GPU,
    answer_point,
    build_work,
    check_error,
    observe,
    passes_check,
    run_once,
    sample_metrics,
)

TINY = SHAPES["llama-tiny"]
SMALLEST = replace(TINY, layers=2)
KINDS: list[Any] = ["Q4_K_M", "Q8_0", "F16", "BF16"]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write model files to the test's folder, and clear caches so that each test writes its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(gguf_files.FOLDER, raising=False)
    # Use fewer blocks than a study does. As in a study, the number is a prime.
    monkeypatch.setattr(weights, "POOL_BLOCKS", 8191)
    for cached in (gguf_files._temporary_file, token_check._reference):
        cached.cache_clear()
    yield tmp_path
    while language_models._loaded:
        language_models._loaded.popitem()[1].close()
    for cached in (gguf_files._temporary_file, token_check._reference):
        cached.cache_clear()


def write_model(folder: Path, kind: Any, shape: Shape = SMALLEST) -> Path:
    gguf_files.write_file(folder / "made.gguf", shape, kind)
    return folder / "made.gguf"


def test_shapes_have_the_published_parameter_counts() -> None:
    published = {"0.5b": 494_032_768, "1b": 1_235_814_400, "3b": 3_212_749_824, "8b": 8_030_261_248}
    assert {model: SHAPES[f"llama-{model}"].parameters for model in published} == published


@pytest.mark.parametrize(
    ("model", "kind", "published"),
    [("1b", "Q4_K_M", 807_694_464), ("8b", "Q4_K_M", 4_920_739_232), ("8b", "Q8_0", 8_540_775_840)],
)
def test_file_sizes_match_published_files_without_vocabulary(model: str, kind: Any, published: int) -> None:
    """Published sizes are from huggingface.co/bartowski; Llama 3's vocabulary adds 7.8 MB to each file."""
    assert 7.8e6 < published - gguf_files.file_bytes(SHAPES[f"llama-{model}"], kind) < 7.9e6


def test_every_token_in_a_file_has_a_type(scratch: Path) -> None:
    fields = gguf.GGUFReader(write_model(scratch, "Q8_0")).fields
    assert {len(fields[f"tokenizer.ggml.{name}"].data) for name in ("tokens", "token_type")} == {SMALLEST.vocabulary}


def tensor_types(model: str, part: str) -> list[Type]:
    shape = SHAPES[model]
    return [
        weights.tensor_type(tensor, "Q4_K_M", shape) for tensor in shape.tensors() if f".{part}" in f".{tensor.name}"
    ]


def test_mixed_quantization_matches_llama_cpp_layer_by_layer() -> None:
    finer = [0, 1, 4, 7, 10, 13, 14, 15]
    mixed = [Type.Q6_K if layer in finer else Type.Q4_K for layer in range(16)]
    assert tensor_types("llama-1b", "attn_v.weight") == tensor_types("llama-1b", "ffn_down.weight") == mixed
    assert set(tensor_types("llama-1b", "attn_q.") + tensor_types("llama-1b", "ffn_up.")) == {Type.Q4_K}
    assert tensor_types("llama-1b", "token_embd") == tensor_types("llama-8b", "output.weight") == [Type.Q6_K]
    assert tensor_types("llama-8b", "token_embd") == [Type.Q4_K]
    # Q4_K and Q6_K need rows with a multiple of 256 weights. 4864 is a multiple of 256, but 896 is not, so other types
    # replace Q4_K and Q6_K there.
    assert set(tensor_types("llama-0.5b", "attn_v.weight")) == {Type.Q5_0, Type.Q8_0}
    assert set(tensor_types("llama-0.5b", "ffn_down.weight")) == {Type.Q4_K, Type.Q6_K}
    assert tensor_types("llama-0.5b", "token_embd") == [Type.Q8_0]
    assert set(tensor_types("llama-0.5b", "attn_norm")) | set(tensor_types("llama-0.5b", "attn_q.bias")) == {Type.F32}


def test_bytes_per_token_exclude_an_untied_embedding_table() -> None:
    tied, untied = SHAPES["llama-1b"], SHAPES["llama-8b"]
    assert weights.bytes_per_token("Q8_0", tied) == gguf_files.file_bytes(tied, "Q8_0")
    table, row = 128256 * 4096 // 32 * 34, 4096 // 32 * 34
    assert weights.bytes_per_token("Q8_0", untied) == gguf_files.file_bytes(untied, "Q8_0") - table + row


@pytest.mark.parametrize("kind", KINDS)
def test_file_reads_back_with_the_right_weight_deviation(kind: Any, tmp_path: Path) -> None:
    path = write_model(tmp_path, kind)
    gguf_files.require_matching_file(path, SMALLEST, kind)
    reader = gguf.GGUFReader(path)
    values_by_name = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    assert {tensor.name: tensor.shape for tensor in SMALLEST.tensors()} == {
        name: values.shape for name, values in values_by_name.items()
    }
    for name, values in values_by_name.items():
        if values.ndim == 2:
            assert values.std() == pytest.approx(weights.DEVIATION, rel=0.1), name
            assert abs(values.mean()) < 0.1 * weights.DEVIATION, name
            assert len(np.unique(values, axis=0)) == len(values), f"{name}: rows are distinct"
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == SMALLEST.vocabulary
    first = path.read_bytes()
    assert write_model(tmp_path, kind).read_bytes() == first


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_transformers_gguf_reader_gets_the_same_weights(architecture: Any, tmp_path: Path) -> None:
    """The reader in transformers checks our row order for queries and keys independently."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    shape = replace(SMALLEST, architecture=architecture, scaling=None)
    path = write_model(tmp_path, "Q4_K_M", shape)
    ours = transformers_reference.load_network(path, shape, torch.float32)
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=ours)["tensors"]
    state = ours.state_dict()
    assert len(theirs) == len(state) - 1, "the output layer is the embedding table"
    for name, values in theirs.items():
        assert torch.equal(state[name], values.float()), name


def test_rotary_frequencies_are_scaled_as_in_transformers() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for model in ("llama-1b", "llama-8b"):
        shape = SHAPES[model]
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](
            transformers_reference.model_config(shape), device=torch.device("cpu")
        )
        unscaled = shape.rope_base ** -(np.arange(0, shape.head_width, 2) / shape.head_width)
        np.testing.assert_allclose(unscaled / weights.rope_factors(shape), scaled.numpy(), rtol=1e-5)


def test_flop_formula_agrees_with_torchs_counter(tmp_path: Path) -> None:
    network = transformers_reference.load_network(write_model(tmp_path, "F16"), SMALLEST, torch.float32)
    prompt = runtimes.random_prompt(24)
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        transformers_reference.next_logits(network, prompt)
    # Torch's counter counts attention between all pairs of tokens, but a causal kernel skips pairs with a later token.
    skipped_pairs = 24 * 24 - 24 * 25 / 2
    counted = counter.get_total_flops() - 4 * SMALLEST.layers * SMALLEST.heads * SMALLEST.head_width * skipped_pairs
    assert counted == SMALLEST.flop(24)
    assert SMALLEST.flop(24) - SMALLEST.flop(23) == pytest.approx(
        SMALLEST.flop(1, 23) - 2 * SMALLEST.vocabulary * SMALLEST.width
    )


def test_full_disk_is_reported_before_writing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3e9))
    with pytest.raises(HarnessError, match=rf"{scratch} has 3.0 GB free.* needs 5.4 GB.*{gguf_files.FOLDER}.*TMPDIR"):
        gguf_files.model_file("llama-8b", SHAPES["llama-8b"], "Q4_K_M")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("kept", [True, False])
def test_disk_that_fills_up_leaves_no_file(kept: bool, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kept:
        monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    tensor_values, calls = weights.tensor_values, iter(range(100))

    def run_out_of_space(*args: Any) -> Any:
        if next(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return tensor_values(*args)

    monkeypatch.setattr(weights, "tensor_values", run_out_of_space)
    with pytest.raises(HarnessError, match=f"cannot be written to {scratch}: No space left"):
        gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    assert not list(scratch.iterdir())


def test_abandoned_files_are_removed_but_not_locked_files(scratch: Path) -> None:
    abandoned, locked = scratch / "study-model-a.gguf", scratch / "study-model-b.gguf"
    abandoned.write_bytes(b"GGUF")
    locked.write_bytes(b"GGUF")
    lock = acquire_lock(locked)
    assert lock is not None
    try:
        path = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    finally:
        os.close(lock)
    assert set(scratch.iterdir()) == {locked, path}
    assert path == gguf_files.model_file("tiny", SMALLEST, "Q8_0")


def test_kept_file_is_reused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch / "kept"))
    path = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    written_ns = path.stat().st_mtime_ns
    assert gguf_files.model_file("tiny", SMALLEST, "Q8_0") == path
    assert path.stat().st_mtime_ns == written_ns


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: b"", id="empty"),
        pytest.param(lambda content: content[:40], id="cut in the header"),
        pytest.param(lambda content: content[: len(content) // 2], id="cut in the weights"),
        pytest.param(lambda content: content[:-100], id="cut at the end"),
        pytest.param(lambda content: content[:4] + b"\xff" * 4 + content[8:], id="another version"),
        pytest.param(lambda content: content[:8] + b"\xff" * 16 + content[24:], id="numbers of tensors and keys"),
        pytest.param(lambda content: content[:24] + b"\xff" * 8 + content[32:], id="a length of a key"),
    ],
)
def test_damaged_file_gives_a_clear_error(damage: Any, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    path = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(HarnessError, match=rf"{path} is not a complete GGUF file .*: delete it"):
        gguf_files.model_file("tiny", SMALLEST, "Q8_0")


def test_file_with_another_model_is_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    gguf_files.model_file("tiny", SMALLEST, "Q8_0").rename(scratch / "study-model-tiny-F16-v1.gguf")
    with pytest.raises(HarnessError, match="a different model than its name says: delete it"):
        gguf_files.model_file("tiny", SMALLEST, "F16")


# The module of each runtime, and the formats that the runtime reads.
READABLE = {
    "llama-cpp-python": ("llama_cpp", KINDS),
    "xllamacpp": ("xllamacpp", KINDS),
    "openvino-genai": ("openvino_genai", ["Q8_0", "F16"]),
    "transformers": ("transformers", ["F16", "BF16"]),
}


def cpu_flags() -> str:
    """Return Linux's description of the processors, with their instruction sets; '' on other systems."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8") if path.is_file() else ""


@pytest.mark.parametrize(("backend", "kind"), [(name, kind) for name, (_, kinds) in READABLE.items() for kind in kinds])
def test_runtime_reads_prompts_and_writes_tokens_rightly(backend: str, kind: str) -> None:
    pytest.importorskip(READABLE[backend][0])
    if (backend, kind) == ("openvino-genai", "F16") and "amx_tile" in cpu_flags():
        pytest.skip("OpenVINO GenAI divides by zero with so small a model in F16 on a CPU with matrix units (AMX)")
    for phase in ("prompt", "decode"):
        work = build_work("language-models", backend=backend, format=kind, phase=phase)
        run_once(work)
        assert 0 < check_error(work) <= token_check.TOLERANCE


# Stand-in for llama.cpp's library that loads any file.
LLAMA_CPP: dict[str, Any] = {
    "llama_supports_gpu_offload": lambda: True,
    "llama_log_callback": lambda call: call,
    "llama_log_set": lambda *_: None,
    "llama_backend_init": lambda: None,
    "llama_model_default_params": SimpleNamespace,
    "llama_model_load_from_file": lambda *_: "model",
    "llama_context_default_params": SimpleNamespace,
    "llama_init_from_model": lambda *_: "context",
}


@pytest.mark.parametrize(("device", "layers", "gpu"), [("cuda:1", 999, 1), ("cuda", 999, 0), ("cpu", 0, 0)])
def test_llama_cpp_puts_all_layers_on_one_gpu_or_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, device: str, layers: int, gpu: int
) -> None:
    model, context = SimpleNamespace(), SimpleNamespace()
    settings = {"llama_model_default_params": lambda: model, "llama_context_default_params": lambda: context}
    library = {**LLAMA_CPP, **settings}
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(**library))
    target: Any = SimpleNamespace(kind="cpu" if device == "cpu" else "gpu", name=device)
    runtimes.LlamaCppPython(Path("made.gguf"), SMALLEST, target, threads=3, context=64)
    # Split mode 0 keeps the model on the main GPU.
    assert (model.n_gpu_layers, model.main_gpu, model.split_mode) == (layers, gpu, 0)
    assert (context.n_ctx, context.n_batch, context.n_threads) == (64, 64, 3)
    assert context.op_offload == (device != "cpu")


def test_load_failure_in_llama_cpp_is_unsupported_with_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    log_callbacks: list[Any] = []

    def load(*_: Any) -> None:
        for level, line in ((2, b"loaded meta data"), (4, b"tensor 'output' has no data \n"), (4, b"failed to load")):
            log_callbacks[0](level, line, None)

    library = {**LLAMA_CPP, "llama_log_callback": log_callbacks.append, "llama_model_load_from_file": load}
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(**library))
    with pytest.raises(Unsupported) as refusal:
        runtimes.LlamaCppPython(Path("made.gguf"), SMALLEST, CPU, threads=1, context=64)
    message = "llama.cpp does not load made.gguf: tensor 'output' has no data failed to load"
    assert str(refusal.value) == message


def test_captured_token_is_right() -> None:
    work = build_work("language-models", GPU, backend="transformers-graph", phase="decode")
    run_once(work)
    run_once(work)
    assert passes_check(work)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda values: values * 1.1, id="scaled by a tenth"),
        pytest.param(lambda values: np.roll(values, 1), id="off by a token"),
        pytest.param(lambda values: np.full_like(values, values.mean()), id="all equal"),
        pytest.param(lambda values: np.where(np.arange(len(values)) == 7, np.nan, values), id="one nan"),
    ],
)
def test_spoilt_probabilities_fail_the_check(spoil: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = runtimes.Transformers.next_tokens

    def next_tokens(self: Any, prompt: Any) -> Any:
        ids, values = correct(self, prompt)
        return ids, spoil(values)

    assert passes_check(build_work("language-models"))
    monkeypatch.setattr(runtimes.Transformers, "next_tokens", next_tokens)
    assert not passes_check(build_work("language-models"))


def test_decoding_starts_from_the_given_prompt() -> None:
    """The first new token's probabilities depend only on its prompt, even if another prompt was decoded before."""
    runtime = runtimes.Transformers(gguf_files.model_file("tiny", SMALLEST, "F16"), SMALLEST, CPU, 1, 32)
    first, second = runtimes.random_prompt(12), runtimes.random_prompt(12)
    expected = [runtime.next_tokens(prompt)[1] for prompt in (first, second)]
    for prompt, exact in zip((first, second), expected, strict=True):
        for _ in range(3):
            runtime.decode(prompt, 1)
            decoded = runtimes.log_probabilities(runtime.last[0].double().numpy())
            np.testing.assert_allclose(decoded, exact, atol=0.02)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_samples_are_seconds_per_prompt_and_per_token() -> None:
    work = build_work("language-models", phase="decode")
    assert (work.per, work.flop) == (language_models.RUN, TINY.flop(1, 16))
    assert work.bytes == weights.bytes_per_token("BF16", TINY) + TINY.cache_bytes(16)
    assert build_work("language-models", phase="prompt").flop == TINY.flop(16)
    assert sample_metrics(answer_point("language-models")) == {"time"}


UNSUPPORTED: list[tuple[Device, dict[str, Any], str]] = [
    (CPU, {"tokens": 1}, "2 to 504"),
    (CPU, {"tokens": 505}, "2 to 504"),
    (CPU, {"format": "Q8_0"}, "use a file in F16 or BF16"),
    (CPU, {"format": "Q4_K_M"}, "use a file in F16 or BF16"),
    (CPU, {"backend": "transformers-graph"}, "no graphs"),
    (GPU, {"backend": "xllamacpp"}, "does not run on"),
    (GPU, {"backend": "openvino-genai"}, "does not run on"),
    (CPU, {"backend": "llama-bench"}, "llama-bench is not on PATH: install llama.cpp"),
]


@pytest.mark.parametrize(("device", "changed", "reason"), UNSUPPORTED)
def test_unsupported_points_give_a_reason(
    device: Device, changed: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unsupported, match=reason):
        work = build_work("language-models", device, **changed)
        run_once(work)
        observe(work)


def install_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int = 0) -> Path:
    """Put a stand-in for llama-bench on PATH; return the file to which the stand-in writes its arguments."""
    program = folder / "llama-bench"
    lines = (
        f"printf '%s ' \"$@\" > '{folder}/arguments'\ncat <<'END'\n{output}\nEND\necho 'last word' >&2\nexit {code}\n"
    )
    program.write_text(f"#!/bin/sh\n{lines}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "arguments"


TIMES = {"backends": "CPU", "samples_ns": [80_000_000, 88_000_000], "n_gen": 8}


def test_llama_bench_gets_the_right_options_and_times_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = install_bench(tmp_path, monkeypatch, json.dumps([TIMES]))
    times = observe(build_work("language-models", backend="llama-bench", phase="decode", threads=2))
    assert times == {"time": pytest.approx([0.01, 0.011])}
    assert "-ngl 0" in (words := arguments.read_text()) and "-dev none -t 2 -p 0 -n 8 -d 16" in words
    times = observe(build_work("language-models", backend="llama-bench", phase="prompt", threads=2))
    assert times == {"time": pytest.approx([0.08, 0.088])}
    assert "-p 16 -n 0" in arguments.read_text()


@pytest.mark.parametrize("output", ["", "{}", "[]", "[{}]", '[{"samples_ns": 3, "backends": "CPU"}]', "no JSON"])
def test_output_without_times_is_an_error(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_bench(tmp_path, monkeypatch, output)
    with pytest.raises(RuntimeError, match="too old or too new"):
        llama_bench.test_seconds(tmp_path, CPU, 1, 8, 0)


def test_llama_bench_failure_reports_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_bench(tmp_path, monkeypatch, "", code=3)
    with pytest.raises(RuntimeError, match="exit code 3: last word"):
        llama_bench.test_seconds(tmp_path, CPU, 1, 8, 0)


def test_cpu_build_of_llama_bench_is_unsupported_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = install_bench(tmp_path, monkeypatch, json.dumps([TIMES]))
    with pytest.raises(Unsupported, match=r"supports only CPU.*-DGGML_CUDA=ON"):
        llama_bench.test_seconds(tmp_path, GPU, 0, 8, 0)
    assert "-ngl 999" in arguments.read_text()
    install_bench(tmp_path, monkeypatch, json.dumps([{**TIMES, "backends": "CUDA,BLAS"}]))
    assert llama_bench.test_seconds(tmp_path, GPU, 0, 8, 0) == pytest.approx([0.08, 0.088])
