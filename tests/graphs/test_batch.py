"""How costs grow with the batch: exactly, by two captures; nearly, by a rule; and what is refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from graphs.capture.second_batch import other_samples
from graphs.descriptions.another_batch import with_batch
from graphs.descriptions.descriptions import descriptions_of
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.formats.graph_file import save_graph
from graphs.formats.onnx import save_onnx
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.subgraph import subgraph
from graphs.op_graph.weight_memory import weight_gradients
from graphs.problem import Problem
from graphs.transforms.batch import grows, law_between, law_of, samples_of
from tests.envs.expansion.pipelines import Pipeline
from tests.oracle.toys import random_graph

SMALL = {  # knobs of each family that make a graph of few ops
    "amoebanet": "layers=3,", "bert": "layers=2,", "cifar10": "layers=2,", "gnmt": "steps=2,", "inception": "",
    "inception_v3": "", "layered": "", "llama": "layers=2,", "nasnet": "repeat=1,", "nmt": "steps=2,",
    "ptb": "steps=2,", "resnet": "image=32,", "rnnlm": "steps=2,", "transformer": "layers=2,",
    "transformer_xl": "sequence=32,", "vgg": "layers=11,", "vit": "layers=2,", "wavenet": "layers=4,",
    "xlnet": "layers=2,",
}  # fmt: skip
FAST = ("gnmt", "rnnlm", "transformer", "vgg")
ALIKE = [pytest.param(each, marks=pytest.mark.slow) for each in ("bert", "transformer_xl", "xlnet")]
OFF = {"bert": 0.0015, "transformer": 0.004, "transformer_xl": 0.009, "xlnet": 0.018}  # of the rule; others 0.0005

MODELS = """
import torch
from torch import nn


class Grows(nn.Module):
    def __init__(self, more):
        super().__init__()
        self.linear, self.more = nn.Linear(4, 4), more

    def forward(self, x, *others):
        return self.more(self.linear(x))


def by_inputs():
    return Grows(torch.relu), (torch.zeros(8, 4), torch.zeros(8), torch.zeros(()))


def unlike_inputs():
    return Grows(torch.relu), (torch.zeros(8, 4), torch.zeros(4, 4))


def of_a_batch(batch=6):
    return Grows(torch.relu), (torch.zeros(batch, 4), torch.zeros(4, 4))


def other_ops():
    return Grows(lambda y: y.relu() if len(y) > 4 else y), (torch.zeros(8, 4),)


def fails():
    return Grows(lambda y: y + torch.zeros(8, 4)), (torch.zeros(8, 4),)


def pairs():
    return Grows(lambda y: y @ y.T), (torch.zeros(8, 4),)
