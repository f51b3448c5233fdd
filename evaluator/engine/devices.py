"""The devices that engines compute on, and the layout of a model: number of replicas and of devices per replica."""

import ctypes
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from evaluator.config import ModelConfig
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource, loaded_bytes, scoring_dtype
from evaluator.models.weights import has_plain_head, weight_files

DeviceKind = Literal["cpu", "cuda"]


def device_kind() -> DeviceKind:
    """Return the kind of device that engines compute on: "cuda" if PyTorch finds a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def cores() -> list[int]:
    """Return the numbers of the cores available to this process."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def head_dtype(source: ModelSource, config: ModelConfig, kind: DeviceKind) -> str:
    """Return the dtype in which logits are computed: float32, or the dtype of the model.

    In bfloat16, logits from 16 to 32 are multiples of 1/8 nat, so that labels can tie. On a GPU, a product of 16-bit
    numbers with results in float32 costs nothing; a CPU needs a copy of the head in float32 at each step. vLLM has no
    batch-invariant kernel for such a product, and no kernel for a quantised head.

    Raises ConfigError if `--head-dtype float32` is given for a quantised head.
    """
    dtype = scoring_dtype(source, config)
    automatic = config.head_dtype == "auto"
    is_costly = kind == "cpu" or is_batch_invariant()
    if dtype == "float32" or config.head_dtype == "model" or (automatic and is_costly):
        return dtype
    is_plain = config.quantization in (None, "fp8") and (
        not source.quantization or has_plain_head(weight_files(source.folder), source.vocab_size)
    )
    if not is_plain and not automatic:
        raise ConfigError(f"The LM head of {source.name} is quantised: drop --head-dtype float32.")
    return "float32" if is_plain else dtype


def is_batch_invariant() -> bool:
    """Return whether vLLM is set to give a prompt the same scores in every batch (VLLM_BATCH_INVARIANT=1)."""
    return os.environ.get("VLLM_BATCH_INVARIANT") == "1"


