"""Copies in side streams: whatever streams take, nothing is read before it is written, or lost before it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function

from envs.placed_models import parallel
from envs.placed_models.call_placement import CallPlacement, on_calls
from envs.placed_models.known_tensors import Known, KnownTensors
from envs.placed_models.parallel import run_by_plan
from envs.placed_models.places import EVERYWHERE
from envs.placed_models.side_streams import PendingCopy, SideStreams
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.envs.placed_models.models import MODELS, Checkpointed, Run, loss_of, random_run
from tests.envs.placed_models.streams_recorder import RecordedStreams, Recorder

DEVICES, STEPS = 3, 3
SIDE = runtime_of("parallelize:host=none")


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch, streams: type[RecordedStreams] = RecordedStreams) -> Iterator[Recorder]:
    """Inside, models that are placed have recorded side streams, and tensors lie where the recorder has them."""
    recorder, of = Recorder(DEVICES), KnownTensors.of

    def known(self: KnownTensors, tensor: Tensor) -> Known:
        found = of(self, tensor)
        place = recorder.place_of(tensor) if found.place == EVERYWHERE else EVERYWHERE
        return found if place == EVERYWHERE else Known(place, found.of)

    with monkeypatch.context() as patched:
        patched.setattr(parallel, "SideStreams", lambda devices: streams(devices, recorder))
        patched.setattr(KnownTensors, "of", known)
        yield recorder


def steps(run: Run, recorder: Recorder) -> list[float]:
    """Losses of training steps of the model that is run by a plan."""
    weights, found = list(run.parallel.named_parameters()), list[float]()
    homes = CallPlacement.of(run.problem.graph, run.plan).homes
    for name, weight in weights:
        recorder.lies(weight, homes[name])
    optimizer = torch.optim.SGD([weight for _, weight in weights], 0.1, foreach=False)
    for step in range(STEPS):
        batch = run.batch(seed=step)
        with recorder:
            loss = loss_of(run.parallel(**batch))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        found.append(float(loss.detach()))
        del loss
    return found


ONE_OUTPUT = [name for name in MODELS if name != "bert"]  # a loss of several reads of several places


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", ONE_OUTPUT)
def test_all_that_is_given_to_streams_is_in_order(name: str, defer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch) as recorder:
        run = random_run(name, 0, devices=DEVICES, runtime=SIDE, defer=defer)
        losses = steps(run, recorder)
    assert recorder.faults == []
    assert recorder.copies > STEPS
    plain = random_run(name, 0, devices=DEVICES)
    assert losses == pytest.approx(steps(plain, Recorder(DEVICES)), rel=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_computed_again_is_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Checkpointed(), torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
    problem = Problem(training_step(capture(model, (x.detach(),), name="again")), load_cluster("p100x3"), runtime=SIDE)
    random = np.random.default_rng(seed).integers(0, DEVICES, problem.graph.num_units)
    problem, plan, _ = on_calls(problem, Plan.of_units(problem, random), model)
    with recorded(monkeypatch) as recorder:
        placed = run_by_plan(deepcopy(model), problem, plan, ["cpu"] * DEVICES)
        homes = CallPlacement.of(problem.graph, plan).homes
        for name, weight in placed.named_parameters():
            recorder.lies(weight, homes[name])
        recorder.lies(x, 0)
        for _ in range(STEPS):
            with recorder:
                placed(x).pow(2).sum().backward()
            model(x).pow(2).sum().backward()
    assert recorder.faults == []
    assert recorder.copies > STEPS
    gradients = ([weight.grad for weight in each.parameters()] for each in (placed, model))
    torch.testing.assert_close(*gradients)


class Changing(nn.Module):
    """Reads a tensor elsewhere, and changes it then; and adds to it, so that the gradient of the sum is its, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.second(x)
        x.mul_(2)
        h = self.third(x)
        z: Tensor = x + y + h
        return z


def changing_run() -> Run:
    """The second layer, alone, is on another device."""
    model, inputs = Changing(), lambda batch, random: {"x": torch.randn(batch, 8, generator=random)}
    graph = training_step(capture(model, (torch.zeros(4, 8),), name="changing"))
    of_second = {op for op, call in enumerate(graph.calls) if call is not None and call.module == "second"}
    problem = Problem(graph, load_cluster(f"p100x{DEVICES}"), runtime=SIDE)
    devices = [int(op in of_second or graph.mirror[op] in of_second) for op in range(len(graph))]
    problem, plan, _ = on_calls(problem, Plan.of(devices), model)
    return Run(model, run_by_plan(deepcopy(model), problem, plan, ["cpu"] * DEVICES), inputs, problem, plan)


