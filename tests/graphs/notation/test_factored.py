"""A graph in index notation: captured models run in parts, op by op, make what they make as a whole."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphs.capture.forward import Builder, traced
from graphs.descriptions.factored import FactoredGraph
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.notation.operator import Operator
from graphs.notation.strategies import How, strategy
from graphs.op_graph import OpGraph, Phase
from tests.graphs.notation.in_parts import run_in_parts, strategies
from tests.oracle.sharded.running import as_read, whole_output
from tests.oracle.toys import random_graph

RESIDUAL = "a small ResNet"
SMALL = {
    "transformer": "layers=1,width=16,heads=4,sequence=6,batch=4,vocabulary=12",
    "llama": "layers=1,width=16,heads=4,inner=12,sequence=6,batch=4",
    "vit": "layers=1,width=16,heads=4,batch=4,image=32",
    "xlnet": "layers=1,width=16,heads=4,sequence=6,batch=4",
    "transformer_xl": "layers=1,width=16,heads=4,sequence=6,batch=4,vocabulary=12",
    "rnnlm": "layers=2,hidden=8,steps=3,batch=4,vocabulary=12",
    "gnmt": "layers=2,hidden=8,steps=3,batch=4,vocabulary=12",
    "wavenet": "stacks=1,layers=3,channels=4,length=12,batch=4",
}


class SmallResNet(nn.Module):
    """A block of a residual net, with groups, and what is before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)
        )
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of images."""
        x = self.pool(self.stem(images))
        x = self.average(x + self.block(x)).mean((2, 3))
        return nn.functional.cross_entropy(self.head(x), labels)


def small_model(family: str) -> tuple[Builder, OpGraph, nn.Module, tuple[Tensor, ...]]:
    """A family's model, small, with numbers for weights and inputs, captured."""
    torch.manual_seed(0)
    if family == RESIDUAL:
        module, inputs = SmallResNet(), (torch.empty(4, 3, 16, 16), torch.empty(4, dtype=torch.long))
    else:
        module, inputs = by_name.build("graphs.families", f"{family}:{SMALL[family]}")
    module = module.to_empty(device="cpu").double()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            nn.init.normal_(tensor, std=0.3)
    made = tuple(
        torch.randn(each.shape, dtype=torch.float64) if each.is_floating_point() else torch.randint(10, each.shape)
        for each in inputs
    )
    builder = traced(module, made, name=family)
    return builder, builder.build(), module, made


def run_whole(graph: OpGraph, given: dict[int, Tensor]) -> dict[int, Tensor]:
    """All tensors by number, each op as it is."""
    assert graph.signatures is not None
    values = dict(given)
    for op in range(len(graph)):
        signature = graph.signatures.signature(op)
        assert signature is not None
        reads = zip(signature.reads, graph.signatures.numbers(op), strict=True)
        values[op] = whole_output(signature, [as_read(read, values[number]) for read, number in reads])
    return values


@pytest.mark.parametrize("family", [*SMALL, RESIDUAL])
def test_a_model_in_parts_makes_what_it_makes_as_a_whole(family: str) -> None:
    builder, graph, module, inputs = small_model(family)
    given = builder.given()
    expected = module(*inputs)
    weights = [given[-1 - k] for k in range(len(graph.weights))]
    wanted = torch.autograd.grad(expected, weights)
    torch.testing.assert_close(run_whole(graph, given)[len(graph) - 1], expected)
    described, draw = FactoredGraph(graph), random.Random(0)

    def one_or_two(operator: Operator) -> dict[str, int]:
        names = [each.variable for each in strategies(operator)]
        return {name: draw.choice((2, 3)) for name in draw.sample(names, min(len(names), draw.choice((1, 2))))}

    values = run_in_parts(described, given, one_or_two)
    found = values[len(graph) - 1].reshape(expected.shape)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, weights), wanted, strict=True):
        torch.testing.assert_close(one.to_dense(), other.to_dense(), rtol=1e-6, atol=1e-6)


# ---- what dividing them means ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def block() -> FactoredGraph:
    """A Transformer of one layer, 8 samples of 6 tokens, 4 heads of 4."""
    return FactoredGraph(load_graph("transformer:layers=1,width=16,heads=4,sequence=6,batch=8"))


def named(described: FactoredGraph, name: str) -> int:
    [op] = [i for i, each in enumerate(described.graph.names) if each == f"layers.0.{name}"]
    return op


