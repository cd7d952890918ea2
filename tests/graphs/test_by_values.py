"""Where sizes or control flow depend on data, a module is captured by the values of its example."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

from envs.running.captured_program import CapturedProgram
from graphs.capture import by_values
from graphs.capture.examples import Example
from graphs.capture.forward import capture, traced
from graphs.capture.second_batch import with_law
from graphs.capture.training_step import training_step
from graphs.foundation.errors import InputError, UserCodeError
from graphs.op_graph import OpGraph

WIDTH = 8


class Part(nn.Module):
    """A function of a linear layer, of other parts, and of inputs."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def _experts() -> dict[str, nn.Module]:
    return {"gate": nn.Linear(WIDTH, 3), "experts": nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))}


def _routed(m: Any, x: Tensor) -> Tensor:
    """As Mixtral was published: a loop over experts, and the rows that chose each."""
    weights, chosen = F.softmax(m.gate(x), -1).topk(2, -1)
    mask = F.one_hot(chosen, len(m.experts)).permute(2, 1, 0)
    out = torch.zeros_like(x)
    for expert, which in zip(m.experts, mask, strict=True):
        place, rows = torch.where(which)
        if rows.numel():
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
    return out


def _sent_by_lists(m: Any, x: Tensor) -> Tensor:
    chosen = m.gate(x).argmax(-1).tolist()
    return torch.stack([m.experts[expert](row) for row, expert in zip(x, chosen, strict=True)])


def _packed(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(m.linear(x), lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(m.rnn(packed)[0], batch_first=True)[0]


def _suppressed(m: Any, x: Tensor) -> Tensor:
    """Boxes one by one, until none is left."""
    boxes: Tensor = m.linear(x)
    left, kept = boxes.sum(-1).argsort(descending=True), list[Tensor]()
    while left.numel():
        kept.append(left[0])
        left = left[1:][(boxes[left[1:]] - boxes[left[0]]).norm(dim=-1) > 1]
    return boxes[torch.stack(kept)]


def _in_place(m: Any, x: Tensor) -> Tensor:
    y: Tensor = m.linear(x)
    above = x[:, 0] > 0
    y[above] = y[above] * 2
    made = torch.zeros(len(x), WIDTH)
    made[:, 0] = 1  # a view, after which the whole is read
    made[: int(above.sum())] = y[: int(above.sum())].pow_(2)
    return m.linear(made)  # type: ignore[no-any-return]


X = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(1))
WORDS = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(2))
LENGTHS = torch.tensor([3, 5, 1])
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "experts": (lambda: Part(_routed, **_experts()), (X,)),
    "experts, by lists": (lambda: Part(_sent_by_lists, **_experts()), (X,)),
    "a mask": (lambda: Part(lambda m, x: m.linear(m.linear(x)[x[:, 0] > 0])), (X,)),
    "if": (lambda: Part(lambda m, x: m.linear(m.linear(x)) if m.linear(x).sum() > 0 else m.linear(x)), (X,)),
    "a number": (lambda: Part(lambda m, x: m.linear(x[: int(x.abs().sum().item()) % 7 + 1])), (X,)),
    "unique": (lambda: Part(lambda m, x: m.linear(x[torch.unique(x[:, 0].gt(0).long())])), (X,)),
    "packed": (lambda: Part(_packed, rnn=nn.LSTM(WIDTH, 4, batch_first=True)), (WORDS, LENGTHS)),
    "packed, both ways": (
        lambda: Part(_packed, rnn=nn.GRU(WIDTH, 4, bidirectional=True, batch_first=True)), (WORDS, LENGTHS)
    ),
    "suppressed": (lambda: Part(_suppressed), (X,)),
    "in place": (lambda: Part(_in_place), (X,)),
}  # fmt: skip


def captured(name: str) -> tuple[nn.Module, tuple[Tensor, ...], OpGraph]:
    torch.manual_seed(0)
    make, args = MODULES[name]
    module = make()
    return module, args, capture(module, args, name="test")


@pytest.mark.parametrize("name", MODULES)
def test_flops_are_those_of_the_run_on_the_example(name: str, caplog: pytest.LogCaptureFixture) -> None:
    module, args, graph = captured(name)
    with FlopCounterMode(display=False) as counted:
        module(*args)
    assert graph.flops.sum() == counted.get_total_flops() > 0
    assert len(training_step(graph)) > len(graph)
    assert "sizes or control flow depend on data at tests/graphs/test_by_values.py:" in caplog.text
    assert "those of the example are taken" in caplog.text


def test_every_expert_gets_the_rows_that_chose_it() -> None:
    module, _, graph = captured("experts")
    rows = F.one_hot(module.gate(X).topk(2, -1).indices, 3).sum((0, 1)).tolist()  # type: ignore[operator]
    products = {name: flops for name, flops in zip(graph.names, graph.flops, strict=True) if "/addmm" in name}
    for expert, taken in enumerate(rows):
        assert products.get(f"experts.{expert}/addmm_{expert + 1}", 0) == 2 * taken * WIDTH * WIDTH


