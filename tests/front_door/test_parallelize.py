"""A model runs by a plan that was placed, that is in a file, or that is an object; what is missing is asked for."""

import json
import logging
import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import placelab
from envs.placed_models.copies import CopyOf
from envs.placed_models.parallel import counted_copies
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.examples import example_of, with_data
from graphs.foundation.errors import InputError
from graphs.runtime import runtime_of

ROOT = Path(__file__).resolve().parents[2]
USERS = f"{ROOT / 'tests/fixtures/user_module.py'}:two_towers"
TWO: Any = ["cpu", "cpu"]


def two_towers() -> nn.Module:
    from tests.fixtures.user_module import TwoTowers

    torch.manual_seed(0)
    return TwoTowers(4)


@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of the copy
def test_the_training_loop_of_the_document_runs() -> None:
    document = (ROOT / "docs/running.md").read_text()
    example = re.findall(r"```python\n(.*?)```", document, re.DOTALL)[0]
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(example, "running.md", "exec"), names)
    model, images = names["model"], names["images"]
    assert isinstance(model, nn.Sequential)
    own = deepcopy(model)
    del own.forward
    torch.testing.assert_close(model(images), own(images))
    assert 0 < names["loss"].item() < 2.3


def test_what_place_returns_is_enough() -> None:
    model = two_towers()
    inputs = torch.ones(3, 4), torch.ones(3, 4)
    placed = placelab.place((model, inputs), cluster="p100x2", placer="round_robin")
    parallel = placelab.parallelize(deepcopy(model), placed, devices={"gpu:1": "cpu", "gpu:0": "cpu"})
    with counted_copies(parallel) as copies:
        torch.testing.assert_close(parallel(*inputs, scale=2.0), model(*inputs, scale=2.0))
    assert {copy.of for copy in copies} <= {CopyOf.OUTPUT, CopyOf.WEIGHT}
    assert copies
    with pytest.raises(InputError, match="comes with its graph and its cluster; leave out"):
        placelab.parallelize(two_towers(), placed, devices=TWO, cluster="p100x2")


