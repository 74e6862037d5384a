"""Files of language models, and the runtimes that read them."""

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
    """Files go to a folder of the test, and each test writes its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(gguf_files.FOLDER, raising=False)
    # A prime number, as that of a study.
    monkeypatch.setattr(weights, "POOL_BLOCKS", 8191)
    for cached in (gguf_files._temporary_file, token_check._reference):
        cached.cache_clear()
    yield tmp_path
    while language_models._loaded:
        language_models._loaded.popitem()[1].close()
    for cached in (gguf_files._temporary_file, token_check._reference):
        cached.cache_clear()


def written(folder: Path, kind: Any, shape: Shape = SMALLEST) -> Path:
    gguf_files.write_file(folder / "made.gguf", shape, kind)
    return folder / "made.gguf"


def test_shapes_have_the_published_numbers_of_parameters() -> None:
    published = {"0.5b": 494_032_768, "1b": 1_235_814_400, "3b": 3_212_749_824, "8b": 8_030_261_248}
    assert {model: SHAPES[f"llama-{model}"].parameters for model in published} == published


@pytest.mark.parametrize(
    ("model", "kind", "published"),
    [("1b", "Q4_K_M", 807_694_464), ("8b", "Q4_K_M", 4_920_739_232), ("8b", "Q8_0", 8_540_775_840)],
)
def test_files_have_the_size_of_published_ones_without_their_vocabulary(model: str, kind: Any, published: int) -> None:
    """Sizes of the files of these names on huggingface.co/bartowski; Llama 3's vocabulary takes 7.8 MB of each."""
    assert 7.8e6 < published - gguf_files.file_bytes(SHAPES[f"llama-{model}"], kind) < 7.9e6


def test_every_token_of_a_file_has_a_type(scratch: Path) -> None:
    fields = gguf.GGUFReader(written(scratch, "Q8_0")).fields
    assert {len(fields[f"tokenizer.ggml.{name}"].data) for name in ("tokens", "token_type")} == {SMALLEST.vocabulary}


def types(model: str, part: str) -> list[Type]:
    shape = SHAPES[model]
    return [
        weights.tensor_type(tensor, "Q4_K_M", shape) for tensor in shape.tensors() if f".{part}" in f".{tensor.name}"
    ]


def test_a_mixture_has_llama_cpps_types_layer_by_layer() -> None:
    finer = [0, 1, 4, 7, 10, 13, 14, 15]
    mixed = [Type.Q6_K if layer in finer else Type.Q4_K for layer in range(16)]
    assert types("llama-1b", "attn_v.weight") == types("llama-1b", "ffn_down.weight") == mixed
    assert set(types("llama-1b", "attn_q.") + types("llama-1b", "ffn_up.")) == {Type.Q4_K}
    assert types("llama-1b", "token_embd") == types("llama-8b", "output.weight") == [Type.Q6_K]
    assert types("llama-8b", "token_embd") == [Type.Q4_K]
    # Rows of 896 are no multiple of 256, those of 4864 are.
    assert set(types("llama-0.5b", "attn_v.weight")) == {Type.Q5_0, Type.Q8_0}
    assert set(types("llama-0.5b", "ffn_down.weight")) == {Type.Q4_K, Type.Q6_K}
    assert types("llama-0.5b", "token_embd") == [Type.Q8_0]
    assert set(types("llama-0.5b", "attn_norm")) | set(types("llama-0.5b", "attn_q.bias")) == {Type.F32}


