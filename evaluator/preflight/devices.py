"""Estimate the time, price and memory of a run on devices, from their specifications."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from evaluator.config import Options, option
from evaluator.errors import ConfigError, unknown_name
from evaluator.files.toml_files import converted, read_toml, shipped_tables
from evaluator.record import DeviceRecord, EngineRecord

UTILISATION = 0.4
"""Share of a device's peak that a run is assumed to reach. vLLM scored a model of 28 million parameters at 0.6 of the
matrix products of two cores in bf16 (docs/preflight.md)."""

SECONDS_PER_REQUEST = 0.001
"""Overhead of the engine for a request, measured with vLLM on two cores and a model of 3.4 million parameters."""

UNPACKED_FOR_PRODUCTS = ("awq", "gptq", "bitsandbytes")
"""Quantisations whose weights are converted to the dtype of the model before they are multiplied."""

MEMORY_SHARE = 0.9  # share of a device's memory that a run may use: vLLM's default


@dataclass(frozen=True, kw_only=True)
class Device:
    """Specifications of a device for an estimate."""

    flops_16_bit: float  # peak operations per second of dense 16-bit matrix products
    flops_32_bit: float
    memory_gib: float
    usd_per_hour: float
    flops_8_bit: float | None = None  # the same of FP8 products; None: the device has none, or they are unknown
    names: tuple[str, ...] = ()  # names that the driver gives to the device

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, is_price = getattr(self, entry.name), entry.name == "usd_per_hour"
            if isinstance(value, float | int) and not (0 < value < math.inf or (is_price and value == 0)):
                raise ValueError(f"{entry.name} must be a number, {'0 or more' if is_price else 'above 0'}")

    def peak(self, dtype: str, quantization: str | None) -> float | None:
        """Return the peak operations per second of matrix products; None: unknown.

        Args:
            dtype: dtype of the computation.
            quantization: quantisation of the weights; None: not quantised.
        """
        if quantization == "fp8":
            return self.flops_8_bit
        if quantization is None or quantization in UNPACKED_FOR_PRODUCTS:
            return self.flops_32_bit if dtype == "float32" else self.flops_16_bit
        return None


@dataclass(frozen=True, kw_only=True)
class Assumptions(Options):
    """Devices to estimate for, and the assumed share of their peak."""

    devices: tuple[str, ...] = option(
        (),
        "Estimate for this device; for all devices if left out.",
        name="device",
        metavar="NAME",
        given=str,
        several=True,
    )
    file: Path | None = option(  # its devices are added to those of assets/devices.toml, or replace them by name
        None, "TOML file with the peak rate, memory and price of devices (docs/preflight.md).", name="device_file"
    )
    utilisation: float = option(
        UTILISATION, "Share of a device's peak that a run is assumed to reach.", shown=UTILISATION
    )

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise ConfigError(f"--utilisation must be above 0 and at most 1, got {self.utilisation}.")


class Work(NamedTuple):
    """The computation and the memory of a run."""

    flop: int  # operations for all tokens
    prompts: int  # number of distinct prompts
    dtype: str  # dtype of the computation
    quantization: str | None  # quantisation of the weights
    memory_bytes: int  # weights, and the KV cache of the longest prompt


def chosen_devices(assumptions: Assumptions) -> dict[str, Device]:
    """Return the devices to estimate for: name -> device.

    Raises ConfigError for an unknown device name, and for a file that cannot be read or has invalid entries.
    """
    devices = shipped_tables(__package__, "devices", Device)
    if assumptions.file is not None:
        where = f"--device-file {assumptions.file}"
        hint = f"Each device is a table with {', '.join(entry.name for entry in fields(Device))}."
        for name, content in read_toml(assumptions.file, ConfigError, where).items():
            devices[name] = converted(content, Device, ConfigError, f"{where}, {name}", hint, strict=False)
    for name in assumptions.devices:
        if name not in devices:
            raise ConfigError(f"{unknown_name('There is no device', name, devices)} --device-file FILE adds others.")
    return {name: device for name, device in devices.items() if not assumptions.devices or name in assumptions.devices}


def peak_of_replicas(engine: EngineRecord, n_replicas: int, saved_quantization: str | None) -> float | None:
    """Return the peak operations per second of all devices of a run together; None: unknown.

    Args:
        engine: engine of the replicas; `engine.device` is the driver's name of the device.
        n_replicas: number of replicas, busy or idle.
        saved_quantization: quantisation of the saved weights.
    """
    device = next((one for one in chosen_devices(Assumptions()).values() if engine.device in one.names), None)
    peak = device.peak(engine.dtype, engine.quantization or saved_quantization) if device else None
    per_replica = engine.tensor_parallel * engine.pipeline_parallel
    return peak and peak * n_replicas * per_replica / engine.engines_per_device


def estimate(work: Work, devices: Mapping[str, Device], utilisation: float) -> dict[str, DeviceRecord]:
    """Return the estimate for each device, by name.

    Seconds are flop / (peak x utilisation) + prompts x SECONDS_PER_REQUEST; loading the model is not counted.
    """
    records = {}
    for name, device in devices.items():
        # If the device has no FP8 products, or they are unknown, weights are multiplied in the dtype.
        peak = device.peak(work.dtype, work.quantization) or device.peak(work.dtype, None)
        assert peak is not None, "of plain weights it is known"
        seconds = work.flop / (peak * utilisation) + work.prompts * SECONDS_PER_REQUEST
        records[name] = DeviceRecord(
            fits=work.memory_bytes <= MEMORY_SHARE * device.memory_gib * 2**30,
            elapsed_s=round(seconds, 3),
            price_usd=round(seconds / 3600 * device.usd_per_hour, 6),
        )
    return records
