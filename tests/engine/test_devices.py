"""How many replicas there are, and how many devices each takes."""

import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from evaluator.config import DevicesConfig, ModelConfig, ServerConfig
from evaluator.engine.devices import Machine, lay_out, split
from evaluator.engine.ray_cluster import cluster_machine
from evaluator.errors import ConfigError, ModelError
from evaluator.models.fake_source import fake_model_source

GIB = 2**30
EIGHT_GPUS = Machine("cuda", "a GPU", 8, 8, 80 * GIB)
PROCESSOR = Machine("cpu", "a processor", 1, 16)


def source_of(gib: int, n_heads: int = 64, n_kv_heads: int | None = None):
    source = replace(fake_model_source(), n_heads=n_heads, n_kv_heads=n_kv_heads)
    source.__dict__["weight_bytes"] = gib * GIB  # cached
    return source


def layout(devices: DevicesConfig, machine: Machine = EIGHT_GPUS, gib: int = 1, **options):
    """Replicas, and devices in a layer of each."""
    config = ModelConfig(model="some", devices=devices)
    laid = lay_out(source_of(gib, **options), config, machine, splits_models=True).devices
    return laid.n_replicas, laid.tensor_parallel


@pytest.mark.parametrize(
    ("gib", "expected"),
    [
        (16, (8, 1)),
        (64, (8, 1)),  # four fifths of a device
        (65, (4, 2)),
        (140, (2, 4)),  # three devices hold it, but do not divide 8
        (500, (1, 8)),
    ],
)
def test_a_replica_takes_the_fewest_devices_that_hold_the_model(gib, expected):
    assert layout(DevicesConfig(n="all"), gib=gib) == expected


def test_quantised_while_they_are_loaded_weights_take_half_the_memory():
    # 120 GiB of float16; fp8 leaves half of that, and of 64 GiB are four fifths of a device.
    config = ModelConfig(model="some", dtype="float16", devices=DevicesConfig(n="all"))
    source = replace(source_of(120), dtype="float16")
    source.__dict__["weight_bytes"] = 120 * GIB
    for quantization, expected in ((None, 2), ("fp8", 1), ("another", 2)):
        asked = replace(config, quantization=quantization)
        assert lay_out(source, asked, EIGHT_GPUS, splits_models=True).devices.tensor_parallel == expected


def test_a_model_that_is_too_large_in_fp8_is_not_told_to_use_it():
    config = ModelConfig(model="some", quantization="fp8", devices=DevicesConfig(n=1))
    with pytest.raises(ModelError, match="Use more devices, or give --tensor-parallel"):
        lay_out(source_of(600), config, EIGHT_GPUS, splits_models=True)


def test_without_a_number_of_devices_there_is_one_replica():
    assert layout(DevicesConfig()) == (1, 1)
    assert layout(DevicesConfig(), gib=140, n_heads=48) == (1, 3)
    assert layout(DevicesConfig(tensor_parallel=4)) == (1, 4)


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "expected"),
    [
        (48, 8, 4),  # three devices hold it, but 8 heads of keys and values cannot be split among them
        (24, 3, 3),
        (48, 2, 4),  # two devices each have a copy of a head
    ],
)
def test_key_value_heads_are_split_or_copied_evenly(n_heads, n_kv_heads, expected):
    heads = {"n_heads": n_heads, "n_kv_heads": n_kv_heads}
    assert layout(DevicesConfig(), gib=140, **heads) == (1, expected)
    with pytest.raises(ConfigError, match="--tensor-parallel 6 does not divide the 48 attention heads and 4 key-value"):
        layout(DevicesConfig(tensor_parallel=6), n_heads=48, n_kv_heads=4)


def test_engines_that_share_a_gpu_are_replicas_with_a_part_of_its_memory():
    assert layout(DevicesConfig(engines_per_device=4), gib=16) == (4, 1)
    assert layout(DevicesConfig(n=2, engines_per_device=4), gib=16) == (8, 1)
    with pytest.raises(ModelError, match=r"17 GiB of weights, more than 1/4 of a device .* Use fewer --engines-per-"):
        layout(DevicesConfig(engines_per_device=4), gib=17)  # a fourth of four fifths of 80 GiB holds 16
    with pytest.raises(ConfigError, match="--engines-per-device needs GPUs"):
        layout(DevicesConfig(engines_per_device=2), PROCESSOR)
    with pytest.raises(ConfigError, match="for models that one device holds several times"):
        DevicesConfig(engines_per_device=2, tensor_parallel=2)


def test_groups_of_layers_count_too():
    assert layout(DevicesConfig(n=8, tensor_parallel=2, pipeline_parallel=2)) == (2, 2)
    assert layout(DevicesConfig(n=8, pipeline_parallel=2), gib=100) == (4, 1)


