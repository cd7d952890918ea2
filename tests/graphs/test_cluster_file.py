"""Cluster files and quantities: written by people, read strictly, round trip exactly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphs.cluster import Cluster, Device
from graphs.devices.cluster_file import ENDINGS, load_cluster_file, save_cluster
from graphs.foundation.errors import InputError
from graphs.foundation.quantities import parse, written
from graphs.host import HOSTS
from tests.oracle.toys import toy_cluster

BY_HAND = """
schema = "placelab.cluster"
version = 1
name = "two cards"

[links]
latency = "10us"
bandwidth = "12GB/s"
channels = "per_source"

[[devices]]
name = "gpu:0"
kind = "gpu"
flops_per_second = "9.3TFLOP/s"
bytes_per_second = "732GB/s"
memory = "16GiB"
launch = "5us"

[[devices]]
name = "cpu:0"
kind = "cpu"
flops_per_second = 1e12
bytes_per_second = 8e10
memory = "64 GiB"

[[pairs]]
source = "gpu:0"
target = "cpu:0"
bandwidth = "50Gbit/s"
"""


def by_hand(path: Path, old: str = "", new: str = "") -> Path:
    assert old in BY_HAND
    file = path / "cards.cluster.toml"
    file.write_text(BY_HAND.replace(old, new, 1) if old else BY_HAND)
    return file


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    cluster = load_cluster_file(by_hand(tmp_path))
    assert cluster.devices[0] == Device("gpu:0", "gpu", 9.3e12, 732e9, 16 * 2.0**30, 5e-6)
    assert cluster.devices[1] == Device("cpu:0", "cpu", 1e12, 8e10, 64 * 2.0**30)
    assert (cluster.bandwidth[0, 1], cluster.bandwidth[1, 0]) == (50e9 / 8, 12e9)
    assert cluster.latency[0, 1] == 10e-6
    assert (cluster.channel[0, 1], cluster.channel[1, 0]) == (0, 1)


def test_what_was_measured_of_a_host_is_read_and_written(tmp_path: Path) -> None:
    assert load_cluster_file(by_hand(tmp_path)).hosts == {}
    said = '[hosts.eager]\nforward = "21us"\nbackward = 33e-6\n[links]'
    cluster = load_cluster_file(by_hand(tmp_path, "[links]", said))
    assert cluster.hosts == {"eager": replace(HOSTS["eager"], forward=21e-6, backward=33e-6)}
    assert cluster.hosts["eager"].name == "eager"
    for ending in ENDINGS:
        save_cluster(cluster, tmp_path / f"again{ending}")
        again = load_cluster_file(tmp_path / f"again{ending}")
        assert again.hosts == cluster.hosts
        assert again.fingerprint == cluster.fingerprint != load_cluster_file(by_hand(tmp_path)).fingerprint


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("version = 1", "version = 3", "written as version 3, this placelab reads version 1"),
        (
            '"16GiB"',
            '"16"',
            r"devices\[0\].memory: expected a number of bytes without quotes, or text such as '16GiB', got '16'",
        ),
        ('"16GiB"', '"16GB/s"', r"devices\[0\].memory: expected a number of bytes"),
        (
            '"5us"',
            '"5 fortnights"',
            r"devices\[0\].launch: expected a number of seconds without quotes, or text such as '10us'",
        ),
        ('"12GB/s"', '"-12GB/s"', "links.bandwidth: expected a number of bytes/s"),
        ('target = "cpu:0"', 'target = "cpu"', r"pairs\[0\]: unknown device 'cpu'; did you mean 'cpu:0'"),
        (
            '"per_source"',
            '"per_rack"',
            r"links.channels: unknown value 'per_rack'; did you mean 'per_source'\?",
        ),
        ("memory = ", "memroy = ", r"devices\[0\]: unknown key 'memroy'; did you mean 'memory'\?"),
        ("1e12", "0.0", r"devices\[1\].flops_per_second: expected a number of FLOP/s > 0, got 0.0"),
        ("[links]", "[links", r"is damaged: .* \(line \d+: '\[links'\)"),
        (
            "[links]",
            "[[links]]",
            r"links: expected a table, got a list; it is one object, in TOML one table under",
        ),
        ("[links]", "[link]", r"unknown key 'link'; did you mean 'links'\? there are: schema, version, name, links"),
        ("[[pairs]]", "[pairs]", r"pairs: expected a list, got a table; it is a list of objects, in TOML tables under"),
        ("[[devices]]", "bandwidth = 1\n[[devices]]", r"is damaged: something is given twice; .* \(line "),
        ("memory = ", "# ", r"devices\[0\]: the key 'memory' is missing; add it, such as memory = \"16GiB\""),
        ("[links]", "rack = 1\n[links]", "unknown key 'rack'; there are: "),
        ("[links]", "[hosts.eagre]\n[links]", "hosts: unknown host 'eagre'; did you mean 'eager'"),
        ("[links]", "[hosts.eager]\nforward = '2GB'\n[links]", "hosts.eager.forward: expected a number of seconds"),
        ("[links]", "[hosts.eager]\nforward = 44\n[links]", "hosts.eager.forward: 44 without a unit is 44 seconds"),
        ("[links]", "latency = 1\n[links]", r"unknown key 'latency'; did you mean links.latency\? there are: "),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"cards\.cluster\.toml.*{sentence}"):
        load_cluster_file(by_hand(tmp_path, old, new))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; write one, or use a preset such as p100:devices=2"):
        load_cluster_file(tmp_path / "none.cluster.toml")
    with pytest.raises(InputError, match=r"ends in \.toml or \.json"):
        save_cluster(toy_cluster(2), tmp_path / "cluster.yaml")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 999), devices=st.integers(1, 4), ending=st.sampled_from(["toml", "json"]))
def test_a_cluster_comes_back_as_it_was(tmp_path: Path, seed: int, devices: int, ending: str) -> None:
    rng = np.random.default_rng(seed)
    pairs = (devices, devices)
    channels = int(rng.integers(1, 9))
    cluster = Cluster(
        "any", tuple(Device(f"d{i}", "any", *(rng.random(7) + 0.1).tolist()) for i in range(devices)),
        latency=rng.choice([0.0, 1e-6, rng.random()], pairs),
        bandwidth=rng.choice([1e9, 12.5e9, rng.random() + 1], pairs),
        channel=rng.integers(0, channels, pairs), gap=rng.choice([0.0, 25e-6], channels),
        multicast=rng.random(channels) < 0.5,
    )  # fmt: skip
    save_cluster(cluster, tmp_path / f"any.cluster.{ending}")
    assert load_cluster_file(tmp_path / f"any.cluster.{ending}").fingerprint == cluster.fingerprint


LEVELS = """
[[levels]]
count = 2
latency = "25us"
bandwidth = "25Gbit/s"
shared = "group"
"""


def test_levels_put_copies_of_the_devices_side_by_side(tmp_path: Path) -> None:
    file = by_hand(tmp_path)
    file.write_text(file.read_text() + LEVELS)
    cluster = load_cluster_file(file)
    assert [device.name for device in cluster.devices] == ["gpu:0", "cpu:0", "gpu:1", "cpu:1"]
    assert (cluster.bandwidth[0, 1], cluster.bandwidth[2, 3], cluster.bandwidth[0, 2]) == (50e9 / 8, 50e9 / 8, 25e9 / 8)
    assert cluster.latency[1, 3] == 25e-6
    one_card_a_server = cluster.channel[np.ix_([0, 1], [2, 3])]
    assert len(np.unique(one_card_a_server)) == 1
    assert cluster.channel[2, 0] not in one_card_a_server
    assert cluster.channel[0, 1] != cluster.channel[2, 3]


@pytest.mark.parametrize(
    ("added", "sentence"),
    [
        (LEVELS.replace("count = 2", "count = 0"), r"levels\[0\]"),
        (LEVELS.replace("count = 2", "count = 100000"), "at most 4096 can be simulated"),
        (LEVELS.replace('"group"', '"rack"'), r"levels\[0\]"),
        ('[[pairs]]\nsource = "gpu:0"\ntarget = "cpu:0"', "'gpu:0' to 'cpu:0' is given twice; keep one of the two"),
        ('[[pairs]]\nsource = "cpu:0"\ntarget = "cpu:0"', "the same device, 'cpu:0'; remove the pair"),
        ('[[pairs]]\nsource = "cpu:0"\ntarget = "gpu:0"\nchannel = 99', "expected a number from 0 to 3, got 99"),
    ],
)
def test_a_mistake_in_what_is_added_is_named(tmp_path: Path, added: str, sentence: str) -> None:
    file = by_hand(tmp_path)
    file.write_text(f"{file.read_text()}\n{added}")
    with pytest.raises(InputError, match=rf"cards\.cluster\.toml.*{sentence}"):
        load_cluster_file(file)


def test_a_bandwidth_is_said_once_or_for_each_pair(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pair gives the bandwidth from 'cpu:0' to 'gpu:0'"):
        load_cluster_file(by_hand(tmp_path, 'bandwidth = "12GB/s"'))
    endless = load_cluster_file(by_hand(tmp_path, '"12GB/s"', '"inf"'))
    assert endless.bandwidth[1, 0] == np.inf


@pytest.mark.parametrize("shared_out", [True, False])
def test_a_uniform_cluster_is_a_short_file(tmp_path: Path, shared_out: bool) -> None:
    cluster = toy_cluster(4, shared_out=shared_out, gap=25e-6, multicast=shared_out)
    save_cluster(cluster, tmp_path / "toy.cluster.toml")
    assert "pairs" not in (tmp_path / "toy.cluster.toml").read_text()
    assert load_cluster_file(tmp_path / "toy.cluster.toml").fingerprint == cluster.fingerprint


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("16GiB", "bytes", 2.0**34), ("1.5 kB", "bytes", 1500.0), ("732GB/s", "bytes/s", 732e9),
        ("25Gbps", "bytes/s", 25e9 / 8), ("9.3TFLOP/s", "FLOP/s", 9.3e12), ("10us", "seconds", 1e-5),
        ("10\u00b5s", "seconds", 1e-5), ("10\u03bcs", "seconds", 1e-5), ("5\u00a0us", "seconds", 5e-6),
        ("12 GB/s", "bytes/s", 12e9), ("20 TFLOPS", "FLOP/s", 2e13), ("3ns", "seconds", 3e-9), (7, "seconds", 7.0),
    ],
)  # fmt: skip
def test_a_quantity_with_its_unit(text: str | float, unit: str, value: float) -> None:
    assert parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "bytes"), ("16gib", "bytes"), ("GiB", "bytes"), ("1e3B", "bytes"), ("12GB", "bytes/s"),
        ("9GiFLOP/s", "FLOP/s"), ("1m", "seconds"), ("-1s", "seconds"), ("1,5s", "seconds"),
    ],
)  # fmt: skip
def test_what_is_no_quantity(text: str, unit: str) -> None:
    with pytest.raises(InputError, match="expected a number of"):
        parse(text, unit)


@given(st.floats(0, 1e18), st.sampled_from(["bytes", "bytes/s", "FLOP/s", "seconds"]))
def test_a_quantity_is_written_exactly(value: float, unit: str) -> None:
    assert parse(written(value, unit), unit) == value


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"64 GiB"', "64", r"devices\[1\].memory: 64 without a unit is 64 bytes; .* '64GiB', or '64B'"),
        ('"12GB/s"', "12", "links.bandwidth: 12 without a unit is 12 bytes/s; .* '12GB/s', or '12B/s'"),
        ('"10us"', "10", "links.latency: 10 without a unit is 10 seconds; .* '10us', or '10s'"),
        ('"9.3TFLOP/s"', "9.3", r"devices\[0\].flops_per_second: 9.3 without a unit is 9.3 FLOP/s; .* '9.3TFLOP/s'"),
        ('"5us"', "5", r"devices\[0\].launch: 5 without a unit"),
        ('"50Gbit/s"', "50", r"pairs\[0\].bandwidth: 50 without a unit"),
    ],
)  # fmt: skip
def test_a_number_that_lost_its_unit_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_cluster_file(by_hand(tmp_path, old, new))


def test_a_small_number_with_its_unit_and_a_file_in_units_of_its_own_are_read(tmp_path: Path) -> None:
    assert load_cluster_file(by_hand(tmp_path, '"64 GiB"', '"24B"')).devices[1].memory_bytes == 24
    assert load_cluster_file(by_hand(tmp_path, '"64 GiB"', "0")).devices[1].memory_bytes == 0
    alone = """[links]
bandwidth = 2
[[devices]]
name = "gpu:0"
kind = "gpu"
flops_per_second = 1
bytes_per_second = 1
memory = 24"""
    (tmp_path / "own.cluster.toml").write_text(alone)
    assert load_cluster_file(tmp_path / "own.cluster.toml").devices[0].memory_bytes == 24
    (tmp_path / "card.cluster.toml").write_text(
        '[[servers]]\ndevices = ["mine"]\n[catalogue.devices.mine]\nkind = "gpu"\nflops_per_second = 2e13\n'
        "bytes_per_second = 5e11\nmemory = 24\n"
    )
    with pytest.raises(InputError, match=r"catalogue.devices.mine.memory: 24 without a unit is 24 bytes"):
        load_cluster_file(tmp_path / "card.cluster.toml")


def test_a_quantity_is_written_shortly() -> None:
    assert written(2.0**34, "bytes") == "16GiB"
    assert written(12e9, "bytes/s") == "12GB/s"
    assert written(5e-6, "seconds") == "5us"
    assert written(9.3e12, "FLOP/s") == "9.3TFLOP/s"
    assert written(0.0, "seconds") == 0.0
