"""The parts of a step that is run op by op: layouts of what is sent, gradients, memory, and updates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from envs.plans.plan import Plan
from envs.running.adam import Adam, AdamUpdate
from envs.running.captured_program import CapturedProgram
from envs.running.op_by_op import tape
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.layouts import Packed, TensorLayout
from envs.running.op_by_op.op_step import OpStep
from envs.running.op_by_op.sent_tensors import sent_tensors
from envs.simulation.simulator import LaidOut
from graphs.capture.examples import Example
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.envs.running.placed_runs import assert_equal, laid_out, run_placed
from tests.envs.running.trained_models import batch_of, program_of

CPU = torch.device("cpu")

# ---- layouts -----------------------------------------------------------------------------------------------------


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Parts, transposed and expanded, of any type."""
    shape = draw(st.lists(st.integers(1, 4), min_size=0, max_size=4))
    whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
    whole = whole.to(draw(st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16])))
    whole = whole.permute(draw(st.permutations(range(len(shape)))))
    for dimension in range(whole.dim()):
        start = draw(st.integers(0, whole.shape[dimension] - 1))
        whole = whole.narrow(dimension, start, draw(st.integers(1, whole.shape[dimension] - start)))
    if draw(st.booleans()):
        whole = whole.unsqueeze(place := draw(st.integers(0, whole.dim())))
        whole = whole.expand([3 if dimension == place else size for dimension, size in enumerate(whole.shape)])
    return whole


@given(given=st.lists(tensors(), min_size=1, max_size=3))
def test_what_is_packed_and_unpacked_is_the_same_and_as_small_as_can_be(given: list[Tensor]) -> None:
    packed = Packed(tuple(map(TensorLayout.of_value, given)))
    buffer = packed.packed(given)
    assert buffer.is_contiguous()
    assert buffer.numel() * buffer.element_size() == packed.size
    room = packed.buffer(CPU).copy_(buffer)
    for tensor, layout, back in zip(given, packed.layouts, packed.unpacked(room), strict=True):
        assert torch.equal(back, tensor)
        assert back.dtype == tensor.dtype
        distinct = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
        assert layout.size == distinct.numel() * distinct.element_size()
        torch.empty_strided(tensor.shape, back.stride(), device="meta")


@pytest.mark.parametrize(
    ("make", "strides"),
    [
        (lambda x: x[:, 2:4], (16, 8, 1)),  # of a part, without the gaps
        (lambda x: x.permute(2, 0, 1), (1, 48, 8)),  # transposed as it was
        (lambda x: x[:1].expand(5, 6, 8), (1, 8, 1)),  # one row is sent
    ],
)
def test_a_layout_keeps_the_order_of_strides(make: Callable[[Tensor], Tensor], strides: tuple[int, ...]) -> None:
    tensor = make(torch.randn(4, 6, 8))
    assert TensorLayout.of_value(tensor).strides == strides
    whole = TensorLayout.of_gradient(tensor)
    assert whole.sent == tensor.shape
    assert torch.equal(whole.tensor(whole.flat(tensor)), tensor)


# ---- gradients and memory ----------------------------------------------------------------------------------------


def test_gradients_are_those_of_the_public_function() -> None:
    x, w, unused = (torch.randn(3, 3, requires_grad=True) for _ in range(3))
    y = (x @ w).tanh()
    given = torch.randn(3, 3)
    expected = torch.autograd.grad([y], [x, w, unused], [given], retain_graph=True, allow_unused=True)
    edges = [torch.autograd.graph.get_gradient_edge(y)]
    for keep in (True, False):
        found = tape.gradients_of(edges, [given], [x, w, unused], keep=keep)
        assert found[2] is expected[2] is None
        assert all(torch.equal(found[k], expected[k]) for k in range(2))
    assert tape.gradients_of([], [], [x], keep=False) == [None]


@pytest.mark.parametrize(
    ("function", "is_saved"),
    [(lambda x: x + 1, False), (lambda x: x.relu(), False), (lambda x: x.view(-1)[2:], False), (lambda x: x * x, True),
     (lambda x: x.view(-1).sin(), True), (lambda x: torch.nn.functional.gelu(x), True)],
)  # fmt: skip
def test_what_autograd_has_not_saved_is_let_go(function: Callable[[Tensor], Tensor], is_saved: bool) -> None:
    x = torch.randn(4, 4)
    reference = x.clone().requires_grad_()
    made = function(reference)
    expected = torch.autograd.grad(made, reference, torch.ones_like(made))[0]
    slots: tape.Slots = [x, None, None, torch.ones_like(made), None, None]
    tape.forward(lambda given: (function(given),), [0], [0], [(0, 1)], [0], 2)(slots)
    assert slots[2][1][0].numel() == (16 if is_saved else 0)
    assert torch.equal(slots[1], made)
    tape.grad(tape.Arriving(2, ((3,),), 4), [5], keep=False)(slots)
    assert torch.equal(slots[5], expected)


@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_after_a_step_nothing_is_held_but_weights_and_what_is_told(name: str) -> None:
    program = program_of(name)
    step = OpStep(program, laid_out(name, 1, 0), 0, CPU)
    leaves = batch_of(program.example, 0)
    with torch.no_grad():  # which is the caller's
        step.run({leaf: leaves[leaf] for leaf in program.leaves})
    assert step.gradients()
    made = step._made
    assert [slot for slot, value in enumerate(step._slots) if value is not None and slot not in made.stays] == []