def test_a_processor_is_one_device_that_can_be_split_into_its_cores():
    assert layout(DevicesConfig(n="all"), PROCESSOR) == (1, 1)
    assert layout(DevicesConfig(n=16), PROCESSOR, gib=1000) == (16, 1)
    with pytest.raises(ConfigError, match="--devices is 17, and there are 16 cores"):
        layout(DevicesConfig(n=17), PROCESSOR)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (DevicesConfig(n=9), "--devices is 9, and there are 8 devices here"),
        (DevicesConfig(tensor_parallel=16), "--tensor-parallel times --pipeline-parallel is 16, and there are 8"),
        (DevicesConfig(n=6, tensor_parallel=4), "--devices 6 is not a multiple of the 4 devices of a replica"),
        (DevicesConfig(n=6, tensor_parallel=3), "--tensor-parallel 3 does not divide the 64 attention heads"),
    ],
)
def test_devices_that_do_not_fit_are_refused(devices, message):
    with pytest.raises(ConfigError, match=message):
        layout(devices)


def test_a_model_that_no_number_of_devices_holds_is_refused_unless_the_number_is_given():
    with pytest.raises(ModelError, match="600 GiB of weights, more than 8 devices of 80 GiB can hold"):
        layout(DevicesConfig(n="all"), gib=600)
    assert layout(DevicesConfig(tensor_parallel=8), gib=600) == (1, 8)


def cluster_of(*hosts: int, kind: str = "cuda") -> Machine:
    """A cluster whose hosts have so many GPUs of 80 GiB, or cores."""
    memory = 80 * GIB if kind == "cuda" else None
    return Machine(kind, "a device", sum(hosts), sum(hosts), memory, hosts)


@pytest.mark.parametrize(
    ("devices", "hosts", "message"),
    [
        (
            DevicesConfig(n=2, tensor_parallel=2),
            (1, 1),
            "--pipeline-parallel is 2, and there are 1 devices on a host, wh",
        ),
        (
            DevicesConfig(n=16, tensor_parallel=8, pipeline_parallel=2),
            (8, 8),
            "is 16, and there are 8 devices on a host",
        ),
        (
            DevicesConfig(n=14, tensor_parallel=2),
            (7, 7),
            "7 replicas of 2 devices, each on one host, and hosts with 7, 7 devices have room for 6. Use --devices 12",
        ),
        (DevicesConfig(n="all", tensor_parallel=4), (6, 6), "hosts with 6, 6 devices have room for 2. Use --devices 8"),
    ],
)
def test_a_replica_that_no_host_holds_is_refused(devices, hosts, message):
    with pytest.raises(ConfigError, match=message):
        layout(devices, cluster_of(*hosts))


def test_a_model_that_needs_more_devices_than_a_host_has_is_refused():
    assert layout(DevicesConfig(n="all"), cluster_of(8, 8), gib=500) == (2, 8)
    with pytest.raises(ModelError, match="800 GiB of weights, more than 8 devices of 80 GiB"):
        layout(DevicesConfig(n="all"), cluster_of(8, 8), gib=800)


@pytest.mark.parametrize("seed", range(40))
def test_replicas_of_a_cluster_always_find_a_host(seed):
    """Laid out replicas are put on the hosts one after the other; those that are refused would not all find room."""
    rng = random.Random(seed)
    hosts = tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 5)))
    size, n = rng.choice([1, 2, 4, 8]), rng.randint(1, 6)
    room = sum(host // size for host in hosts)
    asked = DevicesConfig(n=n * size, tensor_parallel=size)
    with nullcontext() if n <= room else pytest.raises(ConfigError):
        assert layout(asked, cluster_of(*hosts)) == (n, size)


def test_groups_of_layers_are_refused_on_a_processor():
    with pytest.raises(ConfigError, match="--pipeline-parallel needs GPUs"):
        layout(DevicesConfig(pipeline_parallel=2), PROCESSOR)


def test_engines_that_cannot_split_a_model_say_so():
    config = ModelConfig(model="some", engine="transformers", devices=DevicesConfig(tensor_parallel=2))
    with pytest.raises(ConfigError, match="need --engine vllm"):
        lay_out(source_of(1), config, EIGHT_GPUS, splits_models=False)


def test_a_served_model_has_no_devices_here():
    server = ServerConfig(urls=("http://localhost:8000",))
    with pytest.raises(ConfigError, match="loaded elsewhere"):
        ModelConfig(model="some", engine="server", server=server, devices=DevicesConfig(n=2))


def test_cores_are_split_into_neighbours():
    assert split([0, 1, 2, 5, 6], 2) == [[0, 1], [2, 5, 6]]


def test_fewer_than_one_device_is_refused():
    with pytest.raises(ConfigError, match="--devices must be 1 or more, got 0"):
        DevicesConfig(n=0)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://host:1", "takes HOST:PORT"),
        ("host", "takes HOST:PORT"),
        ("host:²", "takes HOST:PORT"),
        ("127.0.0.1:1", "No Ray cluster answers at"),
        ("a..b:6379", "No Ray cluster answers at"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(address, message):
    with pytest.raises(ConfigError, match=message):
        cluster_machine(address)
