"""What is decided in one forward pass is done likewise in the next, as long as its calls are the same."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from envs.placed_models.call_placement import on_calls
from envs.placed_models.copies import Copy
from envs.placed_models.decisions import Decision
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.placed_models.placed_calls import PlacedCalls
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.placed_models.models import MLP, MODELS, Checkpointed, captured, loss_of, random_run


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of the calls that are decided about, as they are."""
    found, own = list[str](), PlacedCalls._decide

    def decide(self: PlacedCalls, decision: Decision, *call: Any) -> Tensor | None:
        found.append(decision.call.function)
        return own(self, decision, *call)

    monkeypatch.setattr(PlacedCalls, "_decide", decide)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_second_step_decides_nothing_and_makes_the_same_copies(name: str, decided: list[str]) -> None:
    run, made = random_run(name, 1), list[list[Copy]]()
    counts = list[int]()
    for size in (4, 3, 4):
        decided.clear()
        with counted_copies(run.parallel) as copies:
            loss_of(run.parallel(**run.batch(size))).backward()  # type: ignore[no-untyped-call]
        made.append([Copy(each.of, each.source, each.destination, 0, each.call) for each in copies])
        counts.append(len(decided))
    assert made[0] == made[1] == made[2]
    assert counts[0] > counts[1] == counts[2] == 0


class Turned(Function):
    """Twice its input, which it computes in two ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by_view: bool) -> Tensor:
        half = x * 1
        return (half.view(-1) + half.view(-1)).view_as(x) if by_view else half + half

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return 2 * gradient, None


class Branching(nn.Module):
    """Its code goes three ways, which part after some calls; each reads what was made before."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4) for _ in range(3))
        self.way = 0

    def forward(self, x: Tensor) -> Tensor:
        a = self.one(x)
        b: Tensor = Turned.apply(self.two(a), self.way == 2)  # type: ignore[no-untyped-call]
        left, right = a.chunk(2, 1)
        a = F.relu(a.mul(2), inplace=True)
        if self.way == 0:
            product: Tensor = self.three(b) * a
            return product
        if self.way == 1:
            rows: Tensor = self.three(torch.cat([right, left], 1)).sigmoid() + self.three(a.T.T) + b
            return rows
        out: Tensor = self.two(b + self.three(a.view(-1).view_as(b)))
        return out


def branching(seed: int) -> tuple[Branching, Callable[[], Branching]]:
    """The model, and what makes one that is run by a random plan of its first way."""
    torch.manual_seed(seed)
    model = Branching()
    problem = Problem(training_step(capture(model, (torch.ones(2, 4),), name="branching")), load_cluster("p100x3"))
    drawn = torch.randint(0, 3, (problem.graph.num_units,)).tolist()
    problem, plan, _ = on_calls(problem, Plan.of_units(problem, drawn), model)
    return model, lambda: run_by_plan(deepcopy(model), problem, plan, ["cpu"] * 3)


def step(model: Branching, way: int) -> tuple[Tensor, list[Tensor | None], list[Copy]]:
    """The output, gradients and copies of a step."""
    model.way = way
    model.zero_grad()
    x = torch.arange(8.0).view(2, 4)
    if not hasattr(model.forward, "copier"):
        out, copies = model(x), list[Copy]()
        out.sum().backward()
    else:
        with counted_copies(model) as copies:
            out = model(x)
            out.sum().backward()
    return out.detach(), [None if each.grad is None else each.grad.clone() for each in model.parameters()], copies


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of the other ways
@pytest.mark.parametrize("seed", range(6))
def test_other_ways_through_the_code_run_as_if_they_were_the_first(seed: int, decided: list[str]) -> None:
    model, placed = branching(seed)
    parallel = placed()
    fresh = [step(placed(), way) for way in range(3)]
    for way in (0, 1, 0, 2, 1, 2, 0, 1):
        found = step(parallel, way)
        torch.testing.assert_close(found[:2], step(model, way)[:2])
        assert found[2] == fresh[way][2]
    decided.clear()
    step(parallel, 0)
    assert not decided


def test_what_lies_on_another_device_is_decided_anew(decided: list[str]) -> None:
    problem = Problem(captured("mlp"), load_cluster("p100x2"))
    with torch.device("meta"):
        model = MLP()
    run_by_plan(model, problem, Plan.of([0] * len(problem.graph)), ["meta", "cpu"])
    for device, count in (("cpu", 8), ("cpu", 0), ("meta", 8), ("meta", 0), ("cpu", 0)):
        decided.clear()
        weights = {name: weight.to(device) for name, weight in MLP().state_dict().items()}
        with torch.no_grad():
            torch.func.functional_call(model, weights, (torch.ones(2, 16, device=device),))
        assert len(decided) == count


def test_what_is_computed_again_is_decided_in_the_first_step_alone(decided: list[str]) -> None:
    torch.manual_seed(0)
    model, x = Checkpointed(), torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
    problem = Problem(training_step(capture(model, (x.detach(),), name="again")), load_cluster("p100x3"))
    drawn = torch.randint(0, 3, (problem.graph.num_units,)).tolist()
    problem, plan, _ = on_calls(problem, Plan.of_units(problem, drawn), model)
    parallel, copied, counts = run_by_plan(deepcopy(model), problem, plan, ["cpu"] * 3), list[list[Copy]](), list[int]()
    for _ in range(3):
        decided.clear()
        with counted_copies(parallel) as copies:
            parallel(x).sum().backward()
        model(x).sum().backward()
        copied.append(copies)
        counts.append(len(decided))
    assert counts[0] > counts[1] == counts[2] == 2  # the last calls of two regions, which PyTorch leaves there
    assert copied[0] == copied[1] == copied[2]
    torch.testing.assert_close(*([weight.grad for weight in each.parameters()] for each in (parallel, model)))


def test_a_call_may_make_more_or_fewer_tensors_than_before() -> None:
    def forward(m: nn.Module, x: Tensor) -> Tensor:
        total: Tensor = sum(m.get_submodule("two")(row) for row in m.get_submodule("one")(x).unbind()[:1])
        return total

    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
            self.forward = forward.__get__(self)

    model = Rows()
    problem = Problem(training_step(capture(model, (torch.ones(3, 4),), name="rows")), load_cluster("p100x2"))
    problem, plan, _ = on_calls(problem, Plan.of(problem.graph.units % 2), model)
    parallel = run_by_plan(deepcopy(model), problem, plan, ["cpu", "cpu"])
    for rows in (3, 1, 4, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(parallel(x), model(x))