"""


def spec(family: str, batch: int) -> str:
    return f"{family}:{SMALL[family]}batch={batch}"


def assert_predicted(family: str) -> None:
    """Of captures with 32 and 16 samples those with fewer follow, but for the rounding of thirds."""
    graph = load_graph(spec(family, 32), with_law=True)
    assert graph.batch_law is not None
    assert graph.batch_law.samples == 32
    assert graph.batch_law.knows_ops
    for samples in (2, 4, 5):
        small, predicted = load_graph(spec(family, samples)), with_batch(graph, samples)
        assert predicted.names == small.names
        for key in COSTS:
            assert getattr(predicted, key) == pytest.approx(getattr(small, key), rel=1e-15, abs=0), (key, samples)
    assert predicted.batch_law is not None
    assert predicted.batch_law.samples == 5


@pytest.mark.parametrize("family", FAST)
def test_two_captures_predict_every_other_batch(family: str) -> None:
    assert_predicted(family)


@pytest.mark.slow
@pytest.mark.parametrize("family", by_name.built_in("graphs.families"))
def test_two_captures_of_any_family_predict_every_other_batch(family: str) -> None:
    assert_predicted(family)


@pytest.mark.parametrize("family", [*FAST, *ALIKE])
def test_ops_are_described_as_those_of_a_capture_with_that_batch(family: str) -> None:
    graph = load_graph(spec(family, 32))
    found, expected = descriptions_of(with_batch(graph, 4)), descriptions_of(load_graph(spec(family, 4)))
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert (ours.batch, ours.sources) == (theirs.batch, theirs.sources)
            assert ours.operator.sizes == theirs.operator.sizes
            assert ours.operator.reads == theirs.operator.reads
            assert ours.operator.writes == theirs.operator.writes
    before, after = ({id(each.operator) for each in few if each} for few in (descriptions_of(graph), found))
    assert len(after) == len(before)  # those of ops that are alike are one


@pytest.mark.parametrize("family", FAST)
def test_the_rule_is_near_the_law(family: str) -> None:
    known, cluster = load_graph(spec(family, 32), with_law=True), load_cluster("p100x2")
    exact, ruled = (
        costs_of(Problem(with_batch(graph, 2), cluster)).op_seconds[:, 0].sum()
        for graph in (known, replace(known, batch_law=BatchLaw(32)))
    )
    assert ruled == pytest.approx(exact, rel=OFF.get(family, 0.0005))


def test_the_batch_and_back_again() -> None:
    graph = load_graph(spec("rnnlm", 32), with_law=True)
    again = with_batch(with_batch(graph, 4), 32)
    assert again.fingerprint == graph.fingerprint
    assert samples_of(again) == 32
    assert with_batch(graph, 32) is graph


def test_what_is_computed_from_positions_alone_does_not_grow() -> None:
    graph = load_graph(spec("xlnet", 32), with_law=True)
    is_other = (graph.phase < Phase.UPDATE) & ~weight_gradients(graph)
    fixed = [name for name, is_one in zip(graph.names, ~grows(graph) & is_other, strict=True) if is_one]
    assert [name.partition("/")[0] for name in fixed] == [f"layers.{i}.attention.distance" for i in (0, 0, 1)]
    assert not grows(graph)[~is_other].any()
    rule = replace(graph, batch_law=BatchLaw(32))
    assert grows(rule)[is_other].all()


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed"])
def test_what_is_held_next_to_a_loss_or_a_cast_weight_grows(precision: str) -> None:
    """The scores of all words are held while the loss is computed, though it is one number whatever the batch."""
    model = "llama:layers=1,width=64,heads=2,inner=128,sequence=8,batch={}"
    whole, quarter = (load_graph(graph_source(model.format(batch)).in_precision(precision)) for batch in (32, 8))
    assert with_batch(whole, 8).working_bytes == pytest.approx(quarter.working_bytes, rel=1e-12)
    loss = whole.kinds.index("aten.nll_loss_forward")
    assert whole.output_bytes[loss] == quarter.output_bytes[loss]
    assert whole.working_bytes[loss] == 4 * quarter.working_bytes[loss] > 0


def hand_made() -> OpGraph:
    """A forward op with a weight of 10 bytes, its two gradients, and an update, with every kind of size and time."""
    return OpGraph(
        "hand", ("a", "a.grad", "a.grad_weight", "a.update"), ("mm", "mm.grad", "mm.grad_weight", "update"),
        flops=np.array([8.0, 8.0, 8.0, 2.0]), bytes_accessed=np.array([18.0, 18.0, 18.0, 70.0]),
        output_bytes=np.array([4.0, 4.0, 10.0, 5.0]), edges=np.array([[0, 1], [0, 2], [2, 3], [0, 3]]),
        weights=np.array([10.0]), weight_uses=np.array([[0, 0]]), phase=np.array([0, 1, 1, 2]),
        mirror=np.array([-1, 0, 0, 0]), transfer_bytes=np.array([2.0, 4.0, 10.0, 5.0]),
        unsent_bytes=np.array([6.0, 3.0, 1.0, 0.0]), working_bytes=np.array([0.0, 8.0, 3.0, 0.0]),
        edge_bytes=np.array([np.nan, 6.0, 7.0, np.nan]), measured_seconds=np.array([4.0, 4.0, 4.0, 4.0]),
        measured_on={"gpu": np.array([8.0, np.nan, 8.0, 8.0])}, batch_law=BatchLaw(4),
    )  # fmt: skip


def test_the_rule_by_hand() -> None:
    law, half = law_of(hand_made()), with_batch(hand_made(), 2)
    assert law.flops.tolist() == [0, 0, 0, 2]
    assert law.bytes_accessed.tolist() == [10, 10, 10, 70]
    assert law.output_bytes.tolist() == [0, 0, 10, 5]
    assert grows(hand_made()).tolist() == [True, True, False, False]
    assert half.flops.tolist() == [4, 4, 4, 2]
    assert half.bytes_accessed.tolist() == [14, 14, 14, 70]
    assert half.output_bytes.tolist() == [2, 2, 10, 5]
    assert half.transfer_bytes.tolist() == [1, 2, 10, 5]
    assert half.unsent_bytes.tolist() == [3, 1.5, 1, 0]
    assert half.working_bytes.tolist() == [0, 4, 3, 0]
    assert half.edge_bytes[1:3].tolist() == [3, 7]
    assert half.measured_seconds.tolist() == [2, 2, 2, 4]
    assert half.measured_on["gpu"][[0, 2, 3]].tolist() == [4, 4, 8]
    assert samples_of(half) == 2
    one = with_batch(hand_made(), 1)
    assert one.flops.tolist() == [2, 2, 2, 2]
    assert samples_of(one) == 1


def test_a_gradient_of_weights_that_is_known_by_its_place_alone() -> None:
    graph = Pipeline(2, weights=3.0, activation=5.0).graph()
    named = [name for name, is_one in zip(graph.names, weight_gradients(graph), strict=True) if is_one]
    assert named == ["s1.grad_weight", "s0.grad_weight"]
    bare = replace(graph, kinds=("any",) * len(graph))
    assert weight_gradients(bare).tolist() == weight_gradients(graph).tolist()


@pytest.mark.parametrize("samples", [0, -3, 1.5])
def test_a_batch_that_no_step_has_is_refused(samples: Any) -> None:
    with pytest.raises(InputError, match="expected a whole number, at least 1"):
        with_batch(hand_made(), samples)


def test_a_graph_that_does_not_know_its_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="'random5' does not say how many samples its step has; name its file as FILE:b"
    ):
        with_batch(random_graph(5, 1), 3)
    save_graph(random_graph(5, 1), file := tmp_path / "one.graph.json")
    assert samples_of(load_graph(f"{file}:batch=12")) == 12
    save_graph(load_graph(f"{file}:batch=12"), file)
    assert samples_of(load_graph(file)) == 12
    with pytest.raises(InputError, match="a step of 'random5' has 12 samples, by its file, and not 3"):
        load_graph(f"{file}:batch=3")
    with pytest.raises(InputError, match="the batch is 0 samples"):
        load_graph(f"{file}:batch=0")


def test_a_law_of_other_ops_is_refused() -> None:
    graph, parts = random_graph(5, 1), np.zeros(5)
    with pytest.raises(InputError, match="its batch law has 4 fixed parts of flops for 5 ops"):
        replace(graph, batch_law=BatchLaw(8, parts[1:], parts, parts))
    with pytest.raises(InputError, match="its batch law has 0 fixed parts of output_bytes for 5 ops"):
        replace(graph, batch_law=BatchLaw(8, parts, parts))
    with pytest.raises(InputError, match=r"9\.0 of output_bytes of 'op0' do not grow with the batch, by its law"):
        replace(graph, batch_law=BatchLaw(8, parts, parts, parts + 9.0))


@pytest.mark.parametrize("ending", [".graph.json", ".onnx"])
@given(ops=st.integers(1, 6), seed=st.integers(0, 99), samples=st.integers(0, 9), share=st.none() | st.floats(0, 1))
def test_a_law_is_saved_and_loaded(
    tmp_path_factory: pytest.TempPathFactory, ops: int, seed: int, samples: int, share: float | None, ending: str
) -> None:
    graph = random_graph(ops, seed)
    parts = {} if share is None else {key: share * getattr(graph, key) for key in COSTS}
    graph = replace(graph, batch_law=BatchLaw(samples, **parts))
    file = tmp_path_factory.mktemp("law") / f"one{ending}"
    (save_graph if ending == ".graph.json" else save_onnx)(graph, file)
    law = load_graph(file).batch_law
    assert law is not None
    assert law.samples == samples
    assert law.knows_ops == (share is not None)
    assert all(getattr(law, key).tolist() == list(parts.get(key, [])) for key in COSTS)


def test_a_subgraph_keeps_the_law_of_its_ops() -> None:
    graph = replace(hand_made(), batch_law=law_of(hand_made()))
    part = subgraph(graph, np.array([True, False, True, False]))
    assert part.batch_law is not None
    assert part.batch_law.bytes_accessed.tolist() == [10, 10]
    assert part.batch_law.samples == 4


def test_costs_that_do_not_grow_as_a_line_have_no_law() -> None:
    graph = hand_made()
    squared = replace(graph, flops=graph.flops * np.array([0.25, 1, 1, 1]))  # a quarter at half the batch
    assert law_between(graph, 4, squared, 2) is None
    assert law_between(graph, 4, replace(graph, flops=graph.flops * 2), 2) is None  # more at half of it
    assert law_between(graph, 4, replace(graph, kinds=("other",) * 4), 2) is None
    law = law_between(graph, 4, with_batch(graph, 2), 2)
    assert law is not None
    assert all(getattr(law, key).tolist() == getattr(law_of(graph), key).tolist() for key in COSTS)


@pytest.mark.parametrize(("samples", "other"), [(1, 2), (2, 4), (3, 2), (4, 2), (5, 2), (32, 16)])
def test_no_capture_has_a_batch_of_one(samples: int, other: int) -> None:
    assert other_samples(samples) == other


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A file with models."""
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path / "models.py"


@pytest.mark.parametrize(("function", "samples"), [("by_inputs", 8), ("of_a_batch", 6), ("unlike_inputs", 0)])
def test_a_users_model_is_captured_twice(models: Path, function: str, samples: int) -> None:
    graph = load_graph(f"{models}:{function}", with_law=True)
    law = graph.batch_law
    assert (0 if law is None else law.samples) == samples
    if law is not None:
        assert law.knows_ops
        assert law.bytes_accessed[0] == 4 * (4 * 4 + 4)  # the weight and the bias


@pytest.mark.parametrize(
    ("function", "why"),
    [("other_ops", "its ops differ then"), ("fails", "module fails"), ("pairs", "its ops differ then")],
)
def test_where_two_captures_do_not_agree_the_rule_is_taken(
    models: Path, function: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "placelab"):
        graph = load_graph(f"{models}:{function}", with_law=True)
    assert graph.batch_law is not None
    assert graph.batch_law.samples == 8
    assert not graph.batch_law.knows_ops
    assert why in caplog.text
    assert law_of(graph).bytes_accessed[0] == 4 * (4 * 4 + 4)
