"""What a model that is run by a plan may do, what it is told, and what is refused."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from envs.placed_models.call_placement import on_calls
from envs.placed_models.called_parts import UnknownCallWarning
from envs.placed_models.copies import CopyOf
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.placed_models.weight_gradients import deferred
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import runtime_of
from tests.envs.placed_models.models import MLP, MODELS, captured, random_run
from tests.oracle.fake_step import Storages


class Small(nn.Module):
    """Two layers, and what a test does with them."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(4))
        self.own = forward
        self.more = False

    def forward(self, x: Tensor) -> Any:
        return self.own(self, x)


def apart(forward: Callable[..., Any]) -> tuple[nn.Module, nn.Module]:
    """A small model, and a copy of it that is run with its ops on two places in turns."""
    torch.manual_seed(0)
    model = Small(forward)
    problem = Problem(training_step(capture(model, (torch.ones(2, 4),), name="small")), load_cluster("p100x2"))
    problem, plan, _ = on_calls(problem, Plan.of(problem.graph.units % 2), model)
    return model, run_by_plan(deepcopy(model), problem, plan, ["cpu", "cpu"])


def assert_same(forward: Callable[..., Any]) -> None:
    """Also of the inputs and of the buffers afterwards."""
    model, parallel = apart(forward)
    found = []
    for each in (model, parallel):
        x = torch.arange(8.0).reshape(2, 4).requires_grad_()
        outputs, inputs = list[Tensor](), list[Tensor]()
        for _ in range(2):
            inputs.append(x * 1.0)
            outputs.append(each(inputs[-1]))
            outputs[-1].sum().backward()  # type: ignore[no-untyped-call]
        gradients = [weight.grad for weight in each.parameters()]
        found.append((outputs, [y.detach() for y in inputs], x.grad, gradients, each.state_dict()))
    torch.testing.assert_close(*found)


def _in_place(m: Small, x: Tensor) -> Tensor:
    y = m.one(x)
    y += m.two(x)
    y.mul_(2)
    F.relu(y, inplace=True)
    F.dropout(y, 0.0, True, True)  # in place, by position
    z: Tensor = torch.tanh(y) * y
    return z


