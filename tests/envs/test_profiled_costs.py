"""Ops run one by one on this machine, what is kept of it, and the cost model that reads it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from envs.costs import timing
from envs.costs.busy_machine import BusyGuard
from envs.costs.costs import load_cost_model, timed
from envs.costs.profile_file import MeasuredOp, Profile, load_profile, save_profile
from envs.costs.profiling import profile
from envs.costs.timing import OpTimer, RefusedError, Sample, torch_device
from envs.simulation.simulator import Simulator
from graphs.capture.op_calls import CapturedCalls, OpCall, TensorLike, distinct_ops, load_calls
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.transforms.mixed_precision import in_precision
from tests.oracle.toys import toy_cluster

TWO_TOWERS = f"{Path(__file__).parents[1] / 'fixtures' / 'user_module.py'}:two_towers"
RNNLM = "rnnlm:layers=1,steps=2,hidden=4,batch=2,vocabulary=8"


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """The machine's own speed is measured with less work, and less well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(timing._PRODUCT, "cpu", 256)
        patch.setitem(timing._COPY, "cpu", 2**24)
        yield


@pytest.fixture(scope="module")
def captured() -> CapturedCalls:
    return load_calls(TWO_TOWERS)


@pytest.fixture(scope="module")
def measured(captured: CapturedCalls, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of the two towers."""
    path = tmp_path_factory.mktemp("profiles") / "towers.profile.json"
    profile(captured, path, repeats=2, device="cpu")
    return path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Signatures of the ops that were run, in order."""
    run, signatures = OpTimer.run, list[str]()

    def noted(timer: OpTimer, call: OpCall) -> Sample:
        signatures.append(call.signature)
        return run(timer, call)

    monkeypatch.setattr(OpTimer, "run", noted)
    return signatures


# ---- what is measured ----------------------------------------------------------------------------------------


def test_each_distinct_op_is_measured_once(captured: CapturedCalls, measured: Path) -> None:
    found = load_profile(measured)
    assert [op.signature for op in found.ops] == [op.call.signature for op in distinct_ops(captured)]
    assert [op.ops for op in found.ops] == [{"user_module:two_towers": op.names} for op in distinct_ops(captured)]
    counts = {op.signature: sum(map(len, op.ops.values())) for op in found.ops}
    assert counts["aten.mm(float32[2, 4], float32[4, 4]/[1, 4])"] == 2
    assert sum(counts.values()) == sum(call is not None for call in captured.calls)
    for op in found.ops:
        assert op.seconds > 0
        assert op.spread >= 0
        assert 1 <= op.repeats <= 2
        assert op.how == "measured"
    assert not found.refused


def test_the_machine_is_described(measured: Path) -> None:
    found = load_profile(measured)
    machine, device = found.machine, found.machine.device()
    assert (machine.kind, machine.torch) == ("cpu", torch.__version__)
    assert machine.name
    assert machine.threads == torch.get_num_threads()
    assert device.flops_per_second == machine.flops_per_second > 1e6
    assert device.bytes_per_second == machine.bytes_per_second > 1e6
    assert 0 < device.launch_seconds < 1e-2
    assert found.date[:2] == "20"


@pytest.mark.parametrize("what", ["inception:blocks=1,width=4,image=32,batch=2", RNNLM])
def test_families_run_op_by_op(what: str, tmp_path: Path) -> None:
    captured = load_calls(what)
    found = profile(captured, tmp_path / "one.profile.json", repeats=1, device="cpu")
    assert not found.refused
    seconds = found.seconds(captured.graph)
    free = np.array([call is None for call in captured.calls])
    assert (seconds[~free] > 0).all()
    assert (seconds[free] == 0).all()


def test_a_profile_that_is_returned_is_the_one_that_was_saved_whenever_that_was(
    captured: CapturedCalls, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count()
    clock = SimpleNamespace(now=lambda zone: datetime(2020, 1, 1, tzinfo=zone) + timedelta(seconds=next(seconds)))
    monkeypatch.setattr("envs.costs.profiling.datetime", clock)
    path = tmp_path / "towers.profile.json"
    save_profile(load_profile(measured), path)
    assert profile(captured, path, repeats=2, device="cpu") == load_profile(path)


def test_a_device_is_named_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of "cuda" is the current one, as PyTorch has it where it makes a tensor."""
    made = SimpleNamespace(device=torch.device("cuda", 1))
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch, "empty", lambda size, device: {"cuda": made}[device])
    assert torch_device("cuda") == torch_device("") == torch.device("cuda", 1)


def test_a_file_is_extended_and_nothing_measured_twice(
    captured: CapturedCalls, measured: Path, asked: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "both.profile.json.gz"
    save_profile(load_profile(measured), path)
    before = load_profile(path)
    assert profile(captured, path, repeats=2, device="cpu").ops == before.ops
    assert asked == []
    other = load_calls(RNNLM)
    both = profile(other, path, repeats=1, device="cpu")
    new = {op.call.signature for op in distinct_ops(other)} - {op.signature for op in before.ops}
    assert set(asked) == new
    assert (both.seconds(captured.graph) == before.seconds(captured.graph)).all()
    assert not np.isnan(both.seconds(other.graph)).any()
    assert load_profile(path) == both


@pytest.mark.parametrize("slowest", [1.05, 1.3])
def test_a_machine_that_is_busy_with_something_else_is_said_to_be(
    slowest: float, captured: CapturedCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    takes = [2e-3, 2e-3 * slowest]
    monkeypatch.setattr(OpTimer, "reference_seconds", lambda timer: takes.pop(0))
    path = tmp_path / "towers.profile.json"
    profile(captured, path, repeats=1, device="cpu")
    assert takes == []  # before and after
    said = [record.message for record in caplog.records]
    if slowest > 1.1:
        assert said == [
            "this machine was busy with something else while it was measured: a reference product took between 2 and "
            f"2.6 ms, 30% more; end other programs, remove {path} and profile again"
        ]
    else:
        assert said == []
    profile(captured, path, repeats=1, device="cpu")  # nothing is measured, and the reference neither


def test_the_reference_is_timed_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 5.0
    monkeypatch.setattr("envs.costs.busy_machine.time.monotonic", lambda: now)
    guard = BusyGuard(lambda: [[now], [1.0, 1.0]])
    assert guard.warning("wait") == ""
    for now in (5.0, 10.0, 15.0, 16.0, 27.0):  # noqa: B007  # the guard reads it
        guard.look_now_and_then()
    assert [look[0] for look in guard.looks] == [[5.0], [16.0], [27.0]]
    assert guard.range == (5.0, 27.0)


def test_the_lower_quartile_of_the_samples_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = OpTimer(torch.device("cpu"), 5)
    clocked = iter([9.0] * 3 + [5.0, 3.0, 1.0, 2.0, 40.0])  # three calls warm up
    monkeypatch.setattr(OpTimer, "_clocked", lambda timer, call, calls: next(clocked))
    assert timer.time(lambda: None) == Sample(2.0, (5.0 - 2.0) / 3.0, 5)


def test_an_interruption_keeps_what_was_measured(
    captured: CapturedCalls, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path = OpTimer.run, tmp_path / "towers.profile.json"

    def interrupted(timer: OpTimer, call: OpCall) -> Sample:
        if len(asked) == 5:
            raise KeyboardInterrupt
        return run(timer, call)

    with monkeypatch.context() as patch:
        patch.setattr(OpTimer, "run", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"5 of 13 distinct ops are in .*towers\.profile\.json"):
            profile(captured, path, repeats=1, device="cpu")
    first = load_profile(path)
    assert [op.signature for op in first.ops] == asked
    assert list(tmp_path.iterdir()) == [path]
    finished = profile(captured, path, repeats=1, device="cpu")
    assert len(asked) == len(set(asked)) == 13  # none of the first five again
    assert finished.ops[:5] == first.ops
    assert not np.isnan(finished.seconds(captured.graph)).any()


def test_a_backward_op_without_a_rule_is_scaled_from_its_forward_op(
    captured: CapturedCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_forward(timer: OpTimer, call: OpCall) -> Sample:
        if call.gradients is not None:
            raise RefusedError("no rule")
        return Sample(3.0, 0.0, 1)

    monkeypatch.setattr(OpTimer, "run", only_forward)
    found = profile(captured, tmp_path / "towers.profile.json", repeats=1, device="cpu")
    graph, seconds = captured.graph, dict(zip(captured.graph.names, found.seconds(captured.graph), strict=True))
    for op, name in enumerate(graph.names):
        if graph.kinds[op].endswith((".grad", ".grad_weight")):
            forward = graph.mirror[op]
            assert seconds[name] == 3.0 * graph.bytes_accessed[op] / graph.bytes_accessed[forward]
    assert {op.how for op in found.ops if ".grad" in op.kind} == {"scaled"}


def test_what_cannot_be_run_is_refused_with_pytorch_s_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timer = OpTimer(torch.device("cpu"), 1)
    matrix = TensorLike((2, 3), (3, 1), torch.float32)
    with pytest.raises(RefusedError, match="2x3 and 2x3"):
        timer.run(OpCall("aten.mm", torch.ops.aten.mm.default, (matrix, matrix), {}))
    with pytest.raises(RefusedError):
        timer.run(OpCall("aten.argmax", torch.ops.aten.argmax.default, (matrix,), {}, gradients=(0,)))
    captured, path = load_calls(TWO_TOWERS, training=False), tmp_path / "towers.profile.json"
    run = OpTimer.run

    def no_products(timer: OpTimer, call: OpCall) -> Sample:
        if call.kind == "aten.mm":
            raise RefusedError("no products today")
        return run(timer, call)

    monkeypatch.setattr(OpTimer, "run", no_products)
    profile(captured, path, repeats=1, device="cpu")
    assert list(load_profile(path).refused.values()) == ["no products today"]
    monkeypatch.setattr(OpTimer, "run", run)
    assert not profile(captured, path, repeats=1, device="cpu").refused  # tried again


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 0}, "repeats is 0; expected at least 1"),
        ({"device": "warp"}, "this machine has no device 'warp'"),
        ({"device": "meta"}, "ops cannot be run on 'meta'"),
    ],
)
def test_bad_settings_are_refused(
    captured: CapturedCalls, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        profile(captured, tmp_path / "x.profile.json", **settings)  # type: ignore[arg-type]


def test_a_profile_of_another_machine_is_left_alone(captured: CapturedCalls, measured: Path, tmp_path: Path) -> None:
    path, found = tmp_path / "x.profile.json", load_profile(measured)
    elsewhere = msgspec.structs.replace(found, machine=msgspec.structs.replace(found.machine, name="Abacus"))
    save_profile(elsewhere, path)
    with pytest.raises(InputError, match=r"was measured on Abacus \(cpu, .*; choose another file, or remove it"):
        profile(captured, path, repeats=1, device="cpu")
    assert load_profile(path) == elsewhere
    with pytest.raises(InputError, match=r"the name of a profile ends in \.profile\.json"):
        profile(captured, tmp_path / "x.json", repeats=1, device="cpu")


def test_an_op_that_does_not_fit_in_memory_is_named(
    captured: CapturedCalls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpTimer, "memory_bytes", lambda timer: 100)
    with pytest.raises(InputError, match=r"op 'tower/mm' needs .* profile the model with a smaller batch"):
        profile(captured, tmp_path / "x.profile.json", repeats=1, device="cpu")


# ---- the cost model ------------------------------------------------------------------------------------------


def known(path: Path, *ops: tuple[str, float, float, float, dict[str, list[str]]], kind: str = "cpu") -> str:
    """A profile of (kind, flops, bytes accessed, seconds, ops of each graph)."""
    machine = {
        "name": "Abacus", "kind": kind, "torch": "2", "threads": 1, "flops_per_second": 1, "bytes_per_second": 1,
        "memory_bytes": 1, "launch_seconds": 1, "autograd_seconds": 0,
    }  # fmt: skip
    measured = [
        MeasuredOp(kind=k, signature=str(i), flops=f, bytes_accessed=b, seconds=s, spread=0, repeats=1, ops=names)
        for i, (k, f, b, s, names) in enumerate(ops)
    ]
    content = {"schema": "placelab.profile", "version": 1, "date": "2020-01-01", "machine": machine, "ops": measured}
    save_profile(msgspec.convert(msgspec.to_builtins(content), Profile), path)
    return str(path)


def chain(name: str = "g") -> OpGraph:
    return OpGraph(
        name, ("a", "b", "c"), ("mm", "mm", "view"), np.array([1.0, 1, 0]), np.array([2.0, 2, 0]), np.ones(3),
        np.array([[0, 1], [1, 2]]),
    )  # fmt: skip


def test_an_op_is_found_by_its_name_then_by_its_costs(tmp_path: Path) -> None:
    uses = ({"g": ["a"]}, {"g": ["b"], "h": ["x", "y"]})
    path = tmp_path / "x.profile.json"
    file = known(path, ("mm", 1, 2, 10.0, uses[0]), ("mm", 1, 2, 20.0, uses[1]), ("mm", 1, 3, 99.0, {}))
    found = load_profile(Path(file))
    assert found.seconds(chain("g")).tolist() == [10.0, 20.0, 0.0]
    assert found.seconds(chain("other")).tolist() == [17.5, 17.5, 0.0]  # three ops are like the second, one the first
    changed = OpGraph("g", ("a",), ("mm",), np.array([7.0]), np.array([2.0]), np.ones(1), np.zeros((0, 2), np.int64))
    assert np.isnan(found.seconds(changed)).all()  # the name of an op that is no longer the same


def test_the_launch_is_in_the_profile_and_in_the_cluster_but_counts_once(tmp_path: Path) -> None:
    file = known(tmp_path / "x.profile.json", ("mm", 1, 2, 10.0, {}), kind="gpu")
    cost_model = load_cost_model(f"profiled:file={file}")
    for launch in (0.0, 4.0):
        problem = Problem(chain(), toy_cluster(1, launch=launch))
        assert cost_model.costs(problem).op_seconds.tolist() == [[10 - launch], [10 - launch], [0.0]]
        step_seconds = Simulator(timed(problem, cost_model)).run([0, 0, 0]).step_seconds
        assert step_seconds == 20.0 - launch  # the last launch is over after the step, and a view waits for none
    slow = cost_model.costs(Problem(chain(), toy_cluster(1, launch=50.0))).op_seconds
    assert (slow[:2] > 0).all()
    assert (slow[:2] < 1e-6).all()


def test_several_kinds_of_devices_need_a_profile_each(tmp_path: Path) -> None:
    cpu = known(tmp_path / "cpu.profile.json", ("mm", 1, 2, 10.0, {}))
    gpu = known(tmp_path / "gpu.profile.json", ("mm", 1, 2, 1.0, {}), kind="gpu")
    problem = Problem(chain(), load_cluster("cpu_gpu:gpus=1"))
    both = load_cost_model(f"profiled:file={cpu}+{gpu}").costs(problem).op_seconds
    launch = problem.cluster.hold_seconds
    np.testing.assert_allclose(both[0], [10 - launch[0], 1 - launch[1]])
    with pytest.raises(InputError, match=r"cpu\.profile\.json holds no times on 'gpu' devices, .*file=ONE\+OTHER"):
        load_cost_model(f"profiled:file={cpu}").costs(problem)
    with pytest.raises(InputError, match="two profiles of the same kind of device"):
        load_cost_model(f"profiled:file={cpu}+{cpu}")
    mixed = load_cost_model(f"profiled:file={cpu},otherwise=roofline").costs(problem).op_seconds
    roofline = load_cost_model("roofline").costs(problem).op_seconds
    assert mixed[:, 1].tolist() == roofline[:, 1].tolist()
    assert mixed[0, 0] == both[0, 0]


def test_an_op_that_was_not_profiled_is_named(tmp_path: Path) -> None:
    file = known(tmp_path / "x.profile.json", ("mm", 1, 3, 10.0, {}), kind="gpu")
    with pytest.raises(InputError, match=r"for 2 of the 3 ops of 'g': 'a' \(mm\), 'b' \(mm\); `placelab profile MODEL"):
        load_cost_model(f"profiled:file={file}").costs(Problem(chain(), toy_cluster(2)))


def test_a_missing_or_damaged_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected file=FILE; `placelab profile"):
        load_cost_model("profiled")
    with pytest.raises(InputError, match=r"x\.profile\.json does not exist; `placelab profile"):
        load_cost_model(f"profiled:file={tmp_path / 'x.profile.json'}")
    (tmp_path / "x.profile.json").write_text('{"schema": "placelab.profile", "version": 2}')
    with pytest.raises(InputError, match="written as version 2, this placelab reads version 1"):
        load_cost_model(f"profiled:file={tmp_path / 'x.profile.json'}")


def test_a_profile_says_nothing_of_products_in_tf32(captured: CapturedCalls, measured: Path) -> None:
    graph = in_precision(captured.graph, "tf32")
    with pytest.raises(InputError, match=r"towers\.profile\.json does not say how long products take in TF32"):
        timed(Problem(graph, toy_cluster(2)), f"profiled:file={measured}")
