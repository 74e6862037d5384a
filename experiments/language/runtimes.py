"""Language model runtimes inside this process; each loads a GGUF file, prefills prompts and decodes tokens."""

from __future__ import annotations

import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.devices import Device
from experiments.language.shapes import Shape
from experiments.workload import Unsupported

# Token id of the letter "a" in the files from `gguf_files`.
LETTER = ord("a")
Ids = NDArray[np.int64]
# Token ids of the candidates for the next token, and their log probabilities.
NextTokens = tuple[Ids, NDArray[np.float64]]


class Runtime(ABC):
    """Model that a library has loaded from a GGUF file.

    threads: number of CPU threads. context: context length in tokens. Raises ModuleNotFoundError if the library is not
    installed, Unsupported if the library cannot load the file or does not support the device.
    """

    def __init__(self, path: Path, shape: Shape, device: Device, threads: int, context: int) -> None:
        self.shape, self.device, self.threads, self.context = shape, device, threads, context
        self.load(path)

    @abstractmethod
    def load(self, path: Path) -> None:
        """Load the model from a GGUF file."""

    @abstractmethod
    def prefill(self, prompt: Ids) -> None:
        """Process all tokens of a prompt, without cached tokens, to predict the next token."""

    @abstractmethod
    def decode(self, prompt: Ids, count: int) -> None:
        """Decode `count` tokens one by one, where the first input is the prompt's last token.

        The prompt's earlier tokens come from the cache if the previous call had the same prompt.
        """

    @abstractmethod
    def next_tokens(self, prompt: Ids) -> NextTokens:
        """Return candidates for the token after the prompt; their number depends on the library."""

    @abstractmethod
    def close(self) -> None:
        """Free the model's memory."""


class LlamaCppPython(Runtime):
    """Runtime llama.cpp, built for this machine by the package llama-cpp-python."""

    def load(self, path: Path) -> None:
        import llama_cpp

        if self.device.kind == "gpu" and not llama_cpp.llama_supports_gpu_offload():
            raise Unsupported(
                "llama-cpp-python was built for CPUs only: CMAKE_ARGS=-DGGML_CUDA=on pip install --force-reinstall "
                "--no-binary llama-cpp-python llama-cpp-python"
            )
        self.api: Any = llama_cpp
        self.errors: list[str] = []
        # Keep a reference to the callback, which the library calls later.
        self.log = llama_cpp.llama_log_callback(self._log_error)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        settings = llama_cpp.llama_model_default_params()
        settings.n_gpu_layers = 999 if self.device.kind == "gpu" else 0
        settings.main_gpu, settings.split_mode = int(self.device.name.partition(":")[2] or 0), 0
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), settings)
        if not self.model:
            raise Unsupported(f"llama.cpp does not load {path}: {' '.join(self.errors)[-200:]}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = self.context
        settings.n_threads = settings.n_threads_batch = self.threads
        # For a CPU, forbid use of a GPU: GPU builds would compute long prompts on it even if all layers are on the CPU.
        settings.op_offload = self.device.kind == "gpu"
        self.llama_context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.llama_context:
            raise MemoryError("llama.cpp cannot allocate a context")
        self.cached: Ids = np.empty(0, np.int64)

    def _log_error(self, level: int, text: bytes, _: object) -> None:
        """Store the error messages (level 4) of ggml, llama.cpp's tensor library, and ignore all others."""
        if level == 4:
            self.errors.append(text.decode(errors="replace").strip())

    def _compute(self, ids: Sequence[int]) -> None:
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        if code := self.api.llama_decode(self.llama_context, self.api.llama_batch_get_one(tokens, len(ids))):
            raise RuntimeError(f"llama_decode returned {code}")

    def _truncate(self, start: int) -> None:
        self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.llama_context), 0, start, -1)

    def prefill(self, prompt: Ids) -> None:
        self._truncate(0)
        self._compute(prompt.tolist())
        self.cached = prompt

    def decode(self, prompt: Ids, count: int) -> None:
        if not np.array_equal(prompt, self.cached):
            self.prefill(prompt)
        self._truncate(len(prompt) - 1)
        # Pass the prompt's last token in every step, because the time does not depend on which token is decoded.
        for token in np.resize(prompt[-1:], count).tolist():
            self._compute([token])

    def next_tokens(self, prompt: Ids) -> NextTokens:
        self.prefill(prompt)
        count = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))
        values = np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.llama_context, -1), (count,)).astype(
            np.float64
        )
        return np.arange(count), log_probabilities(values)

    def close(self) -> None:
        self.api.llama_free(self.llama_context)
        self.api.llama_model_free(self.model)


