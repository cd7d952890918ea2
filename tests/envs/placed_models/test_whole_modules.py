"""Modules on one device run whole: as the model itself, whatever is changed between steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.placed_models.call_placement import on_calls
from envs.placed_models.copies import Copy
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.envs.placed_models.models import BATCH, MODELS, assert_same_steps, by_modules, captured, step

MODULES = [name for name in MODELS if name != "mlp"]  # which has no part with several calls


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", MODULES)
def test_five_steps_of_adam_are_those_of_the_model_itself(name: str, seed: int, whole: list[str]) -> None:
    """With the copies that are made if each call is seen."""
    torch.manual_seed(seed)
    model, inputs = MODELS[name]()
    random = np.random.default_rng(seed)
    devices: dict[str, int] = {}

    def device_of(path: str) -> int:
        return devices.setdefault(".".join(path.split(".")[:2]), int(random.integers(3)))

    runs = [model, *(by_modules(model, captured(name), device_of, whole_modules=each) for each in (True, False))]
    optimizers = [torch.optim.Adam(each.parameters(), 1e-3, eps=1e-5) for each in runs]
    for number in range(5):
        batch = inputs((4, 2, 7, 4, 3)[number], torch.Generator().manual_seed(number))
        found, made = [], list[list[Copy]]()
        for run, optimizer in zip(runs, optimizers, strict=True):
            with ExitStack() as counted:
                copies = [] if run is model else counted.enter_context(counted_copies(run))
                found.append(step(run, **batch))
            made.append(sorted(copies, key=repr))
            optimizer.step()
        torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=3e-6)
        torch.testing.assert_close(found[2], found[0], rtol=1e-5, atol=3e-6)
        assert made[1] == made[2]
    assert whole


class Inner(nn.Module):
    """A part with a part, dropout, a norm with state and a change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(0.5)
        self.norm, self.relu = nn.BatchNorm1d(4), nn.ReLU(inplace=True)
        self.how = "plain"

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "fails":
            raise ValueError(self.how)
        if self.how == "itself":
            return x
        if self.how == "view":
            return x.view(-1, 4)
        if self.how == "again":
            x = checkpoint(self.one, x, use_reentrant=False)
        if self.how == "in place":
            x.mul_(2)
        y: Tensor = self.two(self.drop(self.relu(self.norm(self.one(x)))))
        return y + x


