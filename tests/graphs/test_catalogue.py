"""The catalogue holds what data sheets say, and clusters are made of it."""

import pytest

from graphs.cluster import GIB
from graphs.devices.catalogue import Catalogue, CatalogueDevice, CatalogueLink, catalogue, device, link
from graphs.devices.clusters_of_devices import cluster_of_devices
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError

# TFLOP/s in single precision without tensor cores, GB/s and GiB of memory, as the makers' data sheets have them
DATA_SHEETS = {
    "k80": (4.37, 240, 12), "p100": (9.3, 732, 16), "v100": (15.7, 900, 16), "v100-32gb": (15.7, 900, 32),
    "t4": (8.1, 320, 16), "rtx5000": (11.2, 448, 16), "a100-40gb": (19.5, 1555, 40), "a100-80gb": (19.5, 2039, 80),
    "h100": (67, 3350, 80), "l4": (30.3, 300, 24), "rtx3060": (12.7, 360, 12), "rtx3090": (35.6, 936, 24),
    "rtx3060ti": (16.2, 448, 8), "rtx3080": (29.8, 760, 10),
    "rtx4070": (29.1, 504, 12), "rtx4090": (82.6, 1008, 24), "rtx5090": (104.8, 1792, 32),
    "h200": (67, 4800, 141), "b200": (75, 7700, 180), "mi300x": (163.4, 5300, 192), "l40s": (91.6, 864, 48),
    "rtx-a6000": (38.7, 768, 48), "rtx6000-ada": (91.1, 960, 48), "rtx5070": (30.9, 672, 12),
    "rtx5070ti": (43.9, 896, 16), "rtx5080": (56.3, 960, 16),
    "m2": (3.6, 100, 16), "m1-max": (10.4, 400, 48), "m1-ultra": (21, 800, 96),
    "laptop-cpu": (0.82, 51.2, 16), "server-cpu": (1, 77, 128),
    "v100-pcie": (14, 900, 32), "p4": (5.5, 192, 8), "p40": (12, 346, 24), "a100-40gb-pcie": (19.5, 1555, 40),
    "a100-80gb-pcie": (19.5, 1935, 80), "gh200": (67, 4000, 96), "gb200": (80, 8000, 186),
    "rtx2080ti": (13.4, 616, 11), "titan-rtx": (16.3, 672, 24),
    "a10": (31.2, 600, 24), "mi100": (46.1, 1228.8, 32), "mi210": (45.3, 1638.4, 64), "mi250": (45.3, 1638.4, 64),
}  # fmt: skip
# TFLOP/s of dense products in TF32, FP16, BF16 and FP8, None where there are none, as data sheets and white papers have
# them. Of GeForce cards those with sums in single precision.
PRODUCTS = {
    "k80": (None, None, None, None), "p100": (None, 18.7, None, None), "v100": (None, 125, None, None),
    "v100-32gb": (None, 125, None, None), "t4": (None, 65, None, None), "rtx5000": (None, 89.2, None, None),
    "v100-pcie": (None, 112, None, None), "p4": (None, None, None, None), "p40": (None, None, None, None),
    "a100-40gb-pcie": (156, 312, 312, None), "a100-80gb-pcie": (156, 312, 312, None), "gh200": (494, 990, 990, 1979),
    "gb200": (1250, 2500, 2500, 5000), "rtx2080ti": (None, 53.8, None, None), "titan-rtx": (None, 130.5, None, None),
    "a100-40gb": (156, 312, 312, None), "a100-80gb": (156, 312, 312, None), "a10": (62.5, 125, 125, None),
    "h100": (494.7, 989.4, 989.4, 1978.9), "h200": (494.7, 989.4, 989.4, 1978.9), "b200": (1125, 2250, 2250, 4500),
    "l4": (60, 121, 121, 242.5), "l40s": (183, 362, 362, 733), "rtx-a6000": (77.4, 154.8, 154.8, None),
    "rtx6000-ada": (182.1, 364.2, 364.2, 728.5), "rtx3080": (29.8, 59.5, 59.5, None), "rtx3090": (35.6, 71, 71, None),
    "rtx4090": (82.6, 165.2, 165.2, 330.3), "rtx5070": (30.9, 61.7, 61.7, 123.5),
    "rtx5070ti": (43.9, 87.9, 87.9, 175.8), "rtx5080": (56.3, 112.6, 112.6, 225.1),
    "rtx5090": (104.8, 209.5, 209.5, 419), "mi100": (None, 184.6, 92.3, None), "mi210": (None, 181, 181, None),
    "mi250": (None, 181, 181, None), "mi300x": (653.7, 1307.4, 1307.4, 2614.9),
}  # fmt: skip
LANE_GBPS = {3: 0.985, 4: 1.97, 5: 3.94}  # PCIe, GB/s in one direction, by generation (PCI-SIG)


def test_every_device_has_the_numbers_of_its_data_sheet_and_says_which() -> None:
    assert catalogue().devices.keys() == DATA_SHEETS.keys()
    for name, (flops, bandwidth, memory) in DATA_SHEETS.items():
        found = device(name)
        assert found.flops_per_second == pytest.approx(flops * 1e12)
        assert found.bytes_per_second == pytest.approx(bandwidth * 1e9)
        assert found.memory_bytes == memory * GIB
        assert found.launch_seconds == (1e-6 if found.kind == "cpu" else 5e-6)
        assert catalogue().devices[name].source


