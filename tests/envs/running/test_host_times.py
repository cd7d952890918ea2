"""What issuing an op costs a thread: which calls are timed, and of which steps."""

import numpy as np
import pytest
import torch

from envs.running.measuring.eager_step import WARM_UP, EagerStep, part_seconds, timed_ops
from envs.running.measuring.host_times import MODELS, OF_OPS, PlacedStep, per_op
from graphs.files.load import load_graph
from graphs.op_graph import Phase


class FakeClock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def pass_by(self, seconds: float) -> None:
        self.seconds += seconds


def test_each_part_takes_what_it_takes_to_call_it_in_quiet_steps() -> None:
    clock, step = FakeClock(), iter(range(100))
    disturbed = {0: 50.0, WARM_UP + 1: 9.0}  # the first step, and one of four that count

    def parts(forward: float, backward: float) -> tuple[object, object]:
        return (lambda: clock.pass_by(forward + disturbed.get(next(step), 0.0))), (lambda: clock.pass_by(backward))

    found = part_seconds(parts(2.0, 3.0), 4, lambda: clock.pass_by(1000.0), clock)  # type: ignore[arg-type]
    assert found.tolist() == [2.0, 3.0]  # without what is waited for between steps


@pytest.mark.parametrize("model", MODELS)
def test_a_step_in_a_plain_loop_computes_the_gradients_and_updates_of_its_graph(model: str) -> None:
    """So its calls are divided by the ops that they issue."""
    graph = load_graph(model)
    forward, backward, update = timed_ops(graph)
    assert 0 < update == (graph.phase == Phase.UPDATE).sum()  # one of all weights that an op reads
    assert 50 < forward < backward
    step = EagerStep(model, torch.device("cpu"))
    weights = step.weights
    before = [weight.detach().clone() for weight in weights]
    for part in step.parts:
        part()
    assert len(weights) == len(graph.weights)
    changed = [not torch.equal(weight, old) for weight, old in zip(weights, before, strict=True)]
    assert changed == [weight.grad is not None and bool(weight.grad.any()) for weight in weights]
    assert any(changed)


def test_what_a_plan_adds_is_found_again() -> None:
    """Of 10 ops and 2 copies in a placed forward pass, 20 ops backward and 4 gradients that wait in both passes."""
    host = {"forward": 7.0, "backward": 5.0, "update": 3.0, "placed": 2.0, "deferral": 6.0}
    plain = np.array([10 * 7.0, 20 * 5.0, 2 * 3.0])
    placed = plain + np.array([10 * 2.0 + 2 * (7.0 + 2.0), 0.0, 0.0])
    deferring = placed + np.array([4 * 6.0, 4 * 6.0, 0.0])
    ops = np.array([10.0, 20.0, 2.0])
    assert per_op(np.array([plain, placed, deferring]), ops, 2, 4) == pytest.approx([host[of] for of in OF_OPS])
    assert per_op(np.array([plain, plain - 1, plain - 2]), ops, 0, 4)[3:] == [0.0, 0.0]


def test_a_placed_step_trains_the_model_on_two_places() -> None:
    model = MODELS[0]
    plain = EagerStep(model, torch.device("cpu"))
    placed = PlacedStep(model, load_graph(model), torch.device("cpu"), defer=True)
    assert placed.copies > 0
    for part in plain.parts:
        part()
    for one, other in zip(plain.weights, placed.weights, strict=True):
        torch.testing.assert_close(one, other)
