"""Which device the engines compute on: a GPU where there is one."""

import os
import platform
from pathlib import Path
from typing import Literal

DeviceKind = Literal["cpu", "cuda"]


def device_kind() -> DeviceKind:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """Name of the GPU, or of the processor with the number of cores that this process may use."""
    if device_kind() == "cuda":
        import torch

        return str(torch.cuda.get_device_name())
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor_name()}, {n_cores} cores"


def _processor_name() -> str:
    described = Path("/proc/cpuinfo")
    if described.is_file():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
