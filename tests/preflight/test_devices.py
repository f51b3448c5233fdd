"""Estimates of time and money, worked by hand."""

from dataclasses import replace

import pytest

from evaluator.errors import ConfigError
from evaluator.preflight.devices import Assumptions, Device, Work, chosen_devices, estimate

DEVICE = Device(flops_16_bit=200e12, flops_32_bit=100e12, memory_gib=24, usd_per_hour=3.6)
WORK = Work(
    flop=16 * 10**15,
    prompts=5_000,
    dtype="bfloat16",
    quantization=None,
    memory_bytes=17 * 2**30,
)


def test_seconds_and_dollars_of_a_device():
    found = estimate(WORK, {"d": DEVICE}, 0.4)["d"]
    # 16e15 operations at 80e12 a second are 200 s, 5,000 requests of 1 ms are 5 s; an hour costs 3.6, a second 0.001.
    assert found.elapsed_s == pytest.approx(205)
    assert found.price_usd == pytest.approx(0.205)


def test_numbers_of_32_bits_take_the_other_peak():
    work = WORK._replace(dtype="float32")
    assert estimate(work, {"d": DEVICE}, 0.4)["d"].elapsed_s == pytest.approx(405)


@pytest.mark.parametrize(("flops_8_bit", "expected"), [(400e12, 105), (None, 205)])
def test_weights_in_fp8_take_its_peak_where_the_device_has_one(flops_8_bit, expected):
    # 16e15 operations at 0.4 x 400e12 a second are 100 s, and 5,000 requests 5 s.
    device, work = replace(DEVICE, flops_8_bit=flops_8_bit), WORK._replace(quantization="fp8")
    assert estimate(work, {"d": device}, 0.4)["d"].elapsed_s == pytest.approx(expected)


def test_weights_and_cache_fit_in_nine_tenths_of_the_memory():
    for gib, fits in ((21.5, True), (21.7, False)):  # of 24 GiB, 21.6
        work = WORK._replace(memory_bytes=int(gib * 2**30))
        assert estimate(work, {"d": DEVICE}, 0.4)["d"].fits is fits
    work = WORK._replace(memory_bytes=9 * 2**30)
    assert estimate(work, {"d": replace(DEVICE, memory_gib=10)}, 0.4)["d"].fits


def test_a_file_adds_devices_and_replaces_those_that_are_known(tmp_path):
    path = tmp_path / "mine.toml"
    table = "flops_16_bit = 1e12\nflops_32_bit = 1e12\nmemory_gib = 8\nusd_per_hour = 0\n"
    path.write_text(f"[mine]\n{table}[H200]\n{table}")
    found = chosen_devices(Assumptions(devices=("mine", "H200"), file=path))
    assert [device.memory_gib for device in found.values()] == [8, 8]
    assert "L4" in chosen_devices(Assumptions())


A_DEVICE = "[a]\nflops_16_bit = {}\nflops_32_bit = 1\nmemory_gib = {}\nusd_per_hour = {}"


@pytest.mark.parametrize(
    "text",
    [
        *("[a]\nmemory_gib = 8", "[a"),
        *(A_DEVICE.format(*numbers) for numbers in ((0, 1, 1), ("nan", 1, 1), (1, "inf", 1), (1, 1, -2))),
    ],
)
def test_a_file_that_describes_no_device_is_refused(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        chosen_devices(Assumptions(file=path))


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="There are: CPU, 2 cores, L4"):
        chosen_devices(Assumptions(devices=("H300",)))


@pytest.mark.parametrize("utilisation", [0.0, 1.5])
def test_a_share_of_the_peak_is_above_0_and_at_most_1(utilisation):
    assert Assumptions(utilisation=1.0).utilisation == 1
    with pytest.raises(ConfigError, match="--utilisation"):
        Assumptions(utilisation=utilisation)
