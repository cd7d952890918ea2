"""What is an op, what it costs, and what cannot be captured."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.capture.forward import capture, traced_model
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph

USER_FILE = Path(__file__).parents[1] / "fixtures" / "user_module.py"
FLOAT, LONG = 4, 8  # bytes


def of(module: nn.Module, *args: Tensor) -> OpGraph:
    return capture(module, args, name="test")


class Function(nn.Module):
    """A function as a module, with one weight of shape (3, 4) unless others are given."""

    def __init__(self, function: object, **weights: Tensor) -> None:
        super().__init__()
        self.function = function
        for name, weight in (weights or {"w": torch.zeros(3, 4)}).items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, *args: Tensor) -> Tensor:
        return self.function(self, *args)  # type: ignore[operator, no-any-return]


def test_a_small_network_by_hand() -> None:
    graph = of(nn.Sequential(nn.Linear(3, 5), nn.ReLU()), torch.zeros(2, 3))
    assert graph.names == ("0/addmm", "1/relu")
    assert graph.kinds == ("aten.addmm", "aten.relu")
    assert graph.flops.tolist() == [2 * 2 * 3 * 5, 0]
    assert graph.bytes_accessed.tolist() == [FLOAT * (2 * 3 + 3 * 5 + 5 + 2 * 5), FLOAT * (10 + 10)]
    assert graph.output_bytes.tolist() == [FLOAT * 10, FLOAT * 10]
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.weights.tolist() == [FLOAT * 5, FLOAT * 15] or graph.weights.tolist() == [FLOAT * 15, FLOAT * 5]
    assert graph.weight_uses.tolist() == [[0, 0], [0, 1]]
    assert not graph.is_training


def test_a_convolution_by_hand() -> None:
    graph = of(nn.Conv2d(3, 7, 3, padding=1, bias=False), torch.zeros(2, 3, 8, 8))
    assert graph.flops.tolist() == [2 * (2 * 7 * 8 * 8) * (3 * 3 * 3)]
    assert graph.bytes_accessed.tolist() == [FLOAT * (2 * 3 * 64 + 7 * 27 + 2 * 7 * 64)]


def test_attention_is_one_op_whose_products_are_counted() -> None:
    query = torch.zeros(2, 4, 8, 16)
    graph = of(Function(lambda m, q: F.scaled_dot_product_attention(q * m.w, q, q), w=torch.zeros(1)), query)
    assert graph.kinds[-1] == "aten.scaled_dot_product_attention"
    assert graph.flops[-1] == 2 * (2 * 4) * (8 * 16 * 8) * 2  # queries by keys, and scores by values


def test_a_tied_weight_is_held_once_and_read_twice() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.head(self.embedding(tokens))
            return logits

    graph = of(Tied(), torch.zeros(3, dtype=torch.long))
    assert graph.weights.tolist() == [FLOAT * 40]
    assert graph.weight_uses.tolist() == [[0, 0], [1, 0]]


def test_a_lookup_reads_the_rows_it_finds() -> None:
    graph = of(nn.Embedding(1000, 4), torch.zeros(3, dtype=torch.long))
    assert graph.bytes_accessed.tolist() == [3 * LONG + 2 * FLOAT * 3 * 4]


def test_a_view_of_a_whole_tensor_is_no_op() -> None:
    graph = of(Function(lambda m, x: (x @ m.w.t().t()).reshape(-1).unsqueeze(0).expand(3, -1) + 1), torch.zeros(2, 3))
    assert graph.kinds == ("aten.mm", "aten.add")
    assert graph.weight_uses.tolist() == [[0, 0]]
    assert graph.bytes_accessed[1] == FLOAT * (8 + 3 * 8)  # what was expanded is read once


def test_a_part_costs_nothing_and_stays_with_the_whole() -> None:
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        left, right = (x @ module.w).chunk(2, dim=1)  # type: ignore[operator]
        return left.tanh() + right

    graph = of(Function(forward), torch.zeros(2, 3))
    assert graph.kinds == ("aten.mm", *["aten.split_with_sizes"] * 2, "aten.tanh", "aten.add")
    assert graph.flops[1:3].tolist() == graph.bytes_accessed[1:3].tolist() == [0, 0]
    assert graph.output_bytes[:3].tolist() == [FLOAT * 8, FLOAT * 4, FLOAT * 4]
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]]
    assert graph.units.tolist() == [0, 0, 0, 1, 2]


def test_parts_of_weights_and_inputs_are_no_ops() -> None:
    graph = of(Function(lambda m, x: x[:, 0] @ m.w[:, :2]), torch.zeros(2, 5, 3))
    assert graph.kinds == ("aten.mm",)
    assert graph.weights.tolist() == [FLOAT * 12]


def test_of_several_outputs_only_those_that_are_read_are_held() -> None:
    graph = of(nn.Sequential(nn.LayerNorm(4), nn.ReLU()), torch.zeros(2, 4))
    assert graph.kinds[0] == "aten.native_layer_norm"
    assert graph.output_bytes[0] == FLOAT * 8
    assert graph.bytes_accessed[0] == FLOAT * (8 + 4 + 4 + 8 + 2 * 2)  # mean and deviation are written, too


def test_what_no_output_depends_on_is_left_out() -> None:
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        torch.exp(x)
        return x @ module.w  # type: ignore[operator]

    assert of(Function(forward), torch.zeros(2, 3)).kinds == ("aten.mm",)
    assert len(of(nn.BatchNorm1d(4), torch.zeros(2, 4))) == 1  # and not the update of its statistics


def test_an_empty_tensor_is_read_by_a_concatenation_that_gives_it_a_gradient_and_by_no_other() -> None:
    def forward(module: nn.Module, x: Tensor) -> Tensor:
        return torch.cat([torch.tensor([]), module.w[:0], x])  # type: ignore[index]

    joined = of(Function(forward), torch.zeros(2, 4))
    assert (joined.kinds, len(joined.weights)) == (("aten.cat",), 1)
    nothing = of(Function(lambda module, x: torch.cat([x[:0], torch.tensor([])])), torch.zeros(2, 4))
    assert nothing.kinds[-1] == "aten.cat"


def test_buffers_are_not_weights() -> None:
    class Offset(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("offset", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.offset  # type: ignore[operator]

    assert len(of(Offset(), torch.zeros(2, 4)).weights) == 0


def test_modules_called_again_keep_their_path_and_get_other_names() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4)])

        def forward(self, x: Tensor) -> Tensor:
            twice: Tensor = self.layers[0](self.layers[0](x))
            return twice

    graph = of(Twice(), torch.zeros(2, 4))
    assert graph.names == ("layers.0/addmm", "layers.0/addmm_1")
    assert len(graph.weights) == 2


def test_the_meta_device_gives_the_same_graph() -> None:
    with torch.device("meta"):
        on_meta = of(nn.Sequential(nn.Linear(3, 5), nn.LSTM(5, 6)), torch.zeros(2, 3))
    assert on_meta.fingerprint == of(nn.Sequential(nn.Linear(3, 5), nn.LSTM(5, 6)), torch.zeros(2, 3)).fingerprint


def test_a_users_file() -> None:
    graph = traced_model(f"{USER_FILE}:two_towers").build()
    assert graph.name == "user_module:two_towers"
    assert graph.kinds == ("aten.mm", "aten.mm", "aten.mul", "aten.mul", "aten.addmm")
    assert graph.weight_uses[:2].tolist() == [[0, 0], [1, 0]]
    assert traced_model(f"{USER_FILE}:with_keywords").build().kinds == graph.kinds
    assert len(traced_model(f"{USER_FILE}:single_input").build()) == 1


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("nowhere.py:model", r"nowhere\.py: no such Python file"),
        (f"{USER_FILE}:two_tower", "no callable 'two_tower' in it; there are: .*two_towers, .*module_only"),
        (f"{USER_FILE}:module_only", r"expected \(module, args\), \(module, kwargs\) or .*, got Linear"),
        (f"{USER_FILE}:keywords_as_list", "expected keyword inputs as a dict by name, got list"),
    ],
)
def test_what_is_no_module_with_inputs_is_refused(what: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        traced_model(what).build()


def test_a_dict_of_inputs_gives_them_by_keyword() -> None:
    graph = traced_model(f"{USER_FILE}:two_towers").build()
    assert traced_model(f"{USER_FILE}:by_keyword").build().kinds == graph.kinds
    assert traced_model(f"{USER_FILE}:as_a_tokenizer_returns_them").build().kinds == graph.kinds
    assert len(traced_model(f"{USER_FILE}:one_input_that_is_a_dict").build()) == 1


def test_a_model_without_weights_is_captured_without_its_training_step() -> None:
    what = f"{USER_FILE}:without_weights"
    with pytest.raises(InputError, match=r"no weight to train.* --no-training"):
        load_graph(what)
    assert len(load_graph(what, training=False)) == 1


def test_a_module_that_returns_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="test: the module returns no tensor that it computes"):
        of(Function(lambda m, x: None), torch.zeros(2))
