"""Efficiencies by GPU and size: which GPU stands for a device, and what small ops and convolutions by Winograd take."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.cost_models.roofline import Roofline, stand_in_remark
from envs.costs.costs import timed
from envs.costs.efficiency_file import Efficiencies, Efficiency, GpuClasses, KindClass, load_efficiencies
from envs.costs.kernel_kinds import kernel_kinds
from envs.costs.nearest_gpu import nearest_gpu, stand_ins
from envs.expansion.shares import shared
from graphs.cluster import Cluster, Device
from graphs.descriptions.another_batch import with_batch
from graphs.descriptions.descriptions import descriptions_of
from graphs.devices.catalogue import catalogue, device
from graphs.files.load import load_graph
from graphs.formats.graph_file import save_graph
from graphs.notation.signatures import Read, Signature, Signatures
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem

MEASURED = "roofline:efficiency=measured"
HALF = 2e-3
PRODUCT = KindClass(name="product", kinds=["aten.mm"], arithmetic=0.5)
SMALL = Efficiencies(
    source="a test",
    classes=[PRODUCT],
    gpus={
        "h100": GpuClasses(like=["h200"], classes={"product": Efficiency(arithmetic=0.8, half=HALF)}),
        "p4": GpuClasses(like=["l4"], classes={"other": Efficiency(traffic=0.25)}),
    },
)


def problem(flops: list[float], *devices: Device, kind: str = "aten.mm") -> Problem:
    ops = len(flops)
    names = tuple(f"op{op}" for op in range(ops))
    graph = OpGraph("g", names, (kind,) * ops, np.array(flops), np.zeros(ops), np.ones(ops), np.zeros((0, 2), np.int64))
    return Problem(graph, cluster_of(*devices))


def cluster_of(*devices: Device) -> Cluster:
    """Their cluster, on one bus."""
    named = tuple(replace(each, name=f"d{number}") for number, each in enumerate(devices))
    links, one_bus = np.ones((len(named), len(named))), np.zeros((len(named), len(named)), np.int64)
    return Cluster("c", named, links, links, one_bus)


def seconds(flops: list[float], *devices: Device, kind: str = "aten.mm") -> list[list[float]]:
    given: list[list[float]] = Roofline(SMALL).costs(problem(flops, *devices, kind=kind)).op_seconds.tolist()
    return given


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_an_op_of_the_half_size_takes_twice_as_long_as_at_its_share() -> None:
    h100 = device("h100")
    at_share = HALF * 0.8 * h100.flops_per_second  # FLOP that take HALF seconds at the share of large ops
    ((half,), (hundred,), (nothing,)) = seconds([at_share, 100 * at_share, 0.0], h100)
    assert half == pytest.approx(2 * HALF)
    assert hundred == pytest.approx(HALF * (100 + 10))  # t + sqrt(half t)
    assert nothing == 0.0


@given(st.lists(st.floats(0, 1e18), min_size=2, max_size=2).map(sorted), st.sampled_from(sorted(catalogue().devices)))
def test_more_work_never_takes_less(flops: list[float], name: str) -> None:
    for efficiencies in (SMALL, load_efficiencies("measured")):
        less, more = Roofline(efficiencies).costs(problem(flops, device(name))).op_seconds[:, 0]
        assert less <= more


def test_a_typical_share_has_no_half_size() -> None:
    typical = load_efficiencies("typical")
    assert not typical.gpus
    assert {each.half for each in (typical.other, *typical.classes)} == {0.0}


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def test_each_device_has_the_shares_of_its_gpu() -> None:
    h100, p4, cpu = device("h100"), device("p4"), device("server-cpu")
    ((on_h100, on_p4, on_cpu),) = seconds([1e18], h100, p4, cpu)
    large = 1e18 / (0.8 * h100.flops_per_second)
    assert on_h100 == pytest.approx(large + np.sqrt(HALF * large))
    assert on_p4 == 1e18 / 0.5 / p4.flops_per_second  # its file has no numbers of this class: those of any device
    assert on_cpu == 1e18 / 0.5 / cpu.flops_per_second
    ((unlisted,),) = seconds([1e18], p4, kind="aten.sin")
    assert unlisted == 1e18 / p4.flops_per_second


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("h100", "h100"), ("h200", "h100"), ("l4", "p4"), ("t4", "p4"), ("server-cpu", "")],
)
def test_a_device_is_taken_for_the_gpu_with_the_nearest_data_sheet(name: str, gpu: str) -> None:
    assert nearest_gpu(device(name), SMALL.measured_as()) == gpu
    mine = replace(device(name), name="mine", memory_bytes=1.0, launch_seconds=1.0)
    assert nearest_gpu(mine, SMALL.measured_as()) == gpu


def test_nothing_is_near_where_no_gpu_was_measured() -> None:
    assert nearest_gpu(device("h100"), {}) == ""


def test_devices_that_were_not_measured_are_named_with_what_stands_for_them() -> None:
    devices = [replace(device(name), name=name) for name in ("h100", "h200", "l4", "server-cpu")]
    assert stand_ins(devices, SMALL.measured_as()) == {"h100": ["h200"], "p4": ["l4"]}


def test_a_report_says_which_gpu_stands_for_a_device() -> None:
    l4, h100 = (timed(problem([1e9], device(name)), MEASURED) for name in ("l4", "h100"))
    assert stand_in_remark(l4) == "times of d0 by the shares of the peak that were measured on p4"
    assert stand_in_remark(h100) == ""
    assert stand_in_remark(timed(problem([1e9], device("l4")), "roofline:efficiency=typical")) == ""
    assert stand_in_remark(replace(l4, timed_by="given times")) == ""


def test_the_measured_efficiencies_are_of_gpus_and_reach_what_is_possible() -> None:
    measured = load_efficiencies("measured")
    assert {"h100", "a100-40gb-pcie", "v100-pcie", "p100", "p4", "mi100", "mi210"} == set(measured.gpus)
    for gpu in measured.gpus.values():
        for name, each in gpu.classes.items():
            assert 0 < each.traffic <= 1
            assert each.half < 2e-3
            assert each.arithmetic <= {"winograd": 2.25, "causal-attention": 2}.get(name, 1)
        attention, causal = (gpu.classes.get(name) for name in ("attention", "causal-attention"))
        assert not (attention and causal) or 1.8 <= causal.arithmetic / attention.arithmetic <= 2
    assert not {name for name in catalogue().devices if name.startswith(("rtx", "a100", "h", "v100"))} - set(
        measured.measured_as()
    )


# ---- convolutions by Winograd ----------------------------------------------------------------------------------------


def convolution(kernel: int = 3, stride: int = 1, dilation: int = 1, groups: int = 1) -> Signature:
    reads = tuple(Read(shape, "float32", shape) for shape in ((8, 64, 56, 56), (64, 64 // groups, kernel, kernel)))
    move, pad, skip = [stride] * 2, [kernel // 2] * 2, [dilation] * 2
    arguments = ({"read": 0}, {"read": 1}, None, move, pad, skip, False, [0, 0], groups)
    return Signature("aten.convolution", reads, ((8, 64, 56, 56),), "float32", arguments)


def step_of(signature: Signature, precision: str = "") -> OpGraph:
    kinds = ("aten.convolution", "aten.convolution.grad", "aten.convolution.grad_weight")
    work, edges = np.full(3, 1e9), np.array([[0, 1], [0, 2]])
    signatures = Signatures((signature,), np.array([0, -1, -1]), np.array([0, 2, 2, 2]), np.array([-1, -2]))
    mirror, precisions = np.array([-1, 0, 0]), (precision,) * 3
    of = OpGraph("g", ("f", "i", "w"), kinds, work, work, work, edges, mirror=mirror, signatures=signatures)
    return replace(of, precisions=precisions)


def test_kernels_of_three_by_three_are_computed_by_winograd_but_for_gradients_of_weights() -> None:
    kinds = kernel_kinds(step_of(convolution()))
    assert kinds == ("aten.convolution.winograd", "aten.convolution.winograd.grad", "aten.convolution.grad_weight")


@pytest.mark.parametrize(
    "of",
    [
        step_of(convolution(kernel=1)),
        step_of(convolution(stride=2)),
        step_of(convolution(dilation=2)),
        step_of(convolution(groups=64)),
        step_of(convolution(), "tf32"),
    ],
)
def test_other_convolutions_are_not(of: OpGraph) -> None:
    assert kernel_kinds(of) == of.kinds


@pytest.mark.parametrize(("dimension", "end"), [(-1, ".wide"), (0, "")])
def test_softmax_over_many_elements_is_wide(dimension: int, end: str) -> None:
    read = Read((4, 2000), "float32", (4, 2000))
    softmax = Signature("aten._softmax", (read,), ((4, 2000),), "float32", ({"read": 0}, dimension, False))
    given = step_of(convolution())
    kinds = ("aten._softmax", "aten._softmax.grad", "aten.relu")
    signatures = Signatures((softmax,), np.array([0, -1, -1]), np.array([0, 1, 1, 1]), np.array([-1]))
    graph = replace(given, kinds=kinds, signatures=signatures, mirror=np.array([-1, 0, -1]))
    assert kernel_kinds(graph) == (f"aten._softmax{end}", f"aten._softmax{end}.grad", "aten.relu")
    backward = KindClass(name="backward", kinds=["aten._softmax.grad"], traffic=0.3)
    wide = KindClass(name="wide", kinds=["aten._softmax.wide"], traffic=0.5)
    shares = Efficiencies(source="a test", classes=[backward, wide]).of(kernel_kinds(graph)).traffic.tolist()
    assert shares == [0.5 if end else 1.0, 0.3, 1.0]


@pytest.mark.parametrize(
    ("words", "inner", "precision", "end"),
    [(50257, 64, "fp16", ".unaligned"), (50257, 64, "bf16", ".unaligned"), (64, 50257, "fp16", ".unaligned"),
     (50304, 64, "fp16", ""), (50257, 64, "", ""), (50257, 64, "tf32", "")],
)  # fmt: skip
def test_products_of_unaligned_rows_in_half_precision_are_apart(
    words: int, inner: int, precision: str, end: str
) -> None:
    reads = tuple(Read(shape, "float16", shape) for shape in ((5, inner), (inner, words)))
    product = Signature("aten.mm", reads, ((5, words),), "float16", ({"read": 0}, {"read": 1}))
    kinds = ("aten.mm", "aten.mm.grad", "aten.mm.grad_weight")
    of = kernel_kinds(replace(step_of(product, precision), kinds=kinds))
    assert of == tuple(kind.replace("aten.mm", f"aten.mm{end}") for kind in kinds)
    assert load_efficiencies("typical").of(of).arithmetic.tolist() == [0.7] * 3
    assert load_efficiencies("measured").of(of, "v100-pcie").arithmetic.max() < (0.3 if end else 1)


def test_causal_attention_takes_half_as_long_for_the_same_flop(tmp_path: Path) -> None:
    sizes, a100 = "layers=1,width=1024,heads=8,sequence=8192,attention=sdpa,batch=1", cluster_of(device("a100-40gb"))
    causal, whole = load_graph(f"transformer:{sizes}"), load_graph(f"bert:{sizes}")
    save_graph(causal, tmp_path / "g.graph.json")
    kind = "aten.scaled_dot_product_attention"
    taken = []
    for graph, end in ((causal, ".causal"), (load_graph(str(tmp_path / "g.graph.json")), ".causal"), (whole, "")):
        kinds = kernel_kinds(graph)
        ops = [kinds.index(f"{kind}{end}"), kinds.index(f"{kind}{end}.grad")]
        assert graph.flops[ops].tolist() == [
            4 * 8192**2 * 1024,
            2.5 * 4 * 8192**2 * 1024,
        ]  # all pairs, as PyTorch has it
        taken.append(np.asarray(timed(Problem(graph, a100), MEASURED).op_seconds)[ops, 0])
    assert taken[0].tolist() == taken[1].tolist()
    assert taken[0] == pytest.approx(taken[2] / 2, rel=1e-9)


@pytest.mark.parametrize(
    ("causal", "sizes", "seconds"),
    [(False, (8, 12, 512, 64), 22.99e-6), (False, (2, 32, 2048, 128), 219.1e-6), (False, (1, 32, 8192, 128), 1616e-6),
     (True, (8, 12, 512, 64), 22.18e-6), (True, (2, 32, 2048, 128), 149.3e-6), (True, (1, 32, 8192, 128), 891.2e-6)],
)  # fmt: skip
def test_attention_on_h100_takes_what_was_measured(
    causal: bool, sizes: tuple[int, int, int, int], seconds: float
) -> None:
    """By `evaluation/gpu_check/measured/h100.md`, in bf16."""
    kind = "aten.scaled_dot_product_attention" + ".causal" * causal
    batch, heads, steps, width = sizes
    of, h100 = load_efficiencies("measured").of([kind], "h100"), device("h100")
    computing = 4 * batch * heads * steps**2 * width / of.arithmetic[0] / h100.peak("bf16")
    moving = 4 * batch * heads * steps * width * 2 / of.traffic[0] / h100.bytes_per_second
    said = max(computing, moving)
    assert said + np.sqrt(of.half[0] * said) == pytest.approx(seconds, rel=0.15)


def test_where_no_class_lists_winograd_it_is_a_convolution() -> None:
    kinds = kernel_kinds(step_of(convolution()))
    typical = load_efficiencies("typical")
    assert typical.of(kinds).arithmetic.tolist() == typical.of(["aten.convolution"] * 3).arithmetic.tolist()


def test_a_part_of_the_batch_is_computed_as_the_whole_is() -> None:
    cluster, whole = cluster_of(device("v100-pcie")), replace(step_of(convolution()), batch_law=BatchLaw(8))
    part = shared(timed(Problem(whole, cluster), MEASURED), 0.5).op_seconds
    half = replace(whole, flops=whole.flops / 2, bytes_accessed=whole.bytes_accessed / 2)
    expected = timed(Problem(half, cluster), MEASURED).op_seconds
    assert part is not None
    assert expected is not None
    assert part.tolist() == expected.tolist()


def test_another_batch_is_computed_as_if_it_was_captured_with_it_and_so_is_its_file(tmp_path: Path) -> None:
    spec, cluster = "transformer:layers=1,width=32,heads=2,sequence=16,vocabulary=2048", cluster_of(device("v100-pcie"))
    given, of_other = load_graph(f"{spec},batch=2"), with_batch(load_graph(f"{spec},batch=8", with_law=True), 2)
    save_graph(of_other, tmp_path / "g.graph.json")
    read = load_graph(str(tmp_path / "g.graph.json"))
    expected, *found = (timed(Problem(each, cluster), MEASURED).op_seconds for each in (given, of_other, read))
    assert "aten._log_softmax.wide" in kernel_kinds(given)
    for seconds in found:
        assert np.array_equal(np.asarray(seconds), np.asarray(expected))
    assert not any(descriptions_of(read))  # whose shapes would be those of the other batch