class XLlamaCpp(Runtime):
    """Runtime llama.cpp, built for any processor with AVX2 by the package xllamacpp.

    The requests go to llama.cpp's server in this process, without HTTP.
    """

    # Candidates for the next token that a request asks for.
    MOST = 2000

    def load(self, path: Path) -> None:
        _require_cpu(self.device, "xllamacpp")
        import xllamacpp

        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = self.context, 1, 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = self.threads
        settings.cache_ram_mib, settings.warmup = 0, False
        try:
            self.server: Any = xllamacpp.Server(settings)
        except RuntimeError as refusal:
            raise Unsupported(f"llama.cpp does not load {path}: {refusal}") from None

    def _complete(self, prompt: Ids, count: int, **more: Any) -> Any:
        request = {"prompt": prompt.tolist(), "n_predict": count, "ignore_eos": True, "temperature": 0.0, **more}
        answer = self.server.handle_completions(request)
        if "choices" not in answer:
            raise RuntimeError(f"xllamacpp answered {str(answer)[:200]}")
        return answer

    def prefill(self, prompt: Ids) -> None:
        self._complete(prompt, 1, cache_prompt=False)

    def decode(self, prompt: Ids, count: int) -> None:
        self._complete(prompt, count, cache_prompt=True)

    def next_tokens(self, prompt: Ids) -> NextTokens:
        # Use a bias to make the server decode LETTER, because it returns no probabilities if it decodes a token that is
        # only part of a character. The returned probabilities do not include the bias.
        answer = self._complete(prompt, 1, cache_prompt=False, n_probs=self.MOST, logit_bias=[[LETTER, 1e3]])
        likely = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return np.array([token["id"] for token in likely]), np.array([token["logprob"] for token in likely])

    def close(self) -> None:
        del self.server


class OpenVinoGenAi(Runtime):
    """Runtime OpenVINO, by openvino-genai, which reads GGUF files and chooses the number formats itself."""

    def load(self, path: Path) -> None:
        _require_cpu(self.device, "openvino-genai")
        import openvino
        import openvino_genai

        self.api: Any = openvino_genai
        self.tensor: Any = openvino.Tensor
        settings = openvino_genai.SchedulerConfig()
        settings.enable_prefix_caching, settings.cache_size = True, 1
        try:
            self.pipeline: Any = openvino_genai.LLMPipeline(
                str(path), "CPU", scheduler_config=settings, INFERENCE_NUM_THREADS=self.threads
            )
        except RuntimeError as refusal:
            raise Unsupported(f"OpenVINO does not load {path}: {str(refusal).splitlines()[-1]}") from None

    def _generate(self, prompt: Ids, count: int) -> Any:
        config = self.api.GenerationConfig(
            max_new_tokens=count, ignore_eos=True, do_sample=False, logprobs=1 if count == 1 else 0
        )
        ids = prompt[None]
        return self.pipeline.generate(
            self.api.TokenizedInputs(self.tensor(ids), self.tensor(np.ones_like(ids))), config
        )

    def prefill(self, prompt: Ids) -> None:
        self._generate(prompt, 1)

    def decode(self, prompt: Ids, count: int) -> None:
        self._generate(prompt, count)

    def next_tokens(self, prompt: Ids) -> NextTokens:
        answer = self._generate(prompt, 1)
        return np.array(answer.tokens[0]), np.array(answer.scores)

    def close(self) -> None:
        del self.pipeline


class Transformers(Runtime):
    """Runtime PyTorch: a Transformers network with a static cache, in the file's 16-bit format."""

    captured = False

    def load(self, path: Path) -> None:
        import torch

        from experiments.language.transformers_reference import load_network
        from experiments.language.weights import float_format
        from experiments.models.text_generation import CachedNetwork

        dtype = self.device.torch_dtype(float_format(path))
        self.torch: Any = torch
        self.network = CachedNetwork(load_network(path, self.shape, dtype, self.device.name), self.context)
        self.cached: Ids = np.empty(0, np.int64)
        self.token = torch.zeros(1, 1, dtype=torch.int64, device=self.device.name)
        self.replays: dict[int, Any] = {}

    def prefill(self, prompt: Ids) -> None:
        self.last = self._prefill(prompt)

    def _prefill(self, prompt: Ids) -> Any:
        self.network.truncate(0)
        self.cached = prompt
        return self.network.read(self.torch.from_numpy(prompt)[None].to(self.device.name))[0]

    def decode(self, prompt: Ids, count: int) -> None:
        if not np.array_equal(prompt, self.cached):
            self.prefill(prompt)
            self.token.fill_(int(prompt[-1]))
            self.network.truncate(len(prompt) - 1)
        if not self.captured:
            self._decode(count)
            return
        if count not in self.replays:
            self.replays[count] = self.device.graph([lambda: self._decode(count)])
        self.replays[count]()

    def _decode(self, count: int) -> None:
        """Decode `count` tokens one by one, and then drop them from the cache."""
        start = self.network.length
        for _ in range(count):
            self.last = self.network.read(self.token)
        self.network.truncate(start)

    def next_tokens(self, prompt: Ids) -> NextTokens:
        values = self._prefill(prompt).cpu().double().numpy()
        return np.arange(len(values)), log_probabilities(values)

    def close(self) -> None:
        del self.network, self.replays


class CapturedTransformers(Transformers):
    """Runtime like `Transformers`, but all tokens of a `decode` call are decoded in one captured GPU graph."""

    captured = True


def random_prompt(tokens: int) -> Ids:
    """Draw a prompt of `tokens` random ids from 0 to 255, which stand for bytes in the files from `gguf_files`."""
    return np.random.default_rng().integers(0, 256, tokens)


def _require_cpu(device: Device, backend: str) -> None:
    """Raise Unsupported unless the device is a CPU."""
    if device.kind != "cpu":
        raise device.unsupported_backend(backend)


def log_probabilities(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert logits to log probabilities."""
    shifted = logits - logits.max()
    logarithms: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logarithms


RUNTIMES: dict[str, type[Runtime]] = {
    "llama-cpp-python": LlamaCppPython,
    "xllamacpp": XLlamaCpp,
    "openvino-genai": OpenVinoGenAi,
    "transformers": Transformers,
    "transformers-graph": CapturedTransformers,
}