def test_products_in_other_precisions_are_as_fast_as_data_sheets_say() -> None:
    for name, figures in PRODUCTS.items():
        peaks = device(name).flops_by_precision
        for precision, figure in zip(("tf32", "fp16", "bf16", "fp8"), figures, strict=True):
            assert peaks.get(precision) == (figure and pytest.approx(figure * 1e12)), (name, precision)
    for name in catalogue().devices.keys() - PRODUCTS.keys():  # GeForce cards in no white paper: as their relatives
        own = device(name)
        assert {key: round(peak / own.flops_per_second) for key, peak in own.flops_by_precision.items()} in (
            {}, {"tf32": 1, "fp16": 2, "bf16": 2, "int8": 8}, {"tf32": 1, "fp16": 2, "bf16": 2, "fp8": 4, "int8": 8}
        )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "meant", "devices", "bandwidth"),
    [
        ("a100x2", "mixed:a100-80gbx2,link=nvlink3", 2, 300),
        ("a10040x2", "mixed:a100-40gbx2,link=nvlink3", 2, 300),
        ("h100x8", "mixed:h100x8,link=nvlink4", 8, 450),
        ("rtx4090x2", "mixed:rtx4090x2,link=pcie4x16", 2, 24),
        ("RTX 4090x2", "mixed:rtx4090x2,link=pcie4x16", 2, 24),
        ("4090x2", "mixed:rtx4090x2,link=pcie4x16", 2, 24),
        ("rtx4090+rtx3060", "mixed:rtx4090+rtx3060,link=pcie4x16", 2, 24),
        ("h100+rtx5090", "mixed:h100@nvlink4+rtx5090@pcie5x16", 2, None),
        ("a100-40gbx2/a100-40gbx2", "mixed:a100-40gbx2/a100-40gbx2,link=nvlink3,network=10gbe", 4, 300),
        ("a6000x4", "mixed:rtx-a6000x4,link=pcie4x16", 4, 24),
        ("h100x2/m2", "mixed:h100x2/m2,link=nvlink4,network=10gbe", 3, 450),
        ("h100", "mixed:h100", 1, None),
    ],
)
def test_devices_in_place_of_a_cluster_get_the_cluster_of_these(
    given: str, meant: str, devices: int, bandwidth: float | None
) -> None:
    assert load_cluster(given).fingerprint == load_cluster(meant).fingerprint
    assert len(load_cluster(meant)) == devices
    assert load_cluster(given).name == load_cluster(meant).name
    if bandwidth is not None:
        assert load_cluster(meant).bandwidth[0, 1] == pytest.approx(bandwidth * 1e9, rel=0.01)


@pytest.mark.parametrize(
    "name", ["rtx", "x2", "", "+", "/", "a100x0", "nothing", "a100-90gb", "gpu:0", "m2x2", "m2+h100"]
)
def test_what_is_no_device_makes_no_cluster(name: str) -> None:
    assert cluster_of_devices(name) == ""


def test_three_quarters_of_a_lane_count() -> None:
    for generation, lane in LANE_GBPS.items():
        for lanes in (4, 8, 16):
            assert link(f"pcie{generation}x{lanes}").bandwidth == pytest.approx(0.76 * lane * lanes * 1e9, rel=0.01)


def test_networks_carry_what_their_names_say() -> None:
    for name, entry in catalogue().links.items():
        if name.endswith("gbe") or name.startswith("infiniband"):
            digits = int("".join(filter(str.isdigit, name)))
            assert link(name).bandwidth == digits * 1e9 / 8
        assert link(name).latency_seconds > 0
        assert entry.source


def test_newer_nvlinks_are_faster() -> None:
    bandwidths = [link(f"nvlink{generation}").bandwidth / 1e9 for generation in (1, 2, 3, 4, 5)]
    assert bandwidths == [80, 150, 300, 450, 900]


def test_presets_are_made_of_it() -> None:
    assert load_cluster("p100x2").devices[0].flops_per_second == device("p100").flops_per_second
    assert load_cluster("p100x2").bandwidth[0, 1] == link("pcie3x16").bandwidth == 12e9
    assert load_cluster("v100x4").bandwidth[0, 3] == 2 * 25e9
    assert load_cluster("dgx_h100:servers=2").bandwidth[0, 8] == link("infiniband400").bandwidth


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown device 'rtx3091'; did you mean 'rtx3090'\? there are: k80, "):
        device("rtx3091")
    with pytest.raises(InputError, match=r"unknown link 'pcie4x1'; did you mean 'pcie4x16'\?"):
        link("pcie4x1")


def test_own_names_are_added_and_may_not_mean_something_else() -> None:
    card = CatalogueDevice(kind="gpu", flops_per_second=1e12, bytes_per_second="1GB/s", memory="1GiB")
    own = Catalogue(devices={"card": card}, links={"cable": CatalogueLink(bandwidth="1GB/s")})
    both = catalogue().extended(own)
    assert both.device("card").memory_bytes == GIB
    assert both.link("cable").bandwidth == 1e9
    assert both.device("t4") == device("t4")
    with pytest.raises(InputError, match=r"catalogue\.devices\.t4: this name is in placelab's catalogue"):
        catalogue().extended(Catalogue(devices={"t4": card}))


def test_a_wrong_quantity_is_refused_by_its_place() -> None:
    wrong = Catalogue(devices={"card": CatalogueDevice(kind="gpu", flops_per_second=0, bytes_per_second=1, memory=1)})
    with pytest.raises(InputError, match=r"devices\.card\.flops_per_second: expected a number of FLOP/s > 0, got 0"):
        wrong.device("card")