def test_what_the_code_has_read_is_computed_and_has_no_gradient() -> None:
    _, _, graph = captured("experts, by lists")
    gate = graph.names.index("gate/addmm")
    assert "aten._local_scalar_dense" in graph.kinds
    step = training_step(graph)
    assert f"{graph.names[gate]}.grad_weight" not in step.names


def test_the_module_its_inputs_and_chance_stay_as_they_were() -> None:
    torch.manual_seed(3)
    module, x = Part(_in_place), X.clone()
    before, expected = {key: value.clone() for key, value in module.state_dict().items()}, torch.get_rng_state()
    parameters = list(module.parameters())
    program = traced(module, (x,), name="test").program
    assert program.by_values == "the example"
    assert all(one is two for one, two in zip(parameters, module.parameters(), strict=True))
    assert set(program.parameters.values()) == set(parameters)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), expected)


def test_its_ops_are_not_run_on_other_batches() -> None:
    make, args = MODULES["experts"]
    with pytest.raises(InputError, match=r"^routed: .*its ops are those of the example alone.*parallelize"):
        CapturedProgram.of(Example(make(), args, {}, "routed"))


def test_a_second_capture_says_nothing_again(caplog: pytest.LogCaptureFixture) -> None:
    make, (rows,) = MODULES["a mask"]
    module = make()
    graph = capture(module, (rows,), name="test")
    with_law(graph, lambda samples: capture(module, (rows[:samples],), name="test"))
    assert caplog.text.count("depend on data") == 1


def test_without_data_that_of_chance_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    with torch.device("meta"):
        module, x = Part(_routed, **_experts()), torch.empty(12, WIDTH)
    graph = capture(module, (x,), name="test")
    assert graph.flops.sum() == 2 * 12 * WIDTH * 3 + 2 * 24 * WIDTH * WIDTH  # each row at two experts
    assert "those of random data are taken" in caplog.text
    assert all(parameter.is_meta for parameter in module.parameters())


@pytest.mark.parametrize(
    ("limit", "much"), [("MOST_FLOPS", "it computes more than"), ("MOST_BYTES", "its weights and")]
)
def test_what_is_too_large_to_be_run_is_refused(limit: str, much: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_values, limit, 1000)
    with pytest.raises(
        InputError, match=rf"depend on data at tests.*test_by_values.py:\d+, .* but {much}.*; give fewer"
    ):
        captured("experts")


def test_as_much_as_the_limit_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_values, "MOST_FLOPS", 2.0 * 3 * 4 * 5)
    x, y = torch.ones(3, 4), torch.ones(4, 5)
    copies = by_values.Copies(nn.Module(), [])
    copies.computed(torch.ops.aten.mm.default, (x, y), {}, x @ y)
    with pytest.raises(by_values.TooLargeError):
        copies.computed(torch.ops.aten.mm.default, (x, y), {}, x @ y)


def test_a_module_that_fails_on_its_values_is_said_to_fail() -> None:
    module = Part(lambda m, x: m.linear(x[x[:, 0] > 0].reshape(-1, WIDTH - 1)))
    with pytest.raises(
        UserCodeError, match=r"^test: the module fails on its example inputs: .*: RuntimeError: [^\n]*$"
    ):
        capture(module, (X,), name="test")


def test_gradients_in_a_forward_pass_are_refused_with_the_remedy() -> None:
    def penalised(m: Any, x: Tensor) -> Tensor:
        x = x.requires_grad_(True)
        y = m.linear(x).tanh().sum()
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        return y + slope.square().sum()  # type: ignore[no-any-return]

    expected = r"computes gradients in its forward pass, .*use torch.func.grad.* at tests.*test_by_values.py:\d+$"
    with pytest.raises(InputError, match=expected):
        capture(Part(penalised), (X.clone(),), name="test")


def test_gradients_of_functions_are_captured() -> None:
    slopes = Part(lambda m, x: torch.vmap(torch.func.grad(lambda row: m.linear(row).tanh().sum()))(x))
    assert capture(slopes, (X,), name="test").flops.sum() == 2 * 2 * 12 * WIDTH * WIDTH


@pytest.mark.parametrize("name", ["GCNConv", "GATConv"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_convolutions_of_pytorch_geometric(name: str) -> None:
    layers = pytest.importorskip("torch_geometric.nn")
    edges = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 3]])  # the last is a loop
    module = Part(lambda m, x, edges: m.layer(m.linear(x), edges), layer=getattr(layers, name)(WIDTH, 4))
    graph = capture(module, (X, edges), name="test")
    with FlopCounterMode(display=False) as counted:
        module(X, edges)
    assert graph.flops.sum() == counted.get_total_flops() > 0


@pytest.mark.parametrize(("training", "dropout"), [(True, 0.0), (False, 0.0), (True, 0.1)])
def test_a_layer_of_a_transformer_is_the_same_on_meta_and_on_the_cpu(training: bool, dropout: float) -> None:
    found = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=dropout, batch_first=True).train(training)
            found.append(capture(layer.requires_grad_(training), (torch.zeros(2, 5, WIDTH),), name="test"))
    assert found[0].names == found[1].names
    assert found[0].fingerprint == found[1].fingerprint


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
