"""Kernels in WGSL through wgpu and Vulkan, without CUDA.

WebGPU runs untrusted programs, so its compiler adds checks. It limits each loop's iterations and clamps indices into
workgroup memory. It clamps indices into buffers only if the driver does not check them. `checked=False` drops these
checks, none of which exist in native Vulkan. Even then, the driver checks buffer accesses, because wgpu requests this,
and workgroup memory is cleared before a workgroup starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.devices import Device
from experiments.workload import Unsupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Buffer size in bytes that `_match_by_memory` uses to find a device's adapter: the device's free memory drops by about
# this size if the buffer is on the device.
TELLING_BYTES = 1 << 28
# Kernel launches per submission to the GPU's queue.
TOGETHER = 16
_LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size")
_DRIVER = "containers have NVIDIA's with NVIDIA_DRIVER_CAPABILITIES=all; VK_DRIVER_FILES can name its nvidia_icd.json"


def adapters() -> tuple[Any, ...]:
    """Return this machine's Vulkan adapters, software included. Raises Unsupported, with the reason, if it has none."""
    available = _enumerate_adapters()
    if available:
        return available
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        raise Unsupported("no Vulkan adapter: libvulkan.so.1 is missing (apt install libvulkan1)") from None
    raise Unsupported(f"no Vulkan adapter: the loader finds no driver ({_DRIVER})")


@cache
def _enumerate_adapters() -> tuple[Any, ...]:
    """Return Vulkan's adapters. The process has one wgpu instance, which loads no interface except Vulkan."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native import extras
    except ImportError:
        raise Unsupported("wgpu is not installed: pip install wgpu") from None
    except (OSError, RuntimeError) as refusal:
        raise Unsupported(f"wgpu does not load: {str(refusal).splitlines()[0]}") from None
    extras.set_instance_extras(backends=["Vulkan"])
    return tuple(wgpu.gpu.enumerate_adapters_sync())


@cache
def open_vulkan(device: Device) -> Vulkan:
    """Open the Vulkan adapter for the chip of `device`, or the software adapter if `device` is a CPU.

    Raises Unsupported if Vulkan has no such adapter.
    """
    available = adapters()
    if device.kind == "cpu":
        software = [adapter for adapter in available if adapter.info["adapter_type"] == "CPU"]
        if not software:
            raise Unsupported("no Vulkan adapter for a CPU (apt install mesa-vulkan-drivers)")
        return Vulkan(software[0])
    name = device.describe().get("name")
    hardware = [adapter for adapter in available if adapter.info["adapter_type"] != "CPU"]
    same_name = [adapter for adapter in hardware if adapter.info["device"] == name]
    if len(same_name) == 1:
        return Vulkan(same_name[0])
    opened = _match_by_memory(same_name or hardware, device)
    if opened is None:
        names = ", ".join(str(adapter.info["device"]) for adapter in available)
        raise Unsupported(f"Vulkan does not show {name}, only {names} ({_DRIVER})")
    return opened


def _match_by_memory(candidates: Sequence[Any], device: Device) -> Vulkan | None:
    """Open the adapter on which a test buffer reduces the free memory of `device`; return None if there is none.

    The name does not identify the adapter if the machine has several GPUs of the same model.
    """
    for candidate in candidates:
        opened = Vulkan(candidate)
        free = device.free_bytes()
        buffer = opened.empty_buffer(TELLING_BYTES // 4)
        taken = free - device.free_bytes()
        buffer.destroy()
        if taken >= TELLING_BYTES // 2:
            return opened
    return None


class Vulkan:
    """Opened Vulkan adapter, with methods to make and read float32 buffers.

    wgpu raises an error in the call that causes the error.
    """

    def __init__(self, adapter: Any) -> None:
        self.name = str(adapter.info["device"])
        self.device = adapter.request_device_sync(required_limits={name: adapter.limits[name] for name in _LIMITS})
        self._largest_buffer = min(self.device.limits[name] for name in _LIMITS)

    def buffer(self, data: NDArray[np.float32]) -> Any:
        """Copy `data` to a buffer for kernels to read. Raises Unsupported if `data` is too large."""
        import wgpu

        self._require_fit(data.nbytes)
        return self.device.create_buffer_with_data(data=data, usage=wgpu.BufferUsage.STORAGE)

    def empty_buffer(self, length: int) -> Any:
        """Return a buffer with `length` zeros, for kernels to write. Raises Unsupported if `length` is too large."""
        import wgpu

        self._require_fit(4 * length)
        return self.device.create_buffer(size=4 * length, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)

    def _require_fit(self, size: int) -> None:
        if size > self._largest_buffer:
            raise Unsupported(
                f"{size / 2**20:.0f} MiB in one buffer, {self._largest_buffer / 2**20:.0f} MiB bind on {self.name}"
            )

    def read(self, buffer: Any) -> NDArray[np.float32]:
        """Wait until all submitted work is done, and return a buffer's numbers."""
        return np.frombuffer(self.device.queue.read_buffer(buffer), np.float32)


class Kernel:
    """Kernel from a WGSL text, whose arguments are the buffers a, b and out, and three integers `sizes`."""

    def __init__(self, vulkan: Vulkan, source: str, name: str, sizes: Sequence[int], checked: bool = True) -> None:
        import wgpu

        self._device = vulkan.device
        module = (self._device.create_shader_module if checked else self._unchecked_module)(code=source)
        self._pipeline = self._device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": name}
        )
        self._sizes = self._device.create_buffer_with_data(
            data=np.array([*sizes, 0], np.uint32), usage=wgpu.BufferUsage.UNIFORM
        )

    def _unchecked_module(self, code: str) -> Any:
        """Create a shader module without run-time checks, by a C function that wgpu's Python interface lacks."""
        from wgpu.backends.wgpu_native import ffi, lib
        from wgpu.backends.wgpu_native._api import GPUShaderModule, libf

        text = code.encode()
        text_buffer = ffi.new("char[]", text)
        source, described = ffi.new("WGPUShaderSourceWGSL *"), ffi.new("WGPUShaderModuleDescriptor *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text_buffer, len(text)
        described.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        internal, none = self._device._internal, lib.WGPUShaderRuntimeChecks_None
        return GPUShaderModule("", libf.wgpuDeviceCreateShaderModuleTrusted(internal, described, none), self._device)

    def bind(self, *buffers: Any) -> Any:
        """Return a bind group with the kernel's buffers a, b and out."""
        arguments = enumerate((*buffers, self._sizes))
        entries = [{"binding": number, "resource": {"buffer": buffer}} for number, buffer in arguments]
        return self._device.create_bind_group(layout=self._pipeline.get_bind_group_layout(0), entries=entries)

    def batch(self, bound: Sequence[Any], grid: tuple[int, int], count: int) -> Callable[[], None]:
        """Return a callable that launches the kernel `count` times and waits for the last launch to end.

        bound: bind groups, which the launches use in rotation. Launches that write the same buffer run one after the
        other. Each submission holds TOGETHER launches. While the GPU runs them, the host encodes the next submission.
        """

        def call() -> None:
            turns = cycle(bound)
            for done in range(0, count, TOGETHER):
                encoder = self._device.create_command_encoder()
                commands = encoder.begin_compute_pass()
                commands.set_pipeline(self._pipeline)
                for binding in islice(turns, min(TOGETHER, count - done)):
                    commands.set_bind_group(0, binding)
                    commands.dispatch_workgroups(*grid)
                commands.end()
                self._device.queue.submit([encoder.finish()])
            # Call a private method, because the public method that waits for a queue fails in wgpu 0.32.0.
            self._device._poll_wait()

        return call