def _counts(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.one(x)
    m.count.add_(y.detach().sum(0))
    m.count = m.count * 2  # of which the product below keeps this one
    return m.two(y) * m.count  # type: ignore[no-any-return]


def _changes_its_input(m: Small, x: Tensor) -> Tensor:
    x.add_(1)
    return m.two(m.one(x)) * x  # type: ignore[no-any-return]


def _views(m: Small, x: Tensor) -> Tensor:
    y = m.one(x)
    left, right = y.chunk(2, 1)
    with torch.no_grad():
        fixed = y.view(-1)
    z: Tensor = torch.cat([left.T.T * right, m.two(y)[:, 1:]], 1).sum() + (fixed * y.reshape(-1)).sum()
    return z


def _without_gradient(m: Small, x: Tensor) -> Tensor:
    y: Tensor = m.one(x)
    with torch.no_grad():
        scale = m.two(y).mean()
    return m.two(y * scale) + y.detach() * m.two.weight.detach()[0]  # type: ignore[no-any-return]


def _of_weights(m: Small, x: Tensor) -> Tensor:
    both = torch.cat([m.one.weight, m.two.weight[:2]])
    return F.linear(m.two(m.one(x)), both).sum(1) + m.one.bias.view(2, 2).sum()


@pytest.mark.parametrize("forward", [_in_place, _counts, _changes_its_input, _views, _without_gradient, _of_weights])
def test_aliases_changes_in_place_and_what_has_no_gradient_are_as_they_were(forward: Callable[..., Any]) -> None:
    assert_same(forward)


def test_a_change_that_no_name_tells_reaches_the_tensor_itself() -> None:
    def forward(m: Small, x: Tensor) -> Tensor:
        mean, y = torch.zeros(4) + m.two(x).detach().mean(0), m.one(x)
        normed = [F.batch_norm(y, each, torch.ones(4), training=True) for each in (mean, m.count)]
        out: Tensor = (normed[0] + normed[1]) * mean
        return out

    assert_same(forward)


# ---- what it is told ---------------------------------------------------------------------------------------------


def test_an_unknown_call_is_named_once_and_runs() -> None:
    def forward(m: Small, x: Tensor) -> Tensor:
        y = m.two(m.one(x))
        return m.one(torch.sigmoid(y) * 2) if m.more else y  # type: ignore[no-any-return]

    model, parallel = apart(forward)
    x = torch.ones(2, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(parallel(x), model(x))
    for each in (model, parallel):
        vars(each)["more"] = True
    with pytest.warns(UnknownCallWarning, match=r"does not know the call \('', 'sigmoid', 0\) and 2 more; it runs"):
        torch.testing.assert_close(parallel(x), model(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(parallel(x), model(x))


def test_torch_compile_runs_it_as_it_is() -> None:
    run = random_run("mlp", 0)
    compiled = torch.compile(run.parallel, backend="eager")
    for seed in range(2):
        torch.testing.assert_close(compiled(**run.batch(seed=seed)), run.model(**run.batch(seed=seed)))
    whole = torch.compile(run.parallel, backend="eager", fullgraph=True)
    with pytest.raises(
        InputError, match=r"is not compiled, so that there is no full graph of it; leave out `fullgraph"
    ):
        whole(**run.batch())
    torch.testing.assert_close(run.parallel(**run.batch()), run.model(**run.batch()))  # as before


def test_torch_jit_script_is_refused_by_one_sentence() -> None:
    parallel = random_run("mlp", 0).parallel
    assert not hasattr(parallel.forward, "__globals__")
    with pytest.raises(
        InputError, match=r"^a model that is run by a plan is not scripted, .*; script another one, with"
    ):
        torch.jit.script(parallel)


def test_torch_export_is_refused_by_one_sentence() -> None:
    run = random_run("mlp", 0)
    with pytest.raises(InputError, match=r"^a model that is run by a plan is not exported, .*; export the model bef"):
        torch.export.export(run.parallel, (), run.batch())


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_another_plan_is_refused_by_one_sentence() -> None:
    problem, ops = Problem(captured("mlp"), load_cluster("p100x2")), len(captured("mlp"))
    model = MLP()
    for plan, what in (
        (Plan(((0, 1),) * ops), "places ops on 2 devices each"),
        (Plan(((0,),) * ops, schedule=Schedule(3)), "runs 3 micro-batches"),
        (Plan(((0,),) * ops, schedule=Schedule(stages=(0,) * ops)), "has stages"),
    ):
        with pytest.raises(InputError, match=f"parallelize takes op placements only, and this plan {what}"):
            on_calls(problem, plan, model)


def test_the_plan_of_another_model_is_refused_by_one_sentence() -> None:
    problem = Problem(captured("mlp"), load_cluster("p100x2"))
    plan = Plan.of([0] * len(problem.graph))
    devices = ["cpu", "cpu"]
    with pytest.raises(InputError, match=r"for another model: 'mlp' has a weight '0.weight', the given has none"):
        run_by_plan(MODELS["gpt"]()[0], problem, plan, devices)
    wider = MLP()
    wider[2] = nn.Linear(16, 32)
    with pytest.raises(InputError, match=r"in 'mlp' the weight '2.weight' has 1024 bytes, and .* \(32, 16\)"):
        run_by_plan(wider, problem, plan, devices)
    compiled: Any = torch.compile(MLP(), backend="eager")
    with pytest.raises(
        InputError, match=r"was compiled by torch.compile, .* give the module itself, which is its `_orig_"
    ):
        run_by_plan(compiled, problem, plan, devices)
    half = run_by_plan(MLP().half(), problem, plan, devices)
    assert half(torch.ones(2, 16, dtype=torch.half)).dtype is torch.half
    with pytest.raises(InputError, match=r"half runs by a plan, .* before `parallelize`"):
        capture(nn.Sequential(half), (torch.ones(2, 16, dtype=torch.half),), name="half")
    with pytest.raises(InputError, match="run by a plan already"):
        run_by_plan(half, problem, plan, devices)
    with torch.device("meta"), pytest.raises(InputError, match=r"'0.weight' is on the meta device, .*to_empty"):
        run_by_plan(MLP(), problem, plan, devices)


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        (["cpu"], "1 devices are given, and the plan has 'gpu:0', 'gpu:1'; give one for each"),
        (["cpu", "tpu:9x"], "device 'tpu:9x' cannot be used here: RuntimeError"),
        ({"gpu:0": "cpu", "gpu:7": "cpu"}, "devices are given for 'gpu:0', 'gpu:7', and the plan has 'gpu:0', 'gpu:1'"),
        ("cpu", "expected a list, or a dict by name, for 'gpu:0', 'gpu:1'; got 'cpu'"),
    ],
)
def test_other_devices_are_refused_by_one_sentence(devices: Any, sentence: str) -> None:
    problem = Problem(captured("mlp"), load_cluster("p100x2"))
    with pytest.raises(InputError, match=sentence):
        run_by_plan(MLP(), problem, Plan.of([0] * len(problem.graph)), devices)


# ---- where things are --------------------------------------------------------------------------------------------


def test_devices_may_be_named_and_of_different_kinds() -> None:
    """Half of it on the meta device: weights, outputs and loss are where the plan says."""
    problem = Problem(captured("mlp"), load_cluster("p100x2"))
    later = [int(name.startswith(("4", "5", "6", "7", "loss"))) for name in problem.graph.names]
    problem, plan, _ = on_calls(problem, Plan.of(later), MLP())
    with torch.device("meta"):
        model = MLP()
    run_by_plan(model, problem, plan, {"gpu:1": "meta", "gpu:0": "meta"})
    with counted_copies(model) as copies:
        model(torch.ones(2, 16, device="meta")).sum().backward()
    assert [(copy.of, copy.source, copy.destination) for copy in copies] == [
        (CopyOf.OUTPUT, 0, 1),
        (CopyOf.GRADIENT, 1, 0),
    ]
    mixed = MLP()
    mixed[4], mixed[6] = (nn.Linear(16, 16, device="meta") for _ in range(2))
    run_by_plan(mixed, problem, plan, ["cpu", "meta"])
    assert [weight.device.type for weight in mixed.parameters()] == ["cpu"] * 4 + ["meta"] * 4
    with counted_copies(mixed) as copies:
        assert mixed(torch.ones(2, 16)).device.type == "meta"
    assert [(copy.of, copy.source, copy.destination) for copy in copies] == [(CopyOf.OUTPUT, 0, 1)]


def test_weights_and_buffers_are_put_where_their_modules_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch puts nothing that has data on the meta device, so what would be put there is noted."""
    put: dict[str, str] = {}
    monkeypatch.setattr("envs.placed_models.parallel._put", lambda _, device, name: put.update({name: device.type}))
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
    graph = training_step(capture(model, (torch.ones(2, 4),), name="norms"))
    plan = Plan.of([int(name.startswith("1/")) for name in graph.names])
    problem, plan, _ = on_calls(Problem(graph, load_cluster("p100x2")), plan, model)
    run_by_plan(model, problem, plan, ["cpu", "meta"])
    assert put == {name: "cpu" if name.startswith("0.") else "meta" for name in model.state_dict()}


def test_the_optimizer_made_before_still_updates() -> None:
    run = random_run("mlp", 0)
    problem, plan = run.problem, run.plan
    model = MLP()
    optimizer = SGD(model.parameters(), 0.1)
    run_by_plan(model, problem, plan, ["cpu"] * 3)
    before = deepcopy(model.state_dict())
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    assert not any(torch.equal(before[name], now) for name, now in model.state_dict().items())


# ---- deferred gradients of weights -------------------------------------------------------------------------------


def test_gradients_of_weights_wait_for_all_gradients_of_inputs() -> None:
    for defer in (False, True):
        seen = gradients_in_order(random_run("mlp", 0, defer=defer).parallel)
        assert sorted(seen) == ["input"] * 4 + ["weight"] * 4
        assert (seen == sorted(seen)) == defer


def test_gradients_that_take_no_longer_than_waiting_costs_do_not_wait() -> None:
    seen = gradients_in_order(random_run("mlp", 0, defer=True, runtime=runtime_of("parallelize")).parallel)
    assert seen == gradients_in_order(random_run("mlp", 0).parallel)


def gradients_in_order(model: nn.Module) -> list[str]:
    """Whether each gradient that is there is one of a weight, or of a layer's output, which is the input of another."""
    seen = list[str]()

    def watch(part: nn.Module, given: Any, out: Tensor) -> None:
        out.register_hook(lambda _: seen.append("input"))  # type: ignore[no-untyped-call]

    for part in model.children():
        if isinstance(part, nn.Linear):
            part.weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _: seen.append("weight")
            )
            part.register_forward_hook(watch)
    model(torch.ones(2, 16)).sum().backward()
    return seen


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("function", "x", "weight", "rest"),
    [
        (F.linear, (3, 5), (2, 5), {}),
        (F.linear, (5,), (2, 5), {}),
        (F.linear, (2, 3, 5), (2, 5), {}),
        (F.conv1d, (2, 4, 9), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
        (F.conv2d, (2, 4, 8, 7), (6, 4, 3, 2), {"stride": (2, 1), "dilation": (1, 2)}),
        (F.conv2d, (4, 8, 7), (6, 4, 3, 2), {}),
        (F.conv3d, (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {"padding": 1}),
        (F.embedding, (7,), (5, 3), {"padding_idx": -1}),
        (F.embedding, (2, 7), (5, 3), {"scale_grad_by_freq": True}),
    ],
)
def test_deferred_gradients_are_those_of_autograd(
    function: Callable[..., Tensor], x: tuple[int, ...], weight: tuple[int, ...], rest: dict[str, Any], bias: bool
) -> None:
    torch.manual_seed(0)
    looks_up = function is F.embedding
    if looks_up and bias:
        return
    given = torch.randint(0, 5, x) if looks_up else torch.randn(x)
    tensors = [given, torch.randn(weight), *([torch.randn(weight[0])] if bias else [])]
    found = []
    for run in (lambda args: function(*args, **rest), lambda args: deferred(function, args, rest)):
        leaves = [each.clone().requires_grad_(each.is_floating_point()) for each in tensors]
        y = run(tuple(leaves)).add_(1)  # changed in place, as by an activation
        (y * torch.arange(y.numel()).reshape(y.shape)).sum().backward()
        found.append((y.detach(), [leaf.grad for leaf in leaves]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def test_what_is_deferred_makes_the_gradients_alone() -> None:
    """With a bias y is a view: were an autograd function to say that it changes that, its gradient would be copied."""
    leaves = [torch.ones(shape, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,))]
    y = deferred(F.linear, tuple(leaves), {})
    gradient, storages = torch.ones_like(y), Storages()
    for each in (*leaves, y, gradient):
        storages.see(each)
    before = storages.now
    with storages:
        y.backward(gradient)
    assert storages.held.peak - before == sum(each.nbytes for each in leaves)


@pytest.mark.parametrize(("function", "x"), [(F.embedding, torch.tensor([1, 3])), (F.linear, torch.ones(2, 3))])
def test_a_weight_may_change_before_its_deferred_gradient_as_before_that_of_autograd(
    function: Callable[..., Tensor], x: Tensor
) -> None:
    found = []
    for defers in (False, True):
        weight = torch.ones(4, 3, requires_grad=True)
        y = deferred(function, (x, weight), {}) if defers else function(x, weight)
        with torch.no_grad():
            weight.mul_(2)
        y.square().sum().backward()
        found.append(weight.grad)
    torch.testing.assert_close(*found)


def test_what_cannot_be_deferred_is_left_to_autograd() -> None:
    x, w = torch.ones(2, 3, 4), torch.ones(5, 3, 2, requires_grad=True)
    index, table = torch.zeros(2, dtype=torch.long), torch.ones(3, 4, requires_grad=True)
    assert deferred(F.conv1d, (x, w), {"padding": "same"}) is NotImplemented
    assert deferred(F.embedding, (index, table), {"sparse": True}) is NotImplemented
    assert deferred(F.embedding, (index, table.detach()), {}) is NotImplemented
    assert deferred(torch.tanh, (x,), {}) is NotImplemented
    with torch.no_grad():
        assert deferred(F.embedding, (index, table), {}) is NotImplemented


def test_a_part_that_is_called_without_the_model_is_named_once() -> None:
    _, parallel = apart(lambda m, x: m.two(m.one(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel(torch.ones(2, 4)).sum().backward()
    with pytest.warns(UnknownCallWarning, match="'one', a Linear, is called without the model that was") as said:
        parallel.one(torch.ones(2, 4))  # type: ignore[operator]  # a layer
    assert [warned.filename for warned in said] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel.two(torch.ones(2, 4))  # type: ignore[operator]