def test_a_plan_for_another_way_of_running_says_what_this_loop_keeps_of_its_gain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of both ways the speed-up over one device is simulated; of the same way nothing is said."""
    file, model = tmp_path / "mine.plan.json", "rnnlm:layers=2,steps=4,hidden=512,batch=1024,vocabulary=64"
    module = with_data(example_of(model), 0).module
    placed = placelab.place(model, cluster="p100x2", placer="annealing", budget=50, runtime="ideal", out=file)
    gains = []
    for runtime in ("ideal", "parallelize"):
        problem = replace(placed.problem, runtime=runtime_of(runtime))
        alone = simulate(problem, Plan.of([0] * len(problem.graph))).step_seconds
        gains.append(alone / simulate(problem, placed.plan).step_seconds)
    assert gains[0] > gains[1] > 1
    kept = (gains[1] - 1) / (gains[0] - 1)
    said = rf"made for `ideal`, .* {gains[0]:.2f} times .* {gains[1]:.2f} times .*: {kept:.0%} of that gain"
    elsewhere = placelab.simulate(model, file, cluster="p100x2", runtime="parallelize")
    given: Any
    for given in ({"plan": placed}, {"plan": elsewhere}, {"plan": file, "graph": model, "cluster": "p100x2"}):
        caplog.clear()
        placelab.parallelize(deepcopy(module), devices=TWO, **given)
        assert re.search(said, caplog.text)
        assert "`runtime='parallelize'` plans for this loop" in caplog.text
    caplog.clear()
    own = placelab.place(model, cluster="p100x2", placer="heft", host="30us")
    placelab.parallelize(deepcopy(module), own, devices=TWO)
    assert "made for" not in caplog.text
    placelab.parallelize(deepcopy(module), own, devices=TWO, defer_weight_gradients=False)
    assert "`runtime='parallelize:host=30us,defer=false'` plans for this loop" in caplog.text
    placelab.parallelize(deepcopy(module), own, devices=TWO, side_streams=False)
    assert "`runtime='parallelize:host=30us,copies=barrier'` plans for this loop" in caplog.text
    caplog.clear()
    plain = placelab.place(model, cluster="p100x2", placer="heft", runtime="parallelize:copies=barrier,defer=false")
    placelab.parallelize(deepcopy(module), plain, devices=TWO)
    assert "made for" not in caplog.text
    placelab.parallelize(deepcopy(module), plain, devices=TWO, side_streams=True, defer_weight_gradients=True)
    assert "`runtime='parallelize'` plans for this loop" in caplog.text


def test_a_step_is_replayed_with_example_inputs(caplog: pytest.LogCaptureFixture) -> None:
    """By a plan for another way, too; of one for this way nothing is said."""
    inputs = torch.ones(3, 4), torch.ones(3, 4)
    for runtime in ("replay", "ideal"):
        caplog.clear()
        placed = placelab.place((two_towers(), inputs), cluster="p100x2", placer="round_robin", runtime=runtime)
        models = placelab.parallelize(two_towers(), placed, devices=TWO, replay=inputs), two_towers()
        for model in models:
            model(*inputs).sum().backward()
        gradients = ([weight.grad for weight in model.parameters()] for model in models)
        torch.testing.assert_close(*gradients)
        assert ("made for `ideal`" in caplog.text) == (runtime == "ideal")
        assert ("`runtime='replay'` plans for this loop" in caplog.text) == (runtime == "ideal")
    with pytest.raises(TypeError, match=r"parallelize\(\) got an unexpected keyword argument 'replayed'"):
        placelab.parallelize(two_towers(), placed, devices=TWO, replayed=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("groups", [None, 2])
def test_a_plan_file_is_run_with_the_model_that_it_is_for(tmp_path: Path, groups: int | None) -> None:
    file = tmp_path / "mine.plan.json"
    placelab.place(USERS, cluster="p100x2", placer="heft", groups=groups, out=file)
    torch.testing.assert_close(
        placelab.parallelize(two_towers(), file, devices=TWO, graph=USERS, cluster="p100x2")(*[torch.ones(3, 4)] * 2),
        two_towers()(*[torch.ones(3, 4)] * 2),
    )
    with pytest.raises(InputError, match="does not say of which model's calls it is; give that, too"):
        placelab.parallelize(two_towers(), file, devices=TWO)
    with pytest.raises(InputError, match="this plan is for graph"):
        placelab.parallelize(two_towers(), file, devices=TWO, graph="layered", cluster="p100x2")
    with pytest.raises(InputError, match="this plan is for cluster 'p100:devices=2'"):
        placelab.parallelize(two_towers(), file, devices=TWO, graph=USERS, cluster="v100x2")
    with pytest.raises(InputError, match="for another model"):
        placelab.parallelize(nn.Linear(4, 4), file, devices=TWO, graph=USERS, cluster="p100x2")
    content = json.loads(file.read_text())
    content["plan"]["schedule"] = {"micro_batches": 2}
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="parallelize takes op placements only, and this plan runs 2 micro-batches"):
        placelab.parallelize(two_towers(), file, devices=TWO, graph=USERS, cluster="p100x2")


def test_a_plan_of_another_batch_is_read_with_that(tmp_path: Path) -> None:
    file = tmp_path / "mine.plan.json"
    placelab.place(USERS, cluster="p100x2", placer="heft", batch=8, out=file)
    model = placelab.parallelize(two_towers(), file, devices=TWO, graph=USERS, cluster="p100x2", batch=8)
    assert model(*[torch.ones(5, 4)] * 2).shape == (5, 1)


def test_a_graph_that_knows_no_calls_is_refused(tmp_path: Path) -> None:
    graph = tmp_path / "mine.graph.json"
    placelab.capture(USERS, out=graph)
    plan = placelab.place(graph, cluster="p100x2", placer="heft")
    assert placelab.parallelize(two_towers(), plan, devices=TWO)
    content = json.loads(graph.read_text())
    for node in content["nodes"]:
        node.pop("call", None)
    graph.write_text(json.dumps(content))
    with pytest.raises(InputError, match="does not say which calls of a model's code its ops come from"):
        placelab.parallelize(two_towers(), plan.plan, devices=TWO, graph=graph, cluster="p100x2")


def test_a_call_whose_ops_are_apart_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Loss(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self[0](x), torch.zeros(len(x), dtype=torch.long))

    model, x = Loss(nn.Linear(4, 4)), torch.ones(2, 4)
    graph = placelab.place((model, (x,)), cluster="p100x2", placer="single_device").problem.graph
    apart = Plan.of([int("nll_loss" in name) for name in graph.names])
    with caplog.at_level(logging.WARNING):
        placelab.parallelize(model, apart, devices=TWO, graph=graph, cluster="p100x2")
    assert "the call 'cross_entropy' in the model does not run where the plan puts all of its ops" in caplog.text
    assert model(x).shape == ()
