"""The copies that autograd makes are the transfers that the simulator shows: which, how many, and of how many bytes."""

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
import torch

from envs.placed_models.call_placement import on_calls
from envs.placed_models.copies import Copy, CopyOf
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.envs.placed_models.models import MLP, MODELS, Run, loss_of, random_run

Sent = dict[tuple[object, int, int], list[int]]  # call, source, destination -> bytes of each that was sent
LOOP = runtime_of("parallelize:host=none")
SEVERAL = "topk"  # whose two outputs the simulator sends together, and a model one by one


def made_by(run: Run) -> list[Copy]:
    """The copies of a forward and a backward pass."""
    with counted_copies(run.parallel) as copies:
        loss_of(run.parallel(**run.batch())).backward()  # type: ignore[no-untyped-call]
    return copies


def sent(copies: list[Copy], *kinds: CopyOf) -> Sent:
    found: Sent = defaultdict(list)
    for copy in copies:
        if copy.of in kinds:
            found[copy.call, copy.source, copy.destination].append(copy.size)
    return {key: sorted(sizes) for key, sizes in found.items()}


def simulated(problem: Problem, plan: Plan, *phases: Phase) -> Sent:
    """A gradient counts as one of the call whose output it is the gradient of, where the runtime says which."""
    timeline = simulate(problem, plan)
    moved, graph, nodes = timeline.transfers, timeline.graph, problem.as_issued.nodes
    calls = dict(enumerate(graph.calls))
    if nodes is not None:
        summed = nodes.sums >= 0
        sums = zip(graph.edge_output[summed].tolist(), nodes.sums[summed].tolist(), strict=True)
        calls |= {output: calls.get(of) for output, of in sums}
    found: Sent = defaultdict(list)
    for producer, output, *ends in zip(moved.producer, moved.output, moved.source, moved.destination, strict=True):
        if graph.phase[producer] in phases:
            source, destination = map(int, ends)
            found[calls[int(output)], source, destination].append(int(graph.moved_bytes[output]))
    return {key: sorted(sizes) for key, sizes in found.items()}


def without(several: Sent) -> Sent:
    return {key: size for key, size in several.items() if getattr(key[0], "function", "") != SEVERAL}


@pytest.mark.parametrize("on", ["cpu", "meta"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_copies_are_the_simulated_transfers(name: str, seed: int, on: str) -> None:
    if on == "meta" and name == "bert":
        pytest.skip("its mask is made of values, which the meta device does not have")
    run = random_run(name, seed, devices=4, on=on)
    copies = made_by(run)
    assert not sent(copies, CopyOf.GIVEN)
    forward = simulated(run.problem, run.plan, Phase.FORWARD)
    assert without(sent(copies, CopyOf.OUTPUT)) == without(forward)
    assert sent(copies, CopyOf.OUTPUT).keys() == forward.keys()
    assert sent(copies, CopyOf.WEIGHT) == simulated(run.problem, run.plan, Phase.UPDATE)
    as_run = replace(run.problem, runtime=LOOP), run.plan
    assert without(simulated(*as_run, Phase.FORWARD)) == without(forward)
    assert without(sent(copies, CopyOf.GRADIENT)) == without(simulated(*as_run, Phase.BACKWARD))
    assert simulated(*as_run, Phase.UPDATE) == simulated(run.problem, run.plan, Phase.UPDATE)


@pytest.mark.parametrize("seed", range(5))
def test_of_layers_in_a_row_the_captured_step_has_the_same_transfers(seed: int) -> None:
    run = random_run("mlp", seed, devices=4)
    moved, graph = simulate(run.problem, run.plan).transfers, run.problem.graph
    sizes = graph.moved_bytes[moved.output]
    copies = made_by(run)
    for phase, kind in ((Phase.FORWARD, CopyOf.OUTPUT), (Phase.BACKWARD, CopyOf.GRADIENT)):
        of_phase = graph.phase[moved.producer] == phase
        ours = [copy.size for copy in copies if copy.of is kind]
        assert (len(ours), sum(ours)) == (of_phase.sum(), sizes[of_phase].sum())


def test_a_tensor_is_copied_once_however_many_read_it() -> None:
    """Two layers of ones: by hand."""

    class Fan(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = (torch.nn.Linear(4, 4, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.one(x)
            return torch.cat([self.two(y), self.three(y.view(-1, 2, 2).reshape(-1, 4))])

    from graphs.capture.forward import capture
    from graphs.capture.training_step import training_step

    model, x = Fan(), torch.ones(2, 4)
    problem = Problem(training_step(capture(model, (x,), name="fan")), load_cluster("p100x2"))
    placement = [0 if graph_name.startswith("one/") else 1 for graph_name in problem.graph.names]
    problem, plan, moved = on_calls(problem, Plan.of(placement), model)
    assert not moved
    run_by_plan(model, problem, plan, ["cpu", "cpu"])
    with counted_copies(model) as copies:
        model(x).sum().backward()
    assert Counter((copy.of, copy.source, copy.destination, copy.size) for copy in copies) == {
        (CopyOf.OUTPUT, 0, 1, 32): 1,
        (CopyOf.GRADIENT, 1, 0, 32): 1,
    }
    assert len(simulate(replace(problem, runtime=LOOP), plan).transfers) == 2
    assert len(simulate(problem, plan).transfers) == 3  # two gradients, each by itself


def test_only_a_model_that_is_run_by_a_plan_makes_copies() -> None:
    from graphs.foundation.errors import InputError

    with pytest.raises(InputError, match="not run by a plan"), counted_copies(MLP()):
        pass
