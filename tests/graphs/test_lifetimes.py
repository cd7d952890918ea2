"""What a model's code keeps after the last op has read it takes memory until it is freed, as in a real step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.examples import Example
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.op_graph import OpGraph
from graphs.op_graph.autograd import Memory
from graphs.op_graph.subgraph import subgraph
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.oracle.fake_step import held_by_step

BATCH, WIDTH = 8, 64
ROWS = BATCH * WIDTH * 4


Code = Callable[["Step", Tensor], Tensor]


class Step(nn.Module):
    """Two layers, and a function of them and of the input."""

    def __init__(self, forward: Code) -> None:
        super().__init__()
        with torch.device("meta"):
            self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.forward = lambda x: forward(self, x)


def without_variables(m: Step, x: Tensor) -> Tensor:
    return m.second(m.first(x).neg()).sum()  # type: ignore[no-any-return]


def with_variable(m: Step, x: Tensor) -> Tensor:
    h: Tensor = m.first(x)
    return m.second(h.neg()).sum()  # type: ignore[no-any-return]


def freed(m: Step, x: Tensor) -> Tensor:
    h: Tensor = m.first(x)
    negative = h.neg()
    del h
    return m.second(negative).sum()  # type: ignore[no-any-return]


def with_list(m: Step, x: Tensor) -> Tensor:
    kept = [x]
    for _ in range(4):
        kept.append(kept[-1].neg())
    return kept[-1].sum()


def with_view(m: Step, x: Tensor) -> Tensor:
    one: Tensor = m.first(x)[:, :1]
    total: Tensor = one.sum() + m.second(x).sum()
    return total


def with_buffer_of_sums(m: Step, x: Tensor) -> Tensor:
    h: Tensor = m.first(x)
    total = torch.zeros_like(x)
    total += h.neg()
    return total.sum()


def with_copy(m: Step, x: Tensor) -> Tensor:
    h: Tensor = m.first(x)
    return torch.stack([h.neg(), h.abs()]).amax(0).sum()


def with_statistics(m: Step, x: Tensor) -> Tensor:
    h: Tensor = m.first(x)
    mean = h.mean(1, keepdim=True)
    return ((h - mean) * 2 + x).sum()


# What is alive at once at the most, in rows of `ROWS` bytes and single numbers of 4.
PEAKS: dict[Code, tuple[int, int]] = {
    without_variables: (2, 0),
    with_variable: (3, 0),
    freed: (2, 1),
    with_list: (4, 1),
    with_view: (2, 2),
    with_buffer_of_sums: (3, 0),
    with_copy: (5, 0),
    with_statistics: (3, BATCH),
}


def example(forward: Code) -> Example:
    return Example(Step(forward), (torch.zeros(BATCH, WIDTH, device="meta"),), {}, forward.__name__, BATCH)


def captured(forward: Code) -> OpGraph:
    made = example(forward)
    return capture(made.module, made.args, name=made.name)


def peak(graph: OpGraph) -> float:
    """The most bytes in addition to what is held for the whole step, on one device in the order of the calls."""
    problem = timed(Problem(graph, load_cluster("v100:devices=1"), "sgd"))
    timeline = simulate(problem, replace(Plan.of([0] * len(graph)), order=PROGRAM))
    return float(timeline.peak_bytes[0] - timeline.held_bytes[0])


@pytest.mark.parametrize("forward", PEAKS, ids=lambda forward: forward.__name__)
def test_a_forward_pass_holds_what_its_code_holds(forward: Code) -> None:
    rows, numbers = PEAKS[forward]
    held = held_by_step(example(forward), None)
    assert held.peak - held.static == rows * ROWS + numbers * 4
    assert peak(captured(forward)) == rows * ROWS + numbers * 4


def test_what_is_kept_for_the_backward_pass_is_counted_once() -> None:
    def saved(m: Step, x: Tensor) -> Tensor:
        h = m.first(x)
        return m.second(h.tanh()).sum()  # type: ignore[no-any-return]

    step = training_step(captured(saved))
    assert np.flatnonzero(step.working_bytes).tolist() == [2, 3]  # tanh keeps its output, and h is no more read
    assert step.working_bytes[2:4].tolist() == [ROWS, ROWS]


def test_statistics_that_a_norm_moves_are_not_kept_twice() -> None:
    with torch.device("meta"):
        norm = nn.BatchNorm1d(WIDTH).requires_grad_(False)
    graph = capture(norm, (torch.zeros(BATCH, WIDTH, device="meta"),), name="norm")
    assert not len(graph.working_bytes)


def test_garbage_is_not_collected_at_random() -> None:
    def cyclic(m: Step, x: Tensor) -> Tensor:
        cycle: list[object] = [m.first(x)]
        cycle.append(cycle)
        h = cycle[0].neg()  # type: ignore[attr-defined]
        del cycle
        [[] for _ in range(100_000)]  # which has Python collect its garbage
        return m.second(h).sum()  # type: ignore[no-any-return]

    assert captured(cyclic).working_bytes.tolist() == [0, 0, ROWS, 2 * ROWS]  # h, too


def test_memory_that_is_kept_goes_with_its_ops(tmp_path: Path) -> None:
    graph = captured(with_variable)
    assert graph.autograd is not None
    assert graph.autograd.kept_alive == (Memory((0,), 3),)
    save_graph(graph, tmp_path / "kept.graph.json")
    loaded = load_graph_file(tmp_path / "kept.graph.json")
    assert loaded.autograd == graph.autograd
    assert loaded.working_bytes.tolist() == graph.working_bytes.tolist() == [0, 0, ROWS, ROWS]
    for ops, kept in (([0, 1, 2], (Memory((0,), 2),)), ([1, 2, 3], ())):
        part = subgraph(graph, np.isin(range(4), ops)).autograd
        assert part is not None
        assert part.kept_alive == kept


def test_plans_of_a_graph_do_not_depend_on_it() -> None:
    graph = captured(with_variable)
    assert replace(graph, autograd=None, working_bytes=np.zeros(0)).fingerprint == graph.fingerprint
