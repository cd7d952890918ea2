"""What shares memory with what, and what is changed in place, is as in the model itself, in each pass."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from envs.placed_models.call_placement import on_calls
from envs.placed_models.copies import Copy
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem


class Sharing(nn.Module):
    """Two layers, of whose input a function makes other tensors; `is_turned`: with other strides."""

    def __init__(self, forward: Callable[..., Tensor]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.own, self.is_turned = forward, False

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        return self.own(self, x.T if self.is_turned else x)


def _reshaped(m: Sharing, x: Tensor) -> Tensor:
    y = x.reshape(-1)  # a view, unless the input is turned
    y.mul_(3)
    out: Tensor = m.two(y.view(4, 4)) + m.one(x)
    return out


def _read_as_rows(m: Sharing, x: Tensor) -> Tensor:
    y = x.reshape(-1)
    with torch.no_grad():
        first = m.one(y.view(4, 4)) + m.two(y.view(4, 4))
    x.add_(1)  # which changes what was read, unless the input is turned
    out: Tensor = first * m.one(y.view(4, 4)) + m.two(y.view(4, 4))
    return out


def _contiguous(m: Sharing, x: Tensor) -> Tensor:
    y = x.contiguous()
    y.add_(m.one(x).detach())
    out: Tensor = m.two(y) + m.two(x) * y.sin()
    return out


def _converted(m: Sharing, x: Tensor) -> Tensor:
    y = x.to(torch.float64 if m.is_turned else torch.float32)
    y.mul_(3)
    out: Tensor = m.two(y.float()) + m.one(x)
    return out


def _returned(m: Sharing, x: Tensor) -> Tensor:
    y = F.dropout(x, 0.5, m.is_turned and m.training)  # the input itself, of a model that is not trained
    y.mul_(3)
    out: Tensor = m.two(y) + m.one(x)
    return out


def _changed_by_turns(m: Sharing, x: Tensor) -> Tensor:
    y = F.relu(x, inplace=m.is_turned)
    z = x.clamp_(0.1) if m.is_turned else x.clamp(0.1)
    out: Tensor = m.two(y) + m.one(x) * z
    return out


def _changed_between_readers(m: Sharing, x: Tensor) -> Tensor:
    with torch.no_grad():  # else gradients would need what it was before
        first = m.one(x) + m.two(x)
    x.add_(1)
    x.clamp_(0.1)
    out: Tensor = first * m.one(x) + m.two(x)
    return out


def _data(m: Sharing, x: Tensor) -> Tensor:
    with torch.no_grad():
        first = m.one(x) + m.two(x)
    x.data.mul_(2)  # of which PyTorch counts no change
    out: Tensor = first * m.one(x) + m.two(x)
    return out


def _other_data(m: Sharing, x: Tensor) -> Tensor:
    with torch.no_grad():
        first = m.one(x) + m.two(x)
    if m.is_turned and not x.is_inference():
        x.data = x.data * 2  # which changes no memory, but is other memory
    out: Tensor = first * m.one(x) + m.two(x)
    return out


# The others are views in the first pass, which change: those are not recorded.
CASES = [
    *((forward, False) for forward in (_returned, _changed_by_turns, _other_data)),
    *((forward, True) for forward in (_reshaped, _read_as_rows, _contiguous, _converted, _returned, _changed_by_turns)),
    *((forward, turned) for forward in (_changed_between_readers, _data) for turned in (False, True)),
]


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of the other way
@pytest.mark.parametrize(("forward", "turned_at_first"), CASES)
def test_views_in_one_pass_may_be_copies_in_the_next(forward: Callable[..., Tensor], turned_at_first: bool) -> None:
    torch.manual_seed(0)
    model, x = Sharing(forward), torch.randn(4, 4)
    model.is_turned = turned_at_first
    graph = training_step(capture(deepcopy(model), (x,), name="sharing"))
    problem, count = Problem(graph, load_cluster("p100x2")), 0
    nothing: AbstractContextManager[list[Copy]] = nullcontext([])
    for seed, mode in enumerate((torch.enable_grad, torch.no_grad, torch.inference_mode) * 4):
        drawn = torch.randint(0, 2, (graph.num_units,), generator=torch.Generator().manual_seed(seed)).tolist()
        found, plan, _ = on_calls(problem, Plan.of_units(problem, drawn), model)
        parallel = run_by_plan(deepcopy(model), found, plan, ["cpu", "cpu"])
        for number, is_turned in enumerate((seed % 2 == 1, seed % 2 == 0) * 2):
            outs = []
            for each in (parallel, model):
                each.is_turned = is_turned
                each.zero_grad()
                torch.manual_seed(1)
                with mode(), counted_copies(parallel) if number < 2 else nothing as copies:
                    outs.append([each(x)])
                if outs[-1][0].requires_grad:
                    outs[-1][0].sum().backward()
                    outs[-1] += [weight.grad for weight in each.parameters()]
                count += len(copies)
            torch.testing.assert_close(outs[0], outs[1])
    assert count
