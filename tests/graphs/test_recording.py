"""What is recorded in one run is what PyTorch's exporter finds, and the module stays as it was."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.compiler import is_exporting as in_export

from graphs.capture import exporting, tracing
from graphs.capture.exporting import export
from graphs.capture.forward import Builder, capture
from graphs.capture.function_calls import FunctionCalls, ModulePath
from graphs.capture.program import TracedProgram
from graphs.capture.recorded_calls import Unrecorded
from graphs.capture.recording import record
from graphs.capture.training_step import forward_pass, training_step
from graphs.foundation import by_name
from graphs.foundation.errors import UserCodeError
from graphs.op_graph import Call, OpGraph
from tests.graphs.small_modules import EXPORTED, OTHER_NAMES, RECORDED, Make, Small, X, of, tied
from tests.graphs.test_joint_graph import SPECS

QUICK = {"gnmt", "transformer", "wavenet"}  # for torch.export
Tracer = Callable[[nn.Module, tuple[object, ...], dict[str, object]], TracedProgram]


def traced_by(tracer: Tracer, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> OpGraph:
    with tracing.quiet():
        return Builder(tracer(module, args, kwargs), "test").build()


class Together(nn.Module):
    """Modules, each on inputs of its own: the exporter takes as long for nine as for two."""

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, *inputs: tuple[Tensor, ...]) -> list[Any]:
        return [part(*each) for part, each in zip(self.parts, inputs, strict=True)]


def together(names: list[str]) -> tuple[nn.Module, tuple[object, ...]]:
    made = [RECORDED[name]() for name in names]
    return made[0] if len(made) == 1 else (Together([module for module, _ in made]), tuple(args for _, args in made))


CHANGES_INPUT = "inplace on an input"  # which the exporter takes alone
OTHERS = [name for name in RECORDED if name != CHANGES_INPUT]
AT_ONCE = 9
GROUPS = [
    [CHANGES_INPUT],
    *(OTHERS[first : first + AT_ONCE] for first in range(0, len(OTHERS), AT_ONCE)),
    *(pytest.param([name], marks=pytest.mark.slow) for name in OTHERS),
]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: " to ".join(dict.fromkeys((names[0], names[-1]))))
def test_small_modules_are_recorded_as_they_are_exported(names: list[str]) -> None:
    recorded = replace(traced_by(record, *together(names), {}), autograd=None)  # of which the exporter knows less
    expected = replace(traced_by(export, *together(names), {}), autograd=None)
    assert recorded.names == expected.names
    assert recorded.fingerprint == expected.fingerprint


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in SPECS]
)
def test_families_are_recorded_as_they_are_exported(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "export", None)  # which is not called
    module, args = by_name.build("graphs.families", f"{family}:{SPECS[family]}")
    recorded = capture(module, args, name=family)
    assert recorded.fingerprint == traced_by(export, module, args, {}).fingerprint
    called = [call for name, call in zip(recorded.names, recorded.calls, strict=True) if call and "/" in name]
    assert len(called) > len(recorded) / 3
    assert all(call is not None for call in recorded.calls)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_that_the_exporter_forgets(name: str) -> None:
    make, names = OTHER_NAMES[name]
    recorded = traced_by(record, *make(), {})
    assert recorded.names == names
    expected = traced_by(export, *make(), {})
    assert replace(expected, names=names, autograd=None).fingerprint == replace(recorded, autograd=None).fingerprint


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "placelab"]


@pytest.mark.parametrize("name", EXPORTED)
def test_what_cannot_be_recorded_is_exported_and_this_is_said(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = list[TracedProgram]()

    def exported(*given: Any) -> TracedProgram:
        programs.append(export(*given))
        return programs[-1]

    monkeypatch.setattr(tracing, "export", exported)
    module, args = EXPORTED[name]()
    graph = capture(module, args, name="test")
    assert graph.fingerprint == Builder(programs[-1], "test").build().fingerprint
    assert not graph.calls
    (message,) = said(caplog)
    assert message.startswith("test: traced by torch.export, which is slow, because it cannot be recorded: ")
    has_line = re.search(r" at tests/graphs/small_modules\.py:\d+$", message) is not None
    assert has_line == (name in {"a number of a tensor", "largest norm"}), "others are noticed when the code has run"


def test_a_module_that_is_wrong_is_not_said_to_be_exported(caplog: pytest.LogCaptureFixture) -> None:
    module, args = of(lambda m, x: m.linear(x).reshape(3, 3))()
    with pytest.raises(UserCodeError, match="the module fails on its example inputs"):
        capture(module, args, name="test")
    assert not said(caplog)


def test_gradients_within_a_module_are_recorded_though_they_cannot_be_exported() -> None:
    graph = traced_by(record, *of(lambda m, x: torch.func.grad(lambda v: m.linear(v).sum())(x))(), {})
    assert graph.kinds == ("aten.addmm", "aten.sum", "aten.full_like", "aten.mm")


def test_weights_are_found_however_they_are_reached() -> None:
    module = Small(lambda m, x: x @ m.linear.weight.data + others[0])
    others, args = [module.linear.bias], (X,)  # a list, which PyTorch does not see
    graph = traced_by(record, module, args, {})
    assert graph.kinds == ("aten.mm", "aten.add")
    assert graph.weight_uses.tolist() == [[0, 0], [1, 1]]


def test_data_that_is_assigned_is_not_recorded() -> None:
    def forward(m: Small, x: Tensor) -> Tensor:
        m.linear.weight.data = m.linear.weight.data * 2
        y: Tensor = m.linear(x)
        return y

    with pytest.raises(Unrecorded, match="assigns to the data of a tensor"):
        record(*of(forward)(), {})


# ---- the module afterwards -----------------------------------------------------------------------------------


class Careless(nn.Module):
    """Changes whatever it can, and may end in the middle."""

    def __init__(self, error: type[BaseException] | None) -> None:
        super().__init__()
        self.linear, self.norm, self.error = nn.Linear(4, 4), nn.BatchNorm1d(4), error
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros(()))
        self.seen: list[Tensor] = []
        self.by_name = {"a": 1}

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.linear(x))
        self.steps += 1
        self.steps = self.steps * 2
        self.last = y
        self.seen.append(y)
        self.by_name["b"] = 2
        self.linear.register_forward_hook(lambda *given: None)
        self.linear.added = nn.Linear(2, 2)
        with torch.no_grad():
            self.linear.weight.mul_(2)
        self.linear.weight = nn.Parameter(torch.zeros(4, 4))
        self.eval()
        if self.error is not None:
            raise self.error
        return y


@pytest.mark.parametrize("error", [None, KeyError, KeyboardInterrupt, SystemExit])
def test_the_module_stays_as_it_was(error: type[BaseException] | None) -> None:
    module = Careless(error)
    inputs, before = X.clone(), copy.deepcopy(module.state_dict())
    held = {path: dict(vars(part)) for path, part in module.named_modules()}
    hooks = copy.copy(module.linear._forward_hooks)
    call = nn.Module.__call__
    if error is None:
        capture(module, (inputs,), name="test")
    else:
        with pytest.raises((UserCodeError, KeyboardInterrupt)):
            capture(module, (inputs,), name="test")
    assert nn.Module.__call__ is call
    after = {path: dict(vars(part)) for path, part in module.named_modules()}
    assert after.keys() == held.keys()
    for path, attributes in held.items():
        assert after[path].keys() == attributes.keys()
        assert all(after[path][key] is value for key, value in attributes.items())
    assert module.seen == []
    assert module.by_name == {"a": 1}
    assert module.linear._forward_hooks == hooks
    assert module.training
    assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())
    assert torch.equal(inputs, X)
    assert not torch.compiler.is_exporting()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_nothing_is_computed_or_drawn(device: str) -> None:
    terabytes = torch.empty(1, dtype=torch.float32, device=device).expand(1 << 20, 1 << 20)

    def forward(m: Small, x: Tensor) -> Tensor:
        return (x @ x.T + torch.rand_like(x)).sum() + m.linear.bias

    with torch.device(device):
        module = of(forward)()[0]
    before = torch.get_rng_state()
    assert len(traced_by(record, module, (terabytes,), {})) == 5
    assert torch.equal(torch.get_rng_state(), before)


# ---- calls ---------------------------------------------------------------------------------------------------


def test_every_op_knows_the_call_that_it_comes_from() -> None:
    def forward(m: Small, x: Tensor) -> Tensor:
        left, right = m.linear(m.linear(x)).chunk(2, 1)
        y: Tensor = torch.cat([left * right, left.T.T + right], 1).softmax(1)
        return y

    graph = capture(*of(forward)(), name="test")
    linear = [Call("linear", "linear", 0), Call("linear", "linear", 1)]
    own = [("chunk", 0), ("chunk", 0), ("mul", 0), ("add", 0), ("cat", 0), ("softmax", 0)]
    assert graph.calls == (*linear, *(Call("", *each) for each in own))
    step = training_step(graph)
    assert step.calls[: len(graph)] == graph.calls
    assert set(step.calls[len(graph) :]) == {None}
    assert forward_pass(step).calls == (*graph.calls, None)  # of the loss
    assert graph.fingerprint == replace(graph, calls=()).fingerprint


def test_every_weight_has_its_name_and_a_tied_one_the_first() -> None:
    graph = capture(*tied(), name="test")
    assert graph.weight_names == ("0.weight", "0.bias", "1.bias")
    assert training_step(graph).weight_names == graph.weight_names
    assert graph.fingerprint == replace(graph, weight_names=()).fingerprint


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_mode_over_the_running_module_sees_the_same_calls(name: str) -> None:
    make: Make = RECORDED[name]
    module, args = make()
    with tracing.quiet():
        recorded = list(record(module, args, {}).calls.values())
    seen: list[Call] = []

    class Seen(FunctionCalls):
        def run(self, call: Call, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            seen.append(call)
            return function(*args, **kwargs)

    with_values = [torch.rand_like(x) if x.is_floating_point() else x for x in args]
    with Seen(ModulePath(module)):
        module(*with_values)
    places = [seen.index(call) for call in dict.fromkeys(recorded)]
    assert places == sorted(places)


def test_the_names_of_exporters_settings_exist() -> None:
    def flags() -> tuple[bool, ...]:
        return torch.compiler._is_exporting_flag, torch.compiler._is_compiling_flag, torch.compiler.is_compiling()

    seen = list[tuple[bool, ...]]()
    part = Small(lambda m, x: seen.append(flags()))
    with exporting.exporter_settings(compiling=[Small]):
        nn.Sequential(part)(X)
        seen.append(flags())
    assert seen == [(True, True, False), (False, False, False)]  # the last is asked by code that is no library's
    assert flags() == (False, False, False)


def _asks_who_runs_it(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    if torch.compiler.is_compiling() or torch.compiler.is_exporting() or is_compiling() or in_export():
        return y
    return y.sin() if y.requires_grad and not y.detach().requires_grad else y


@pytest.mark.parametrize("tracer", [record, export])
def test_the_branch_of_a_training_step_is_captured_and_not_that_for_compilers(tracer: Tracer) -> None:
    assert traced_by(tracer, *of(_asks_who_runs_it)(), {}).kinds == ("aten.addmm", "aten.sin")
