"""Cost models by name: what an op costs by the roofline, at peak or less, and as recorded in a file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.costs.cost_models.roofline import Roofline
from envs.costs.costs import load_cost_model, timed
from envs.costs.efficiency_file import Efficiencies, Efficiency, KindClass, load_efficiencies, save_efficiencies
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster, Device
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import SPARSE, OpGraph
from graphs.problem import Problem
from tests.oracle.toys import Toy, toy_cluster, toy_graph

KINDS = ("aten.mm", "aten.mm.grad", "aten.mm.grad_weight", "aten.relu", "aten.slice")
FLOPS = [8.0, 8.0, 8.0, 0.0, 0.0]
BYTES = [2.0, 2.0, 12.0, 4.0, 0.0]


def cpu_and_gpu(launch: float = 0.0) -> Cluster:
    devices = (Device("c", "cpu", 1.0, 1.0, 100.0, launch), Device("g", "gpu", 4.0, 2.0, 100.0, launch))
    return Cluster("both", devices, np.ones((2, 2)), np.ones((2, 2)), np.zeros((2, 2), np.int64))


def graph(measured: list[float] | None = None) -> OpGraph:
    return OpGraph(
        "g", ("a", "b", "c", "d", "e"), KINDS, np.array(FLOPS), np.array(BYTES), np.ones(5),
        np.array([[0, 1], [1, 2]]), measured_seconds=np.array(measured or []),
    )  # fmt: skip


def seconds(spec: str, cluster: Cluster, of: OpGraph | None = None) -> list[list[float]]:
    costs: list[list[float]] = load_cost_model(spec).costs(Problem(of or graph(), cluster)).op_seconds.tolist()
    return costs


def written(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def times(path: Path, ops: list[dict[str, object]]) -> str:
    return written(path, {"schema": "placelab.times", "version": 1, "ops": ops})


# ---- by name -------------------------------------------------------------------------------------------------


def test_a_cost_model_is_itself_or_found_by_its_spec() -> None:
    model = Roofline()
    assert load_cost_model(model) is model
    assert isinstance(load_cost_model("roofline"), Roofline)
    assert {"profiled", "recorded", "roofline"} <= set(by_name.names("envs.costs.cost_models"))
    with pytest.raises(InputError, match="did you mean 'roofline'"):
        load_cost_model("rooflin")


@pytest.mark.parametrize("name", by_name.built_in("envs.costs.cost_models"))
def test_its_first_line_says_what_it_is(name: str) -> None:
    assert 20 < len(by_name.constants("envs.costs.cost_models", name)["doc"]) < 120


# ---- roofline ------------------------------------------------------------------------------------------------


def test_at_peak_the_roofline_is_the_longer_of_arithmetic_and_traffic() -> None:
    expected = [[8.0, 2.0], [8.0, 2.0], [12.0, 6.0], [4.0, 2.0], [0.0, 0.0]]
    assert seconds("roofline", cpu_and_gpu()) == expected
    assert seconds("roofline:efficiency=peak", cpu_and_gpu()) == expected


def test_efficiencies_stretch_each_side_of_the_roofline_by_kind(tmp_path: Path) -> None:
    product = KindClass(name="product", kinds=["aten.mm"], arithmetic=0.5, traffic=0.25)
    gradient = KindClass(name="gradient", kinds=["aten.mm.grad_weight"], arithmetic=1.0, traffic=2.0)
    other = Efficiency(arithmetic=1.0, traffic=0.5)
    path = tmp_path / "mine.toml"
    save_efficiencies(Efficiencies(source="a test", classes=[product, gradient], other=other), path)
    assert seconds(f"roofline:efficiency={path}", cpu_and_gpu()) == [
        [16.0, 4.0],  # 8 FLOP at half speed; 2 bytes at a quarter are 8 and 4 s
        [16.0, 4.0],  # a backward op is of its forward op's class,
        [8.0, 3.0],  # unless it is listed itself
        [8.0, 4.0],
        [0.0, 0.0],  # what is free stays free
    ]


def test_a_launch_is_counted_once_and_by_the_simulator() -> None:
    one = toy_graph([3.0, 2.0], [(0, 1)])
    for launch in (0.0, 10.0):
        problem = Problem(one, toy_cluster(1, launch=launch))
        assert Roofline().costs(problem).op_seconds.tolist() == [[3.0], [2.0]]
        assert Simulator(timed(problem, Roofline())).run([0, 0]).step_seconds == 3.0 + launch + 2.0


def test_typical_efficiencies_are_below_peak_and_list_real_kinds() -> None:
    typical = load_efficiencies("typical")
    for each in (*typical.classes, typical.other):
        assert 0 < each.arithmetic < 1
        assert 0 < each.traffic < 1
    import torch

    for kind in (kind for each in typical.classes for kind in each.kinds):
        assert hasattr(torch.ops.aten, kind.removeprefix("aten.").removesuffix(SPARSE)), kind
    peak, less = (np.array(seconds(spec, cpu_and_gpu())) for spec in ("roofline", "roofline:efficiency=typical"))
    assert (less[:4] > peak[:4]).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('schema = "placelab.efficiency"\nversion = 2\nsource = ""', "written as version 2, this placelab reads"),
        ('schema = "placelab.efficiency"\nversion = 1\nsource = ""\nother = { traffic = 0 }', r"other.traffic: .* > 0"),
        ('schema = "placelab.efficiency"\nversion = 1\nsource = ""\nelse = 1', "unknown key 'else'"),
        (
            'schema = "placelab.efficiency"\nversion = 1\nsource = ""\n'
            '[[classes]]\nname = "x"\nkinds = ["k"]\n[[classes]]\nname = "y"\nkinds = ["k"]',
            "kind 'k' is listed twice",
        ),
        ('schema = "placelab.efficiency"\nversion = 1\nsource = ""\n[gpus.h10]\nclasses = {}', "mean 'h100'"),
        (
            'schema = "placelab.efficiency"\nversion = 1\nsource = ""\n[gpus.h100]\nlike = ["h100"]\nclasses = {}',
            "h100 is listed twice",
        ),
        (
            'schema = "placelab.efficiency"\nversion = 1\nsource = ""\n[gpus.h100]\nclasses.products = { half = 1 }',
            "unknown class 'products'",
        ),
    ],
)
def test_a_bad_efficiency_file_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_cost_model(f"roofline:efficiency={path}")


def test_an_unknown_efficiency_gets_what_exists() -> None:
    with pytest.raises(InputError, match=r"did you mean 'typical'\? there are: peak, measured, typical"):
        load_cost_model("roofline:efficiency=typicl")
    with pytest.raises(InputError, match=r"none\.toml does not exist"):
        load_cost_model("roofline:efficiency=none.toml")


# ---- recorded ------------------------------------------------------------------------------------------------


def test_the_most_specific_recorded_time_holds(tmp_path: Path) -> None:
    file = times(
        tmp_path / "times.json",
        [
            {"name": "a", "seconds": {"cpu": 5, "gpu": 1}},
            {"kind": "aten.mm.grad", "flops": 8, "bytes_accessed": 2, "seconds": {"cpu": 6, "gpu": 2}},
            {"kind": "aten.mm.grad", "seconds": {"cpu": 60, "gpu": 20}},
            {"kind": "aten.mm.grad_weight", "seconds": {"cpu": 7, "gpu": 3}},
            {"kind": "aten.mm", "seconds": {"cpu": 99, "gpu": 99}},
            {"name": "d", "seconds": {"cpu": 8}},
            {"kind": "aten.relu", "seconds": {"gpu": 4}},
        ],
    )
    spec = f"recorded:file={file}"
    assert seconds(spec, cpu_and_gpu()) == [[5.0, 1.0], [6.0, 2.0], [7.0, 3.0], [8.0, 4.0], [0.0, 0.0]]


def test_without_a_file_the_graph_s_own_times_hold() -> None:
    of = graph([1.0, 2.0, 3.0, 4.0, 0.0])
    assert seconds("recorded", toy_cluster(2), of) == [[1.0] * 2, [2.0] * 2, [3.0] * 2, [4.0] * 2, [0.0] * 2]
    with pytest.raises(InputError, match=r"hold on one kind of device, but 'both' has cpu and gpu; .*file=FILE"):
        seconds("recorded", cpu_and_gpu(), of)
    with pytest.raises(InputError, match=r"holds no time on 'gpu' devices for 5 of the 5 ops of 'g': 'a' \(aten\.mm\)"):
        seconds("recorded", toy_cluster(2), graph())


def test_a_missing_time_is_refused_by_name_or_taken_from_the_roofline(tmp_path: Path) -> None:
    file = times(tmp_path / "times.json", [{"kind": "aten.mm", "seconds": {"cpu": 5, "gpu": 1}}])
    with pytest.raises(InputError, match=r"for 3 of the 5 ops of 'g': 'b' \(aten.mm.grad\), .*otherwise=roofline"):
        seconds(f"recorded:file={file}", cpu_and_gpu())
    taken = seconds(f"recorded:file={file},otherwise=roofline", cpu_and_gpu())
    assert taken == [[5.0, 1.0], [8.0, 2.0], [12.0, 6.0], [4.0, 2.0], [0.0, 0.0]]
    with pytest.raises(InputError, match="unknown choice of otherwise 'roof'; did you mean 'roofline'"):
        seconds(f"recorded:file={file},otherwise=roof", cpu_and_gpu())


def test_a_kind_of_device_without_times_is_refused(tmp_path: Path) -> None:
    file = times(tmp_path / "times.json", [{"kind": kind, "seconds": {"cpu": 5}} for kind in KINDS])
    with pytest.raises(InputError, match=r"no times on 'gpu' devices, which 'both' has; it knows 'cpu'"):
        seconds(f"recorded:file={file}", cpu_and_gpu())


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"name": "a", "seconds": {"gpu": -1}}, r"ops\[0\]\.seconds.*: expected a number >= 0"),
        ({"seconds": {"gpu": 1}}, r"ops\[0\]: expected a name, or a kind"),
        ({"name": "a", "kind": "k", "seconds": {}}, r"ops\[0\]: expected a name, or a kind"),
        ({"kind": "k", "flops": 1, "seconds": {}}, r"with both flops and bytes_accessed"),
        ({"kind": "k", "second": {}}, r"ops\[0\]"),
    ],
)
def test_a_bad_recorded_op_is_refused(op: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_cost_model(f"recorded:file={times(tmp_path / 'times.json', [op])}")


def test_two_recorded_times_of_the_same_are_refused(tmp_path: Path) -> None:
    twice = times(tmp_path / "times.json", [{"name": "a", "seconds": {"gpu": 1}}, {"name": "a", "seconds": {"cpu": 2}}])
    with pytest.raises(InputError, match=r"ops\[1\] is about the same as ops\[0\]"):
        load_cost_model(f"recorded:file={twice}")
    with pytest.raises(InputError, match="does not exist"):
        load_cost_model(f"recorded:file={tmp_path / 'none.json'}")


def test_a_simulation_takes_recorded_times(four_ops_two_devices: Toy, tmp_path: Path) -> None:
    problem = four_ops_two_devices.problem
    file = times(tmp_path / "times.json", [{"kind": "toy", "seconds": {"gpu": 2}}])
    simulator = Simulator(timed(problem, f"recorded:file={file}"))
    assert simulator.run([0, 0, 0, 0]).step_seconds == 8.0
    slower = replace(problem, cluster=toy_cluster(2, launch=1.0))
    assert Simulator(timed(slower, f"recorded:file={file}")).run([0, 0, 0, 0]).step_seconds == 8.0 + 3.0