def test_heads_are_a_variable_of_all_that_is_made_of_them(block: FactoredGraph) -> None:
    made = block.operator(named(block, "attention.query_key_value/addmm"))
    scores, mixed = (block.operator(named(block, f"attention/{name}")) for name in ("bmm", "bmm_1"))
    out = block.operator(named(block, "attention.out/addmm_1"))
    assert made is not None
    assert scores is not None
    assert mixed is not None
    assert out is not None
    assert dict(made.sizes) == {"n.0": 8, "n.1": 6, "k": 16, "m.0": 3, "m.1": 4, "m.2": 4}
    assert [str(each) for each in made.reads] == ["[m.0, m.1, m.2]", "[n.0, n.1, k]", "[m.0, m.1, m.2, k]"]
    assert dict(scores.sizes) == {"b.0": 8, "b.1": 4, "n": 6, "k": 4, "m": 6}
    # Columns of the first weight by heads, and rows of the second one: Megatron-LM's pair.
    assert str(strategy(made, "m.1")) == "m.1: 1 whole 1 -> 3"
    assert str(strategy(scores, "b.1")) == "b.1: 1 1 -> 1"
    assert str(strategy(mixed, "b.1")) == "b.1: 1 1 -> 1"
    assert str(strategy(out, "k.0")) == "k.0: whole 2 1 -> sum"


def test_backward_ops_have_the_variables_of_their_forward_op(block: FactoredGraph) -> None:
    of_input = block.operator(named(block, "attention.out/addmm_1.grad"))
    of_weights = block.operator(named(block, "attention.out/addmm_1.grad_weight"))
    update = block.operator(named(block, "attention.out/addmm_1.update"))
    assert of_input is not None
    assert of_weights is not None
    assert update is not None
    assert str(strategy(of_input, "k.0")) == "k.0: whole whole whole 2 1 -> 2"
    assert str(strategy(of_weights, "k.0")) == "k.0: whole whole whole 2 1 -> whole 1"
    assert str(strategy(of_weights, "n.0")) == "n.0: 0 0 whole 0 whole -> sum sum"  # data parallelism
    assert str(strategy(update, "n.0")) == "n.0: whole whole -> whole whole"
    assert str(strategy(update, "m")) == "m: 0 0 -> 0 0"


def test_every_op_of_a_training_step_is_described_or_divided_in_no_way(block: FactoredGraph) -> None:
    assert block.graph.signatures is not None
    for op in range(len(block.graph)):
        operator = block.operator(op)
        assert (operator is None) == (block.graph.kinds[op] in ("loss", "loss.grad"))
        if operator is not None and block.graph.phase[op] == Phase.FORWARD:
            sources = block.graph.signatures.numbers(op)
            assert [access.shape for access in operator.reads] == [block.shape(number) for number in sources]
            assert [access.shape for access in operator.writes] == [block.shape(op)]
            assert int(np.prod(block.shape(op))) * 4 == block.graph.output_bytes[op]


def test_gates_of_a_recurrent_net_are_divided_alike() -> None:
    described = FactoredGraph(load_graph("rnnlm:layers=1,hidden=8,steps=2,batch=4"))
    product = next(described.operator(i) for i, kind in enumerate(described.graph.kinds) if kind == "aten.addmm")
    assert product is not None
    assert {name: size for name, size in product.sizes.items() if name.startswith("m")} == {"m.0": 4, "m.1": 8}
    assert strategy(product, "m.1").writes[0].how is How.SLICE


def test_a_graph_without_signatures_is_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match="does not know the shapes of its tensors; capture it from its model"):
        FactoredGraph(random_graph(9, 1))


def test_an_op_on_a_tensor_without_elements_is_divided_in_no_way() -> None:
    class Both(nn.Module):
        """The same layer of no samples, and of some."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.linear(x.new_zeros(0, 4)), self.linear(x)

    none, some = FactoredGraph(traced(Both(), (torch.ones(2, 4),), name="both").build()).ops[-2:]
    assert none is None
    assert some is not None


@pytest.mark.parametrize("empty", [(0,), (2, 0, 3)])
def test_a_concatenation_with_a_cache_that_begins_empty_is_an_identity(empty: tuple[int, ...]) -> None:
    class Cached(nn.Module):
        """Appends to a cache, as attention of language models does."""

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([torch.zeros(empty), x], dim=-2)

    [op] = FactoredGraph(traced(Cached(), (torch.ones(2, 5, 3),), name="cached").build()).ops
    assert op is not None
    assert [access.index for access in op.operator.reads] == [access.index for access in op.operator.writes]
    assert {str(strategy(op.operator, name).writes[0].how) for name in op.operator.sizes} == {str(How.SLICE)}
