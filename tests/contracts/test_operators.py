"""What every description of operators promises: the parts of every strategy make the whole, forward and backward."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor

from graphs import operators
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.notation.affine import variable
from graphs.notation.gradients import gradient
from graphs.notation.operator import Operator, Space, tensor
from graphs.notation.ranges import cut, shape_of, whole
from graphs.notation.shard import Shard
from graphs.notation.strategies import How, Part, strategy
from graphs.operators import described, kinds
from tests.graphs.notation.calls import AtenCall, aten_call
from tests.graphs.notation.in_parts import strategies
from tests.oracle.sharded.boxed import slices
from tests.oracle.sharded.running import cut_out, parts_of, run, whole_output

NAMES = by_name.built_in("graphs.operators")
EXAMPLES = [each for name in NAMES for each in by_name.constants("graphs.operators", name)["EXAMPLES"]]
SHARES = ((1, 1), (2, 1, 1))


def operator_of(call: AtenCall) -> Operator:
    operator = described(call.signature)
    assert operator is not None, f"{call.signature} is not described"
    return operator


def divided(operator: Operator, names: Sequence[str], shares: Sequence[int]) -> list[dict[str, Any]]:
    """The parts of the iteration space with these variables divided, but for empty ones."""
    ranges = [[part for part in cut(operator.sizes[name], shares) if part.size] for name in names]
    return [operator.part(**dict(zip(names, chosen, strict=True))) for chosen in product(*ranges)]


def check(call: AtenCall, operator: Operator, names: Sequence[str], spaces: Sequence[Space]) -> None:
    """Run the parts, each on slices of its own, and compare what they make with the whole."""
    whole_inputs = call.leaves(call.tensors)
    expected = whole_output(call.signature, whole_inputs)
    torch.testing.assert_close(expected.detach(), call.output)
    own = [call.leaves(parts_of(operator, space, call.tensors)) for space in spaces]
    outputs = run(cut_out(call.signature, operator, spaces, own))
    made = _joined(operator, 0, names, spaces, [each.detach() for each in outputs], expected.detach())
    torch.testing.assert_close(made, expected.detach(), msg=lambda text: f"forward: {text}")

    trained = [k for k, each in enumerate(whole_inputs) if each.requires_grad]
    if not trained or not expected.requires_grad:
        return
    cotangent = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=expected.dtype)
    wanted = torch.autograd.grad(expected, [whole_inputs[k] for k in trained], cotangent, allow_unused=True)
    backward = gradient(operator, trained)
    given = [cotangent[slices(operator.writes[0].region(space))] for space in spaces]
    leaves = [part[k] for part in own for k in trained]
    flat = torch.autograd.grad(outputs, leaves, given, allow_unused=True)
    for position, (k, gradient_of) in enumerate(zip(trained, wanted, strict=True)):
        slices_of = [flat[i * len(trained) + position] for i in range(len(spaces))]
        full = torch.zeros_like(whole_inputs[k]) if gradient_of is None else gradient_of.to_dense()
        found = [torch.zeros_like(own[i][k]) if each is None else each for i, each in enumerate(slices_of)]
        torch.testing.assert_close(_joined(backward, position, names, spaces, found, full), full)


def _joined(
    operator: Operator, write: int, names: Sequence[str], spaces: Sequence[Space], made: Sequence[Tensor], like: Tensor
) -> Tensor:
    """The whole of what the parts make, as the strategies of the divided variables say it."""
    parts = [strategy(operator, name).writes[write] for name in names if operator.sizes[name] > 1]
    total = torch.zeros_like(like)
    once = frozenset(name for name, part in zip(names, parts, strict=False) if part.how is How.WHOLE)
    for space, tensor_made in zip(spaces, made, strict=True):
        box = operator.writes[write].region(space)
        assert tensor_made.shape == shape_of(box)
        if any(space[name].low for name in once):  # each of them makes all of it: one is enough
            continue
        total[slices(box)] += tensor_made
    if all(part.how is How.SLICE and not part.halo for part in parts):  # nothing is written twice
        counts = torch.zeros(like.shape)
        for space in spaces:
            counts[slices(operator.writes[write].region(space))] += 1
        assert counts.max() <= 1 if counts.numel() else True
    return total


@pytest.mark.parametrize("expression", EXAMPLES)
def test_the_parts_of_every_strategy_make_the_whole(expression: str) -> None:
    call = aten_call(expression)
    operator = operator_of(call)
    for shares in SHARES:
        for each in strategies(operator):
            check(call, operator, [each.variable], divided(operator, [each.variable], shares))


@pytest.mark.parametrize("expression", EXAMPLES)
def test_the_parts_of_two_strategies_at_once_make_the_whole(expression: str) -> None:
    call = aten_call(expression)
    operator = operator_of(call)
    pairs = list(combinations([each.variable for each in strategies(operator)], 2))
    for pair in pairs[:: len(pairs) // 4 + 1]:
        check(call, operator, pair, divided(operator, pair, (1, 1)))


@pytest.mark.parametrize("expression", EXAMPLES)
def test_what_a_strategy_says_of_inputs_is_what_its_parts_read(expression: str) -> None:
    operator = operator_of(aten_call(expression))
    for each in strategies(operator):
        for space in divided(operator, [each.variable], (1, 1)):
            for access, part in zip(operator.reads, each.reads, strict=True):
                box, every = access.region(space), whole(access.shape)
                others = [i for i in range(len(box)) if i != part.dimension]
                if part == Part(How.WHOLE):
                    assert box == operator.reads[operator.reads.index(access)].region(operator.space)
                else:
                    assert all(box[i] == access.region(operator.space)[i] for i in others)
                assert all(a.low >= b.low and a.high <= b.high for a, b in zip(box, every, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_has_an_example(name: str) -> None:
    constants = by_name.constants("graphs.operators", name)
    called = {f"aten.{each.removeprefix('aten.').partition('(')[0]}" for each in constants["EXAMPLES"]}
    assert called == set(constants["KINDS"])


def test_a_kind_is_described_once() -> None:
    listed = [kind for name in NAMES for kind in by_name.constants("graphs.operators", name)["KINDS"]]
    assert sorted(listed) == sorted(kinds())


# ---- the check finds wrong descriptions ------------------------------------------------------------------


def _with_read(operator: Operator, **changes: Any) -> Operator:
    first, *others = operator.reads
    return replace(operator, reads=(replace(first, **changes), *others))


def _moved(operator: Operator, by: int) -> Operator:
    """The rows of the first input are read elsewhere."""
    first = operator.reads[0]
    rows = first.index[2]
    assert rows is not None
    return _with_read(operator, index=(*first.index[:2], rows + by, *first.index[3:]))


WRONG: list[tuple[str, str, Callable[[Operator], Operator]]] = [
    ("aten.convolution(x(2, 2, 6, 5), x(4, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)", "h",
     lambda right: _moved(right, 1)),
    ("aten.max_pool2d_with_indices(p(2, 4, 9, 9), [3, 3], [2, 2], [1, 1])", "h",
     lambda right: _with_read(right, fill=9.0)),
    ("aten.mm(x(6, 4), x(4, 8))", "n", lambda right: replace(right, reads=(tensor((6, 4), None, "k"), right.reads[1]))),
    ("aten.addmm(x(8), x(6, 4), x(4, 8))", "k", lambda right: _with_read(right, apart=frozenset())),
    ("aten.cat([x(2, 3), x(2, 5)], 1)", "d1",
     lambda right: _with_read(right, index=(variable("d0"), variable("d1") + 1))),
    ("aten.add(x(6), x(6))", "d0", lambda right: _with_read(right, index=(variable("d0") * -1 + 5,))),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "name", "wrong"), WRONG)
def test_a_wrong_description_is_found(expression: str, name: str, wrong: Callable[[Operator], Operator]) -> None:
    call = aten_call(expression)
    right = operator_of(call)
    check(call, right, [name], divided(right, [name], (1, 1)))
    mistaken = wrong(right)
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        check(call, mistaken, [name], divided(mistaken, [name], (1, 1)))


def test_a_softmax_in_parts_that_exchange_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    call = aten_call("aten._softmax(x(4, 6), 1, False)")
    operator = operator_of(call)
    alone = operators.Description(lambda signature: operator, run=Shard.call)
    monkeypatch.setattr("tests.oracle.sharded.running.description_of", lambda kind: alone)
    with pytest.raises(AssertionError, match="forward"):
        check(call, operator, ["d1"], divided(operator, ["d1"], (1, 1)))


# ---- what is not described -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "aten.convolution(x(2, 4, 8, 6), x(4, 6, 3, 3), None, [1, 1], [1, 1], [1, 1], True, [0, 0], 1)",  # transposed
        "aten.max_pool2d_with_indices(x(2, 4, 9, 9), [2, 2], [2, 2], [0, 0], [1, 1], True)",  # leaves the image
        "aten.embedding(x(10, 4), i(10, 6), -1, True)",  # gradients by frequency
        "aten.nll_loss_forward(x(6, 8), i(8, 6), c(8), 1, -100)",  # weighted classes
        "aten.sort(x(4, 6))",
    ],
)
def test_an_operation_that_cannot_be_divided_is_not_described(expression: str) -> None:
    assert described(aten_call(expression).signature) is None


def test_what_is_no_description_is_refused() -> None:
    with pytest.raises(InputError, match="expected a description of operators, got int"):
        operators.checked("mine", 3)
    assert operators.description_of("aten.sort") is None


def test_kinds_that_cannot_be_read_without_running_the_file_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_name, "constants", lambda folder, name: {"doc": "Named by a constant: KINDS = (ATTENTION,)"})
    with pytest.raises(InputError, match="no kinds of ops; list them as text"):
        kinds.__wrapped__()