def test_a_token_reads_all_weights_but_an_untied_table() -> None:
    tied, untied = SHAPES["llama-1b"], SHAPES["llama-8b"]
    assert weights.bytes_per_token("Q8_0", tied) == gguf_files.file_bytes(tied, "Q8_0")
    table, row = 128256 * 4096 // 32 * 34, 4096 // 32 * 34
    assert weights.bytes_per_token("Q8_0", untied) == gguf_files.file_bytes(untied, "Q8_0") - table + row


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_reads_back_with_weights_of_the_right_spread(kind: Any, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    gguf_files.require_matching_file(path, SMALLEST, kind)
    reader = gguf.GGUFReader(path)
    held = {tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    assert {tensor.name: tensor.shape for tensor in SMALLEST.tensors()} == {
        name: one.shape for name, one in held.items()
    }
    for name, values in held.items():
        if values.ndim == 2:
            assert values.std() == pytest.approx(weights.DEVIATION, rel=0.1), name
            assert abs(values.mean()) < 0.1 * weights.DEVIATION, name
            assert len(np.unique(values, axis=0)) == len(values), f"{name}: no two rows are equal"
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == SMALLEST.vocabulary
    again = path.read_bytes()
    assert written(tmp_path, kind).read_bytes() == again


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_transformers_own_reader_gets_the_same_weights(architecture: Any, tmp_path: Path) -> None:
    """Its order of the rows of queries and keys is no part of this project."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    shape = replace(SMALLEST, architecture=architecture, scaling=None)
    path = written(tmp_path, "Q4_K_M", shape)
    ours = transformers_reference.load_network(path, shape, torch.float32)
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=ours)["tensors"]
    state = ours.state_dict()
    assert len(theirs) == len(state) - 1, "the output layer is the embedding table"
    for name, values in theirs.items():
        assert torch.equal(state[name], values.float()), name


def test_rotary_frequencies_are_scaled_as_transformers_does() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for model in ("llama-1b", "llama-8b"):
        shape = SHAPES[model]
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](
            transformers_reference.model_config(shape), device=torch.device("cpu")
        )
        plain = shape.rope_base ** -(np.arange(0, shape.head_width, 2) / shape.head_width)
        np.testing.assert_allclose(plain / weights.rope_factors(shape), scaled.numpy(), rtol=1e-5)


def test_operations_by_formula_are_those_that_torch_counts(tmp_path: Path) -> None:
    made = transformers_reference.load_network(written(tmp_path, "F16"), SMALLEST, torch.float32)
    prompt = runtimes.random_prompt(24)
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        transformers_reference.next_logits(made, prompt)
    # Torch counts all pairs of tokens, a causal kernel computes those before each.
    unseen = 24 * 24 - 24 * 25 / 2
    counted = counter.get_total_flops() - 4 * SMALLEST.layers * SMALLEST.heads * SMALLEST.head_width * unseen
    assert counted == SMALLEST.flop(24)
    assert SMALLEST.flop(24) - SMALLEST.flop(23) == pytest.approx(
        SMALLEST.flop(1, 23) - 2 * SMALLEST.vocabulary * SMALLEST.width
    )


def test_a_disk_without_room_is_told_before_anything_is_written(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3e9))
    with pytest.raises(HarnessError, match=rf"{scratch} has 3.0 GB free.* needs 5.4 GB.*{gguf_files.FOLDER}.*TMPDIR"):
        gguf_files.model_file("llama-8b", SHAPES["llama-8b"], "Q4_K_M")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("kept", [True, False])
def test_a_disk_that_fills_up_leaves_no_file(kept: bool, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kept:
        monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    making, calls = weights.tensor_values, iter(range(100))

    def full(*given: Any) -> Any:
        if next(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return making(*given)

    monkeypatch.setattr(weights, "tensor_values", full)
    with pytest.raises(HarnessError, match=f"cannot be written to {scratch}: No space left"):
        gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    assert not list(scratch.iterdir())


def test_what_a_killed_process_left_is_removed_and_what_another_holds_is_not(scratch: Path) -> None:
    left, held = scratch / "study-model-a.gguf", scratch / "study-model-b.gguf"
    left.write_bytes(b"GGUF")
    held.write_bytes(b"GGUF")
    lock = acquire_lock(held)
    assert lock is not None
    try:
        made = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    finally:
        os.close(lock)
    assert set(scratch.iterdir()) == {held, made}
    assert made == gguf_files.model_file("tiny", SMALLEST, "Q8_0")


def test_a_kept_file_is_found_again(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch / "kept"))
    made = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    stamp = made.stat().st_mtime_ns
    assert gguf_files.model_file("tiny", SMALLEST, "Q8_0") == made
    assert made.stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda whole: b"", id="empty"),
        pytest.param(lambda whole: whole[:40], id="cut in the header"),
        pytest.param(lambda whole: whole[: len(whole) // 2], id="cut in the weights"),
        pytest.param(lambda whole: whole[:-100], id="cut at the end"),
        pytest.param(lambda whole: whole[:4] + b"\xff" * 4 + whole[8:], id="another version"),
        pytest.param(lambda whole: whole[:8] + b"\xff" * 16 + whole[24:], id="numbers of tensors and keys"),
        pytest.param(lambda whole: whole[:24] + b"\xff" * 8 + whole[32:], id="a length of a key"),
    ],
)
def test_a_damaged_file_gives_one_clear_error(damage: Any, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    path = gguf_files.model_file("tiny", SMALLEST, "Q8_0")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(HarnessError, match=rf"{path} is not a complete GGUF file .*: delete it"):
        gguf_files.model_file("tiny", SMALLEST, "Q8_0")


def test_a_file_with_another_model_is_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gguf_files.FOLDER, str(scratch))
    gguf_files.model_file("tiny", SMALLEST, "Q8_0").rename(scratch / "study-model-tiny-F16-v1.gguf")
    with pytest.raises(HarnessError, match="a different model than its name says: delete it"):
        gguf_files.model_file("tiny", SMALLEST, "F16")


# Modules of runtimes, and formats that they read.
READ = {
    "llama-cpp-python": ("llama_cpp", KINDS),
    "xllamacpp": ("xllamacpp", KINDS),
    "openvino-genai": ("openvino_genai", ["Q8_0", "F16"]),
    "transformers": ("transformers", ["F16", "BF16"]),
}


@pytest.mark.parametrize(("backend", "kind"), [(name, kind) for name, (_, kinds) in READ.items() for kind in kinds])
def test_a_runtime_reads_and_writes_and_is_right(backend: str, kind: str) -> None:
    pytest.importorskip(READ[backend][0])
    for phase in ("prompt", "decode"):
        made = build_work("language-models", backend=backend, format=kind, phase=phase)
        run_once(made)
        assert 0 < check_error(made) <= token_check.TOLERANCE


# A stand-in for llama.cpp's library that loads anything.
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
def test_llama_cpp_puts_all_layers_on_one_gpu_or_none(
    monkeypatch: pytest.MonkeyPatch, device: str, layers: int, gpu: int
) -> None:
    model, context = SimpleNamespace(), SimpleNamespace()
    settings = {"llama_model_default_params": lambda: model, "llama_context_default_params": lambda: context}
    library = {**LLAMA_CPP, **settings}
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(**library))
    place: Any = SimpleNamespace(kind="cpu" if device == "cpu" else "gpu", name=device)
    runtimes.LlamaCppPython(Path("made.gguf"), SMALLEST, place, threads=3, context=64)
    # A split mode of 0 keeps the model on the main GPU.
    assert (model.n_gpu_layers, model.main_gpu, model.split_mode) == (layers, gpu, 0)
    assert (context.n_ctx, context.n_batch, context.n_threads) == (64, 64, 3)
    assert context.op_offload == (device != "cpu")


def test_a_model_that_llama_cpp_does_not_load_is_refused_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[Any] = []

    def load(*_: Any) -> None:
        for level, line in ((2, b"loaded meta data"), (4, b"tensor 'output' has no data \n"), (4, b"failed to load")):
            noted[0](level, line, None)

    library = {**LLAMA_CPP, "llama_log_callback": noted.append, "llama_model_load_from_file": load}
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(**library))
    with pytest.raises(Unsupported) as refusal:
        runtimes.LlamaCppPython(Path("made.gguf"), SMALLEST, CPU, threads=1, context=64)
    said = "llama.cpp does not load made.gguf: tensor 'output' has no data failed to load"
    assert str(refusal.value) == said


def test_a_captured_token_is_right() -> None:
    made = build_work("language-models", GPU, backend="transformers-graph", phase="decode")
    run_once(made)
    run_once(made)
    assert passes_check(made)


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
    told = runtimes.Transformers.next_tokens

    def next_tokens(self: Any, prompt: Any) -> Any:
        ids, values = told(self, prompt)
        return ids, spoil(values)

    assert passes_check(build_work("language-models"))
    monkeypatch.setattr(runtimes.Transformers, "next_tokens", next_tokens)
    assert not passes_check(build_work("language-models"))


def test_a_token_from_a_cache_of_another_prompt_is_another() -> None:
    """Writing computes from the prompt that it is given: its last token comes out as reading the prompt has it."""
    runtime = runtimes.Transformers(gguf_files.model_file("tiny", SMALLEST, "F16"), SMALLEST, CPU, 1, 32)
    first, second = runtimes.random_prompt(12), runtimes.random_prompt(12)
    expected = [runtime.next_tokens(prompt)[1] for prompt in (first, second)]
    for prompt, exact in zip((first, second), expected, strict=True):
        for _ in range(3):
            runtime.decode(prompt, 1)
            told = runtimes.log_probabilities(runtime.last[0].double().numpy())
            np.testing.assert_allclose(told, exact, atol=0.02)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_the_samples_are_seconds_of_a_prompt_and_of_a_token() -> None:
    made = build_work("language-models", phase="decode")
    assert (made.per, made.flop) == (language_models.RUN, TINY.flop(1, 16))
    assert made.bytes == weights.bytes_per_token("BF16", TINY) + TINY.cache_bytes(16)
    assert build_work("language-models", phase="prompt").flop == TINY.flop(16)
    assert sample_metrics(answer_point("language-models")) == {"time"}


CANNOT: list[tuple[Device, dict[str, Any], str]] = [
    (CPU, {"tokens": 1}, "2 to 504"),
    (CPU, {"tokens": 505}, "2 to 504"),
    (CPU, {"format": "Q8_0"}, "take the file in F16 or BF16"),
    (CPU, {"format": "Q4_K_M"}, "take the file in F16 or BF16"),
    (CPU, {"backend": "transformers-graph"}, "no graphs"),
    (GPU, {"backend": "xllamacpp"}, "does not run on"),
    (GPU, {"backend": "openvino-genai"}, "does not run on"),
    (CPU, {"backend": "llama-bench"}, "llama-bench is not on PATH: install llama.cpp"),
]


@pytest.mark.parametrize(("device", "changed", "reason"), CANNOT)
def test_what_cannot_be_is_told(
    device: Device, changed: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unsupported, match=reason):
        made = build_work("language-models", device, **changed)
        run_once(made)
        observe(made)


def a_bench(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str, code: int = 0) -> Path:
    """A stand-in of llama-bench on PATH, which notes its arguments."""
    program = folder / "llama-bench"
    lines = f"printf '%s ' \"$@\" > '{folder}/asked'\ncat <<'END'\n{says}\nEND\necho 'last word' >&2\nexit {code}\n"
    program.write_text(f"#!/bin/sh\n{lines}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "asked"


TIMES = {"backends": "CPU", "samples_ns": [80_000_000, 88_000_000], "n_gen": 8}


def test_llama_bench_is_asked_for_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = a_bench(tmp_path, monkeypatch, json.dumps([TIMES]))
    found = observe(build_work("language-models", backend="llama-bench", phase="decode", threads=2))
    assert found == {"time": pytest.approx([0.01, 0.011])}
    assert "-ngl 0" in (words := asked.read_text()) and "-dev none -t 2 -p 0 -n 8 -d 16" in words
    found = observe(build_work("language-models", backend="llama-bench", phase="prompt", threads=2))
    assert found == {"time": pytest.approx([0.08, 0.088])}
    assert "-p 16 -n 0" in asked.read_text()


@pytest.mark.parametrize("says", ["", "{}", "[]", "[{}]", '[{"samples_ns": 3, "backends": "CPU"}]', "no JSON"])
def test_words_that_are_no_times_are_an_error(says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_bench(tmp_path, monkeypatch, says)
    with pytest.raises(RuntimeError, match="too old or too new"):
        llama_bench.test_seconds(tmp_path, CPU, 1, 8, 0)


def test_a_failure_of_llama_bench_tells_its_last_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_bench(tmp_path, monkeypatch, "", code=3)
    with pytest.raises(RuntimeError, match="exit code 3: last word"):
        llama_bench.test_seconds(tmp_path, CPU, 1, 8, 0)


def test_a_build_for_cpus_measures_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = a_bench(tmp_path, monkeypatch, json.dumps([TIMES]))
    with pytest.raises(Unsupported, match=r"supports only CPU.*-DGGML_CUDA=ON"):
        llama_bench.test_seconds(tmp_path, GPU, 0, 8, 0)
    assert "-ngl 999" in asked.read_text()
    a_bench(tmp_path, monkeypatch, json.dumps([{**TIMES, "backends": "CUDA,BLAS"}]))
    assert llama_bench.test_seconds(tmp_path, GPU, 0, 8, 0) == pytest.approx([0.08, 0.088])
