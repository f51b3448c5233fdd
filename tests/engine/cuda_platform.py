"""The CUDA platform of vLLM on a machine without a GPU, as far as its configuration goes.

Import it before vLLM. Nothing is computed: `create_engine_config` checks options and makes its choices from the name,
the memory and the compute capability of a device, which `pretend` sets.
"""

import sys
from types import ModuleType
from typing import Any
from unittest.mock import patch

import tests.engine.model_runner_v2  # noqa: F401  (vLLM takes model runner V2 only where it finds Triton)

sys.modules["vllm._C_stable_libtorch"] = ModuleType("vllm._C_stable_libtorch")  # compiled operators for CUDA

import torch  # noqa: E402

GIB = 2**30
DEVICES = {
    "NVIDIA H100 80GB HBM3": (80, (9, 0)),
    "NVIDIA A100-SXM4-80GB": (80, (8, 0)),
    "NVIDIA L4": (23, (8, 9)),
    "NVIDIA B200": (180, (10, 0)),
}
"""GiB of memory and compute capability, by name."""


def pretend(name: str, n_devices: int = 8) -> None:
    """Let vLLM's current platform be CUDA with so many devices of this name from now on."""
    import vllm.platforms

    if type(vllm.platforms._current_platform).__name__ != "Pretended":
        vllm.platforms._current_platform = _platform()
    # Modules of vLLM keep the platform that they were imported with.
    type(vllm.platforms._current_platform).pretended = name, n_devices
    for attribute, value in (("is_available", True), ("device_count", n_devices), ("get_device_name", name)):
        patch.object(torch.cuda, attribute, lambda *_, value=value: value).start()


def _platform() -> Any:
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    class Pretended(NonNvmlCudaPlatform):
        """Devices that are not there; `device_id` is what vLLM calls it."""

        pretended = ("", 0)

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:  # noqa: ARG003
            return DeviceCapability(*DEVICES[cls.pretended[0]][1])

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:  # noqa: ARG003
            return cls.pretended[0]

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:  # noqa: ARG003
            return DEVICES[cls.pretended[0]][0] * GIB

        @classmethod
        def device_count(cls) -> int:
            return cls.pretended[1]

    return Pretended()