def split(cores: Sequence[int], n: int) -> list[Sequence[int]]:
    """Split cores into n groups of neighbours, whose sizes differ by at most one."""
    return [cores[len(cores) * part // n : len(cores) * (part + 1) // n] for part in range(n)]


def return_freed_memory() -> None:
    """Give memory of freed tensors back: that of a GPU to the driver, and with glibc that of the host to the system."""
    import torch

    torch.cuda.empty_cache()  # does nothing unless this process uses a GPU
    if malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        malloc_trim(0)


# Share of a GPU's memory for weights; the rest is for the prefix cache and for the activations of a step.
SHARE_FOR_WEIGHTS = 0.8
_GIB = 2**30


class Place(NamedTuple):
    """The devices of one model among all devices of a run."""

    devices: Sequence[int]  # numbers of the model's devices
    n_of_run: int  # number of devices of all models that are loaded at the same time


class Machine(NamedTuple):
    """The devices that replicas can be loaded on."""

    kind: DeviceKind
    name: str  # name of one device
    n_devices: int  # number of GPUs, or of processors
    max_devices: int  # number of GPUs, or of cores, into which a processor can be split
    memory_bytes: int | None = None  # memory of one GPU; None: not known, as on a CPU
    hosts: tuple[int, ...] = ()  # number of GPUs, or of cores, of each host of a cluster; empty: a single host

    @property
    def max_per_host(self) -> int:
        """Maximum number of devices of a replica, which must all be on one host."""
        return max(self.hosts, default=self.max_devices)

    def n_groups(self, size: int) -> int:
        """Return the number of groups of `size` devices that the hosts have, each group on one host."""
        return sum(host // size for host in self.hosts or [self.max_devices])


def this_machine() -> Machine:
    """Return the GPUs of this machine, or its processor."""
    if device_kind() == "cpu":
        return this_processor()
    import torch

    n_devices = torch.cuda.device_count()
    memory = int(torch.cuda.get_device_properties(0).total_memory)
    return Machine("cuda", str(torch.cuda.get_device_name()), n_devices, n_devices, memory)


def this_processor() -> Machine:
    """Return the processor of this machine; the cores available to this process can be split among replicas."""
    cpu_info, n_cores = Path("/proc/cpuinfo"), len(cores())
    lines = cpu_info.read_text().splitlines() if cpu_info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return Machine("cpu", f"{name}, {n_cores} cores", 1, n_cores)


def lay_out(source: ModelSource, config: ModelConfig, machine: Machine, *, splits_models: bool) -> ModelConfig:
    """Fill in the numbers of devices and of devices per replica, for `all` and for options that are left out.

    Args:
        source, config: the model, and how to load it.
        machine: devices to load the model on.
        splits_models: whether the engine can split one replica over several devices.

    Raises:
        ConfigError: more devices are requested than exist, their number is not a multiple of a replica's, hosts have no
            room for the replicas, --tensor-parallel does not divide the attention heads, or an option is not supported
            by the engine or on a CPU.
        ModelError: the model does not fit into the memory of these devices.
    """
    wanted, per_replica = config.devices, config.devices.per_replica
    if per_replica > 1 and not splits_models:
        raise ConfigError("--tensor-parallel and --pipeline-parallel need --engine vllm.")
    if wanted.pipeline_parallel > 1 and machine.kind == "cpu":
        raise ConfigError(
            "--pipeline-parallel needs GPUs: on a CPU vLLM 0.32 fails with an AssertionError. Use --tensor-parallel."
        )
    if wanted.engines_per_device > 1 and machine.kind == "cpu":
        raise ConfigError("--engines-per-device needs GPUs. Without one, --devices N splits the cores into N replicas.")
    requested = "all" if wanted.n is None and wanted.ray_address else wanted.n
    n_devices = machine.n_devices if requested == "all" else requested or 0
    for option, number, limit, where in (
        ("--devices", n_devices, machine.max_devices, "here"),
        ("--tensor-parallel times --pipeline-parallel", per_replica, machine.max_per_host,
         "on a host, where all of a replica lies" if machine.hosts else "here"),
    ):  # fmt: skip
        if number > limit:
            parts = "devices" if machine.kind == "cuda" else "cores, each of which counts as a device,"
            raise ConfigError(f"{option} is {number}, and there are {limit} {parts} {where}. Give fewer.")
    tensor = wanted.tensor_parallel or (
        _min_tensor_parallel(source, config, machine, n_devices) if splits_models else 1
    )
    if not _divides_heads(tensor, source):
        key_values = f" and {source.n_kv_heads} key-value heads" if source.n_kv_heads else ""
        raise ConfigError(
            f"--tensor-parallel {tensor} does not divide the {source.n_heads} attention heads{key_values} of "
            f"{source.name}."
        )
    per_replica = tensor * wanted.pipeline_parallel
    if n_devices % per_replica:
        raise ConfigError(
            f"--devices {n_devices} is not a multiple of the {per_replica} devices of a replica "
            f"(--tensor-parallel {tensor}, --pipeline-parallel {wanted.pipeline_parallel})."
        )
    room = machine.n_groups(per_replica)
    if n_devices > room * per_replica:
        raise ConfigError(
            f"--devices {n_devices} are {n_devices // per_replica} replicas of {per_replica} devices, "
            f"each on one host, and hosts with {', '.join(map(str, machine.hosts))} devices have room for {room}. Use "
            f"--devices {room * per_replica}."
        )
    return replace(config, devices=replace(wanted, tensor_parallel=tensor, n=n_devices or per_replica))


def _min_tensor_parallel(source: ModelSource, config: ModelConfig, machine: Machine, n_devices: int) -> int:
    """Return the smallest tensor-parallel size with which the model fits into GPU memory.

    The size divides the requested number of devices and the attention heads. It is 1 if the memory is not known. Raises
    ModelError if no size fits.
    """
    if machine.memory_bytes is None:
        return 1
    devices, groups = config.devices, config.devices.pipeline_parallel
    weights = loaded_bytes(source, config)
    room = machine.memory_bytes * SHARE_FOR_WEIGHTS / devices.engines_per_device
    # Maximum number of devices of a replica; engines that share a device are not split.
    limit = 1 if devices.engines_per_device > 1 else min(n_devices or machine.n_devices, machine.max_per_host)
    for n in range(1, limit // groups + 1):
        divides = _divides_heads(n, source) and (n_devices or n * groups) % (n * groups) == 0
        if divides and weights <= room * n * groups:
            return n
    smaller = "" if config.quantization else ", --dtype bfloat16 or --quantization fp8"
    part, way_out = f"{limit} devices", f"Use more devices{smaller}, or give --tensor-parallel to try all the same."
    if devices.engines_per_device > 1:
        part, way_out = f"1/{devices.engines_per_device} of a device", f"Use fewer --engines-per-device{smaller}."
    raise ModelError(
        f"{source.name} has {weights / _GIB:.0f} GiB of weights, more than {part} of {machine.memory_bytes / _GIB:.0f} "
        f"GiB can hold in addition to a prefix cache. {way_out}"
    )


def _divides_heads(n: int, source: ModelSource) -> bool:
    """Return whether n devices can share the attention heads equally.

    Key-value heads are split as well, or copied to several devices if there are fewer heads than devices.
    """
    n_kv_heads = source.n_kv_heads or n
    return (source.n_heads or n) % n == 0 and (n_kv_heads % n == 0 or n % n_kv_heads == 0)