class Outer(nn.Module):
    """Two such parts on devices of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.first, self.second, self.end = nn.Linear(4, 4), Inner(), Inner(), nn.Linear(4, 4)
        self.call: Callable[[nn.Module, Tensor], Tensor] = lambda part, x: part(x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        y: Tensor = self.call(self.second, self.call(self.first, x))
        z: Tensor = self.end(y.mul_(2))
        return z + x


def both() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = Outer()
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="outer"))

    def device_of(path: str) -> int:
        return {"first": 1, "second": 2}.get(path.partition(".")[0], 0)

    return model, by_modules(model, graph, device_of)


def _hooked(model: Any) -> None:
    model.second.one.register_forward_hook(lambda _part, _given, out: out * 3)


def _hooked_itself(model: Any) -> None:
    model.second.register_forward_pre_hook(lambda _part, given: (given[0] * 3,))
    model.second.register_forward_hook(lambda _part, _given, out: out.clone())


def _hooked_backward(model: Any) -> None:
    model.first.register_full_backward_hook(lambda _part, given, _made: (given[0] * 2,))
    model.second.two.register_full_backward_hook(lambda _part, given, _made: (given[0] * 2,))


def _replaced(model: Any) -> None:
    torch.manual_seed(7)
    model.second.one = nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def _parameter(model: Any) -> None:
    model.second.one.weight = nn.Parameter(torch.full((4, 4), 0.5))


def _how(how: str) -> Callable[[Any], None]:
    return lambda model: setattr(model.second, "how", how)


def _part_evaluated(model: Any) -> None:
    model.second.eval()


def _compiled(model: Any) -> None:
    model.second.one = torch.compile(model.second.one, backend="eager")


def _frozen(model: Any) -> None:
    model.second.requires_grad_(False)


CHANGES: dict[str, Callable[[Any], None]] = {
    "hooked": _hooked, "hooked itself": _hooked_itself, "hooked backward": _hooked_backward, "replaced": _replaced,
    "parameter": _parameter, "itself": _how("itself"), "in place": _how("in place"), "again": _how("again"),
    "evaluated": lambda model: model.eval(), "part evaluated": _part_evaluated, "compiled": _compiled,
    "frozen": _frozen, "double": lambda model: model.double().float(),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # of unknown calls, and of torch.compile
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_changed_between_steps_is_as_in_the_model(change: str, whole: list[str]) -> None:
    models = both()
    for _ in range(2):
        assert_same_steps(models)
    assert whole == ["Inner", "Inner"]  # of the second step
    for model in models:
        CHANGES[change](model)
    for rows in (BATCH, 7, BATCH):
        assert_same_steps(models, rows)
    for model in models:
        model.train()
    assert_same_steps(models)


def test_without_gradients_and_with_autocast_and_in_inference_it_is_the_same(whole: list[str]) -> None:
    models = both()
    x = torch.ones(BATCH, 4)
    assert_same_steps(models)
    for entered in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)):
        for _ in range(2):
            torch.manual_seed(0)
            with entered():
                expected = models[0](x)
            torch.manual_seed(0)
            with entered():
                torch.testing.assert_close(models[1](x), expected)
        assert_same_steps(models)
    assert len(whole) >= 6


def test_after_an_exception_a_module_is_seen_again(whole: list[str]) -> None:
    models = both()
    for _ in range(2):
        assert_same_steps(models)
    for model in models:
        _how("fails")(model)
        with pytest.raises(ValueError, match="fails"):
            model(torch.ones(BATCH, 4))
        _how("plain")(model)
    whole.clear()
    assert_same_steps(models)
    assert whole == ["Inner"]
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]


def test_a_view_of_what_was_copied_for_it_is_refused_where_there_was_none() -> None:
    models = both()
    for _ in range(2):
        assert_same_steps(models)
    for model in models:
        _how("view")(model)
    with pytest.raises(InputError, match=r"Inner has returned a view of what it was given, .* call the model again"):
        step(models[1], torch.ones(BATCH, 4))
    step(models[0], torch.ones(BATCH, 4))
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]
    assert_same_steps(models)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_in_regions_that_are_computed_again(use_reentrant: bool, whole: list[str]) -> None:
    models = both()
    for model in models:
        vars(model)["call"] = lambda part, x: checkpoint(part, x, use_reentrant=use_reentrant)
    for _ in range(3):
        assert_same_steps(models)
    assert len(whole) >= 4


class Reads(nn.Module):
    """A part that keeps what it makes, and one that reads that; or makes a tensor on a device that it is not told."""

    def __init__(self, *, makes: bool) -> None:
        super().__init__()
        self.part, self.end, self.makes = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Tanh()), nn.Linear(4, 4), makes
        self.part.register_forward_hook(self._makes if makes else self._keeps)
        self.kept = [torch.zeros(0)]

    def _makes(self, _part: object, _given: object, out: Tensor) -> Tensor:
        return out + torch.ones(4)

    def _keeps(self, _part: object, _given: object, out: Tensor) -> Tensor:
        self.kept[0] = torch.sigmoid(out)
        return out * 2

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.end(self.part(x))
        return y if self.makes else y + self.kept[0]


@pytest.mark.parametrize("makes", [False, True])
def test_what_other_devices_read_and_what_is_told_its_device_is_seen(makes: bool, whole: list[str]) -> None:
    torch.manual_seed(0)
    model = Reads(makes=makes)
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="reads"))
    parallel = by_modules(model, graph, lambda path: int(not path.startswith("part")))
    for _ in range(3):
        assert_same_steps((model, parallel))


def test_an_argument_that_lies_elsewhere_is_copied_and_one_that_is_there_is_not(whole: list[str]) -> None:
    model = nn.Sequential(Inner(), nn.Linear(4, 4))
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="apart"))
    problem = Problem(graph, load_cluster("p100x2"))
    problem, plan, _ = on_calls(problem, Plan.of([1] * len(graph)), model)
    model.to("meta")
    run_by_plan(model, problem, plan, ["cpu", "meta"])
    for given, copies in (("cpu", 1), ("cpu", 1), ("meta", 0), ("meta", 0), ("cpu", 1)):
        with counted_copies(model) as made:
            assert model(torch.ones(BATCH, 4, device=given)).device.type == "meta"
        assert len(made) == copies
    assert whole == ["Inner"] * 2  # the second time in a row


def test_an_exception_that_is_handled_meanwhile_is_none_of_the_modules(whole: list[str]) -> None:
    models = both()

    def handles(part: nn.Module, x: Tensor) -> Tensor:
        try:
            raise ValueError
        except ValueError:
            y: Tensor = part(x)
            return y

    for model in models:
        vars(model)["call"] = handles
    for _ in range(3):
        assert_same_steps(models)
    assert whole == ["Inner"] * 4
