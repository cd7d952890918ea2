"""What devices reserve of their memory: tensors have the rest, and so have plans."""

from pathlib import Path

import numpy as np
import pytest

import placelab
from evaluation.tables.reserved import reserved_sentences
from graphs.cluster import GIB
from graphs.devices.cluster_file import load_cluster_file, save_cluster
from graphs.devices.reserve import reserve_of
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError

MODEL = "rnnlm:layers=1,steps=4,batch=8"


@pytest.mark.parametrize(
    ("text", "reserved", "fragmentation"),
    [("1.5GiB", 1.5, 0.0), ("8%", 0.0, 0.08), ("512MiB+12.5%", 0.5, 0.125), ("0B", 0.0, 0.0), ("cuda", 1.5, 0.09)],
)
def test_what_texts_mean(text: str, reserved: float, fragmentation: float) -> None:
    reserve = reserve_of(text)
    assert reserve is not None
    for device in reserve.on(load_cluster("p100x2")).devices:
        assert (device.reserved_bytes, device.fragmentation) == (reserved * GIB, fragmentation)
        assert device.usable_bytes == pytest.approx((16 - reserved) * GIB / (1 + fragmentation), rel=1e-15)


def test_a_single_gpu_has_no_communicators_and_processors_reserve_nothing() -> None:
    reserve = reserve_of("cuda")
    assert reserve is not None
    cpu, gpu = reserve.on(load_cluster("cpu_gpu:gpus=1")).devices
    assert (cpu.kind, cpu.reserved_bytes, cpu.usable_bytes) == ("cpu", 0.0, cpu.memory_bytes)
    assert gpu.reserved_bytes == 0.5 * GIB


def test_none_reserves_nothing() -> None:
    assert reserve_of("none") is None


@pytest.mark.parametrize(
    "text", ["", "much", "0", "1.5", "8", "8%+1GiB", "1GiB+", "1GiB+1GiB", "-1GiB", "8%%", "CUDA", "+8%"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"reserve '.*': expected cuda, none to reserve nothing, bytes such as 1.5GiB, a share"
    ):
        reserve_of(text)


@pytest.mark.parametrize("text", ["100%", "1GiB+250%"])
def test_a_share_of_all_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"the share is of what tensors take, in addition .* is not below 100%"):
        reserve_of(text)


@pytest.mark.parametrize("size", ["16GiB", "17GiB"])
def test_more_than_there_is_is_refused_before_a_model_is_read(size: str) -> None:
    reserve = reserve_of(size)
    assert reserve is not None
    assert reserve.on(load_cluster("p100x2")).memory_bytes.tolist() == [0.0, 0.0]
    with pytest.raises(InputError, match=r"leaves tensors nothing of gpu:0, which has 16 GiB; say less"):
        placelab.place("no_such_file.py:model", cluster="p100x2", reserve=size)


def test_plans_have_what_is_left() -> None:
    """What needs all but a byte of a device does not fit once two bytes are reserved; step and peak are the same."""
    peak = float(placelab.place(MODEL, cluster="p100x2", placer="single_device").timeline.peak_bytes.max())
    cluster = load_cluster("p100x2").with_each_device(memory_bytes=peak + 1)
    assert placelab.place(MODEL, cluster=cluster, placer="single_device", reserve="none").timeline.fits
    left = cluster.with_each_device(reserved_bytes=2.0)
    assert left.memory_bytes.tolist() == [peak - 1] * 2
    lacking = placelab.place(MODEL, cluster=left, placer="single_device").timeline
    assert not lacking.fits
    assert "that tensors may take of its" in lacking.overflow()
    share = (peak + 1) / peak - 1
    split = cluster.with_each_device(fragmentation=2 * share)
    assert not np.any(split.memory_bytes >= peak)


def test_pytorchs_reserve_is_the_default_where_a_program_issues_ops(tmp_path: Path) -> None:
    usual = placelab.place(MODEL, cluster="p100x2", placer="single_device")
    assert usual.problem.cluster.memory_bytes == pytest.approx((16 - 1.5) * 2**30 / 1.09)
    assert usual.conditions.reserve == "1.5GiB+9%"
    for options in ({"runtime": "ideal"}, {"reserve": "none"}):
        plain = placelab.place(MODEL, cluster="p100x2", placer="single_device", **options)  # type: ignore[arg-type]
        assert plain.problem.cluster.memory_bytes == pytest.approx(16 * 2**30)
    file = tmp_path / "a.plan.json"
    plain.save(file)  # made without, and simulated so
    assert placelab.simulate(MODEL, file, cluster="p100x2").problem.cluster.memory_bytes == pytest.approx(16 * 2**30)
    own = load_cluster("p100x2").with_each_device(reserved_bytes=2.0**30)
    said = placelab.place(MODEL, cluster=own, placer="single_device")
    assert said.problem.cluster.memory_bytes == pytest.approx(15 * 2**30)


def test_a_plan_is_simulated_with_another_reserve(tmp_path: Path) -> None:
    file = tmp_path / "a.plan.json"
    placed = placelab.place(MODEL, cluster="p100x2", placer="single_device", reserve="1GiB")
    placed.save(file)
    again = placelab.simulate(MODEL, file, cluster="p100x2", reserve="cuda")
    assert again.timeline.step_seconds == placed.timeline.step_seconds
    assert placelab.simulate(MODEL, file, cluster="p100x2").timeline.fits
    assert not placelab.simulate(MODEL, file, cluster="p100x2", reserve="15.999GiB").timeline.fits


def test_a_cluster_file_says_it(tmp_path: Path) -> None:
    reserve, file = reserve_of("1.5GiB+8%"), tmp_path / "a.cluster.toml"
    assert reserve is not None
    cluster = reserve.on(load_cluster("p100x2"))
    save_cluster(cluster, file)
    assert 'reserved = "1.5GiB"' in file.read_text()
    loaded = load_cluster_file(file)
    assert loaded.devices == cluster.devices
    assert loaded.fingerprint == cluster.fingerprint != load_cluster("p100x2").fingerprint
    assert cluster.unreserved.fingerprint == load_cluster("p100x2").fingerprint


@pytest.mark.parametrize(
    ("key", "value"), [("reserved_bytes", -1.0), ("fragmentation", -0.1), ("fragmentation", np.nan)]
)
def test_what_no_device_reserves_is_refused(key: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"{key} is .*; expected a number >= 0"):
        load_cluster("p100x2").with_each_device(**{key: value})


def test_tables_say_what_is_reserved() -> None:
    reserve = reserve_of("cuda")
    assert reserve is not None
    assert reserved_sentences(load_cluster("p100x2")) == []
    assert reserved_sentences(reserve.on(load_cluster("p100x2"))) == [
        "Tensors may take 13.3 GiB of the 16.0 GiB of each of 2 devices (gpu:0, ...): reserved are 1.5 GiB for driver "
        "and libraries and 9% of what tensors take for fragmentation."
    ]
    assert "1.5 GiB for driver" in " ".join(str(placelab.fits(MODEL, cluster="p100x2", reserve="cuda")).split())