def test_a_weight_that_is_read_after_its_update_is_written_elsewhere() -> None:
    """Updates come first here, so that gradients of inputs are computed when their weight has a new value."""
    program = program_of("gpt")
    graph, problem = program.step, Problem(program.step, load_cluster("p100x1"))
    order = [kind.endswith(".grad") - float(phase) for kind, phase in zip(graph.kinds, graph.phase, strict=True)]
    laid = LaidOut.of(problem, Plan.of([0] * len(graph), order=order))
    assert OpStep(program, laid, 0, CPU)._made.renewed
    assert not OpStep(program, laid_out("gpt", 1, 0), 0, CPU)._made.renewed
    assert_equal("gpt", [run_placed("gpt", laid, 0)])


# ---- updates -----------------------------------------------------------------------------------------------------


def test_updates_are_those_of_the_public_optimizer() -> None:
    adam, random = Adam(rate=0.1, betas=(0.8, 0.9), eps=1e-6), torch.Generator().manual_seed(0)
    ours = [torch.randn(4, 3, generator=random), torch.randn(5, generator=random), torch.randn(2, 2)]
    theirs = [torch.nn.Parameter(weight.clone()) for weight in ours]
    update, optimizer = AdamUpdate(ours, adam), adam.optimizer(theirs)
    for step in range(4):
        gradients = [torch.randn(3, 4, generator=random).t(), torch.randn(5, generator=random) if step != 1 else None]
        update(ours, [*gradients, None])
        for weight, gradient in zip(theirs, gradients, strict=False):
            weight.grad = None if gradient is None else gradient.contiguous()  # as autograd leaves it
        optimizer.step()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one, other)


def test_a_sparse_gradient_updates_the_rows_that_were_read() -> None:
    table = torch.nn.Embedding(6, 2, sparse=True)
    expected, start = torch.nn.Embedding(6, 2, sparse=True), table.weight.detach().clone()
    expected.load_state_dict(table.state_dict())
    optimizer = torch.optim.SparseAdam(expected.parameters(), lr=0.1)
    ours, update = table.weight.detach().clone(), AdamUpdate([start], Adam(rate=0.1))
    for _ in range(3):
        table(torch.tensor([1, 4])).sum().backward()
        update([ours], [table.weight.grad])
        expected.weight.grad, table.weight.grad = table.weight.grad, None
        optimizer.step()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(ours, expected.weight.detach())
    assert torch.equal(ours[[0, 2, 3, 5]], start[[0, 2, 3, 5]])


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_what_cannot_be_run_is_refused_in_a_sentence() -> None:
    program = program_of("mlp")
    with pytest.raises(InputError, match="places ops on device 1, and there are 1 processes; start one for each"):
        OpStep(program, laid_out("mlp", 2, 0), 0, CPU)
    problem = Problem(program.step, load_cluster("p100x2"))
    replicas = Plan(((0, 1),) * len(program.step))
    with pytest.raises(InputError, match="only a plan with one device per op"):
        OpStep(program, LaidOut.of(problem, replicas), 0, CPU)
    step = OpStep(program, laid_out("mlp", 1, 0), 0, CPU)
    with pytest.raises(InputError, match="reads tensor 0 of its arguments, which is not given"):
        step.run({})
    with pytest.raises(InputError, match=r"tensor 0 of the model's arguments is torch.float32 of shape \(8, 16\)"):
        step.run({0: torch.zeros(8, 16)})


class Two(torch.nn.Module):
    """Two look-ups of one table, and a weight that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scale = torch.nn.Embedding(6, 2, sparse=True), torch.nn.Parameter(torch.ones(2))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        made: Tensor = (self.words(one) - self.words(other) ** 2) * self.scale
        return made


def test_sparse_gradients_stay_on_their_device_and_frozen_weights_frozen() -> None:
    model, same = Two(), torch.tensor([1, 4])
    program = CapturedProgram.of(Example(model, (same, same), {}, "two"))
    problem = Problem(program.step, load_cluster("p100x1"))
    laid = LaidOut.of(problem, Plan.of([0] * len(program.step)))
    step = OpStep(program, laid, 0, CPU, Adam(rate=0.1))
    with pytest.raises(InputError, match="tensors 0 and 1 of the model's arguments are the same in its example"):
        step.run({0: same, 1: torch.tensor([1, 2])})
    step.run({0: same, 1: same})
    assert step.gradients()["words.weight"].is_sparse
    assert not torch.equal(step.weights()["words.weight"][4], model.words.weight[4])
    assert torch.equal(step.weights()["words.weight"][3], model.words.weight[3])
    two = Problem(program.step, load_cluster("p100x2"))
    looks = [op for op, kind in enumerate(program.step.kinds) if kind.endswith(".sparse")]
    mirror = program.step.mirror.tolist()
    apart = Plan.of([int((forward if forward >= 0 else op) == looks[0]) for op, forward in enumerate(mirror)])
    with pytest.raises(InputError, match=r"'words.weight' has a sparse gradient, and ops on several devices read it"):
        sent_tensors(GradientOps(program, two.graph), apart.placement.tolist())
    model.scale.requires_grad_(False)
    with pytest.raises(InputError, match=r"has an op 'mul\.grad_weight' that the training step of this model does not"):
        OpStep(CapturedProgram.of(Example(model, (same, same), {}, "two")), laid, 0, CPU)
    assert (program.step.phase == Phase.UPDATE).sum() == 2