def test_what_is_changed_in_place_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(monkeypatch) as recorder:
        steps(changing_run(), recorder)
    assert recorder.faults == []


@pytest.mark.parametrize("refers", [True, False])
def test_autograd_adds_in_place_only_to_gradients_that_nobody_refers_to(refers: bool) -> None:
    """As the recorder has it: the gradient of the sum goes to both, one of which keeps it, and to one another is added.

    No mode is active, in which autograd adds nothing in place.
    """
    kept, sums = list[tuple[Tensor | None, int]](), list[int]()

    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            kept.append((gradient if refers else None, gradient.data_ptr()))
            return gradient * 1

    x, y = (torch.ones(3, requires_grad=True) * 1 for _ in range(2))
    x.register_hook(lambda gradient: sums.append(gradient.data_ptr()))  # type: ignore[no-untyped-call]
    other = x.tanh()
    shared: Tensor = x + Kept.apply(y)  # type: ignore[no-untyped-call]
    ((shared * 2).sum() + other.sum()).backward()  # type: ignore[no-untyped-call]
    [(gradient, address)] = kept
    assert (sums == [address]) == (not refers)
    assert gradient is None or gradient.tolist() == [2, 2, 2]


def test_gradients_can_be_differentiated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a norm of gradients; there both are sent as any other tensor."""

    def penalty(model: nn.Module) -> list[Tensor]:
        x = torch.linspace(-1, 1, 64).reshape(4, 16).requires_grad_()
        [gradient] = torch.autograd.grad(model(x).pow(2).sum(), x, create_graph=True)
        return list(torch.autograd.grad(gradient.pow(2).sum(), list(model.parameters())))

    with recorded(monkeypatch) as recorder:
        run = random_run("mlp", 0, devices=DEVICES, runtime=SIDE)
        torch.testing.assert_close(penalty(run.parallel), penalty(run.model))
        assert recorder.copies > 4


def test_streams_join_accelerators_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [torch.device(each) for each in ("cuda:0", "cuda:1", "cpu", "cuda:0")]
    assert not SideStreams(devices).join(0, 1)  # there are none here
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    streams = SideStreams(devices)
    assert streams.join(0, 1)
    assert streams.join(0, 3)  # one that stands for two
    assert not any(streams.join(*ends) for ends in ((0, 2), (2, 0), (0, 0), (EVERYWHERE, 1)))


def test_each_stream_of_a_device_waits_for_what_has_left_it() -> None:
    """Two threads have streams of their own; neither takes from the other what it has yet to wait for."""
    recorder = Recorder(2)
    streams = RecordedStreams([torch.device("cpu")] * 2, recorder)
    leaves, _ = streams._between(0, 1)
    own, other = recorder.compute[0], recorder.stream(0)
    for _ in range(2):
        streams.send(torch.ones(2), 0, 1)
        sent = cast(Any, leaves).tick()
        for each in (own, other):
            assert not each.knows(sent)
            recorder.compute[0] = each
            streams.settle(0)
            assert each.knows(sent)
    before = dict(own.clock)
    recorder.compute[0] = own
    streams.settle_all()  # nothing has left since
    assert own.clock == before


class WaitsForNobody(RecordedStreams):
    def send(self, tensor: Tensor, source: int, destination: int) -> PendingCopy:
        leaves, _ = self._between(source, destination)
        self._recorder.compute[source], before = cast(Any, leaves), self._recorder.compute[source]
        try:
            return super().send(tensor, source, destination)
        finally:
            self._recorder.compute[source] = before


class IsNotWaitedFor(RecordedStreams):
    def receive(self, sent: PendingCopy) -> Tensor:
        self._keep(sent.there, self._current(sent.place))
        return sent.there


class TellsNobody(RecordedStreams):
    def _keep(self, tensor: Tensor, stream: Any) -> None:
        pass


class RefersToNothing(RecordedStreams):
    def refer(self, tensor: Tensor, event: torch.Event) -> None:
        pass


class SettlesNothing(RecordedStreams):
    def settle(self, place: int) -> None:
        pass


@pytest.mark.parametrize(
    ("streams", "fault"),
    [
        (WaitsForNobody, "may not have written"),
        (IsNotWaitedFor, "may not have written"),
        (TellsNobody, "may not have used it"),
        (RefersToNothing, "may not have read"),
        (SettlesNothing, "may not have read"),
    ],
)
def test_whatever_is_left_out_is_noticed(
    streams: type[RecordedStreams], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch, streams) as recorder:
        steps(changing_run(), recorder)
    assert any(fault in each for each in recorder.faults)
