"""The device that engines compute on: a GPU if there is one, else the CPU."""

import ctypes
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]


def device_kind() -> DeviceKind:
    """Return the kind of device that engines compute on."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """Return the name of the GPU, or of the processor with the number of cores available to this process."""
    if device_kind() == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    return processor_name()


def processor_name() -> str:
    """Return the name of the processor with the number of cores available to this process."""
    return f"{_model_name()}, {len(cores())} cores"


def cores() -> list[int]:
    """Return the numbers of the cores available to this process."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def split(cores: Sequence[int], n: int) -> list[Sequence[int]]:
    """Return n groups of neighbouring cores, as equal as can be."""
    return [cores[len(cores) * part // n : len(cores) * (part + 1) // n] for part in range(n)]


def return_freed_memory() -> None:
    """Return to the system what tensors on a CPU have left free. Does nothing if the C library is not glibc."""
    if malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        malloc_trim(0)


def _model_name() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        for line in cpu_info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
