"""Which dimension of a model's inputs is the batch."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from envs.running.captured_program import CapturedProgram
from envs.running.divided_batch import check_divisible
from graphs.capture.batch_dimension import _amounts
from graphs.capture.examples import given_example
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError

STEPS, SAMPLES, WIDTH = 6, 4, 8


class Last(nn.Module):
    """What a recurrent layer makes of sequences, turned around first or not."""

    def __init__(self, layer: nn.Module, *, turned: bool = False) -> None:
        super().__init__()
        self.layer, self.turned = layer, turned

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        made: Tensor = self.layer(x.transpose(0, 1) if self.turned else x, *others)[0]
        return made


class Encoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = x @ x.transpose(1, 2)  # by hand: of samples first
        turned = x.transpose(0, 1)
        made: Tensor = self.attention(turned, turned, turned)[0].transpose(0, 1) + scores.mean()
        return made


def sequences(*shape: int) -> Tensor:
    return torch.zeros(*(shape or (STEPS, SAMPLES)), WIDTH)


CASES: dict[str, tuple[Callable[[], tuple[nn.Module, tuple[Tensor, ...]]], int, int]] = {
    "lstm": (lambda: (Last(nn.LSTM(WIDTH, WIDTH)), (sequences(),)), SAMPLES, 1),
    "lstm with a state": (
        lambda: (Last(nn.RNN(WIDTH, WIDTH)), (sequences(), torch.zeros(1, SAMPLES, WIDTH))),
        SAMPLES,
        1,
    ),
    "gru of as many steps as samples": (lambda: (Last(nn.GRU(WIDTH, WIDTH)), (sequences(4, 4),)), 4, 1),
    "samples first": (lambda: (Last(nn.LSTM(WIDTH, WIDTH, batch_first=True)), (sequences(),)), STEPS, 0),
    "samples first, turned": (lambda: (Last(nn.LSTM(WIDTH, WIDTH), turned=True), (sequences(),)), STEPS, 0),
    "attention, turned": (lambda: (Encoded(), (sequences(),)), STEPS, 0),
    "encoder": (lambda: (nn.TransformerEncoderLayer(WIDTH, 2, 16), (sequences(),)), SAMPLES, 1),
    "encoder and decoder": (
        lambda: (nn.Transformer(WIDTH, 2, 1, 1, 16), (sequences(), sequences(3, SAMPLES))),
        SAMPLES,
        1,
    ),
    "no recurrent layer": (lambda: (nn.Linear(WIDTH, WIDTH), (sequences(),)), STEPS, 0),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_the_batch_is_what_grows_as_a_line(name: str, device: str) -> None:
    make, samples, dimension = CASES[name]
    with torch.device(device):
        example = given_example(make(), name, name=name)
    assert (example.samples, example.batch_dim) == (samples, dimension)


def test_twice_the_samples_are_twice_the_work() -> None:
    with torch.device("meta"):
        once = load_graph((Last(nn.LSTM(WIDTH, WIDTH)), (sequences(),)), with_law=True)
        twice = load_graph((Last(nn.LSTM(WIDTH, WIDTH)), (sequences(STEPS, 2 * SAMPLES),)))
    assert once.samples == SAMPLES
    assert once.batch_law is not None
    assert once.batch_law.knows_ops
    assert twice.flops.sum() == 2 * once.flops.sum()


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(9, WIDTH), nn.Embedding(9, WIDTH)

    def forward(self, scale: Tensor, words: Tensor, places: Tensor) -> Tensor:
        made: Tensor = (self.words(words) + self.places(places)) * scale
        return made


def test_what_is_given_once_for_all_samples_is_left_as_it_is() -> None:
    with torch.device("meta"):
        inputs = torch.zeros(()), torch.zeros(SAMPLES, STEPS).long(), torch.zeros(1, STEPS).long()
        example = given_example((Positions(), inputs), "positions", name="positions")
    assert example.samples == SAMPLES
    scale, words, places = example.resized(2 * SAMPLES).args
    assert [tuple(each.shape) for each in (scale, words, places)] == [(), (2 * SAMPLES, STEPS), (1, STEPS)]  # type: ignore[attr-defined]


def test_what_is_no_batch_is_not_taken_for_one(caplog: pytest.LogCaptureFixture) -> None:
    """A single sequence, (steps, width)."""
    with caplog.at_level(logging.WARNING, "placelab"), torch.device("meta"):
        example = given_example((Last(nn.LSTM(WIDTH, WIDTH)), (sequences(STEPS),)), "one", name="one")
    assert example.samples == 0
    assert "it is not clear which dimension of its inputs is the batch" in caplog.text


class SelfAttention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x)


def test_attention_has_a_score_for_each_pair_of_steps_with_heads_and_without() -> None:
    for shape in ((SAMPLES, STEPS, WIDTH), (SAMPLES, 2, STEPS, WIDTH)):
        amounts = list(_amounts(SelfAttention(), (torch.zeros(shape, device="meta"),), {}))
        scores = SAMPLES * (1 if len(shape) == 3 else 2) * STEPS * STEPS
        assert amounts[-1] == ("scores", scores)


def test_a_run_does_not_divide_steps() -> None:
    with torch.device("meta"):
        first, second = (
            given_example((Last(nn.LSTM(WIDTH, WIDTH, batch_first=given)), (sequences(),)), "given", name="given")
            for given in (True, False)
        )
    check_divisible(CapturedProgram.of(first))
    with pytest.raises(InputError, match="which is dimension 1 of the model's inputs, and runs divide the first one"):
        check_divisible(CapturedProgram.of(second))


@pytest.mark.parametrize("family", ["rnnlm", "gnmt"])
def test_families_say_how_many_samples_they_have(family: str) -> None:
    assert load_graph(family).samples == 64
