"""Frozen layers: what is left of a training step, and what it reads from a cache."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.training_step import forward_pass, training_step
from graphs.files.load import load_graph
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.problem import Problem
from graphs.transforms.batch import law_of
from graphs.transforms.freezing import first_layers, freeze, freeze_layers
from tests.drawn import examples
from tests.oracle.toys import toy_cluster

VIT = "vit:layers=3,width=32,heads=2,image=32,batch=4"
BERT = "bert:layers=2,width=32,heads=2,sequence=8,batch=2"  # its output layer shares the embedding's weights


@st.composite
def forward_graphs(draw: st.DrawFn) -> tuple[OpGraph, int]:
    """A forward graph, in topological order and with weights of one op each, and how many first ops to freeze."""
    ops = draw(st.integers(2, 9))
    kinds = draw(
        st.lists(st.sampled_from(("mm", "add", "relu", "mul", "_softmax", "argmax")), min_size=ops, max_size=ops)
    )
    edges = sorted(
        {
            (draw(st.integers(max(0, op - 3), op - 1)), op)
            for op in range(1, ops)
            for _ in range(draw(st.integers(1, 2)))
        }
    )
    users = [op for op in range(ops) if draw(st.integers(0, 2)) or op == ops - 1]
    sizes = np.arange(1, ops + 1, dtype=np.float64)
    graph = OpGraph(
        "random", tuple(f"op{i}" for i in range(ops)), tuple(f"aten.{kind}" for kind in kinds), sizes, 2 * sizes,
        3 * sizes, np.array(edges), weights=np.arange(1, len(users) + 1, dtype=np.float64),
        weight_uses=np.column_stack([users, np.arange(len(users))]),
    )  # fmt: skip
    return graph, draw(st.integers(0, ops - 1))


@settings(max_examples=examples(100, 15), deadline=None)
@given(forward_graphs())
def test_what_is_left_is_the_training_step_of_a_model_whose_first_weights_are_none(given: tuple[OpGraph, int]) -> None:
    """The oracle: weights that are not trained are what a training step is made of without them."""
    forward, count = given
    ops = np.arange(len(forward)) < count
    try:
        whole = training_step(forward)
        oracle = training_step(replace(forward, weight_uses=forward.weight_uses[~ops[forward.weight_uses[:, 0]]]))
    except InputError:
        assume(False)  # no weight reaches the loss
    assume(forward_pass(oracle).edges.tolist() == forward_pass(whole).edges.tolist())  # or others reach the loss
    chosen = np.append(ops, np.zeros(len(whole) - len(forward), np.bool_))
    step = freeze(whole, chosen)
    assert step.names == tuple(name for name in whole.names if name in set(oracle.names))
    assert set(oracle.names) == set(step.names)

    def edges(graph: OpGraph) -> set[tuple[str, str]]:
        return {(graph.names[u], graph.names[v]) for u, v in graph.edges.tolist()}

    # a product of which one side is frozen saves the other side, too: its gradient was made for both
    assert edges(oracle) <= edges(step)
    assert all("grad" not in u and v.endswith(".grad") for u, v in edges(step) - edges(oracle))
    assert step.frozen.tolist() == oracle.frozen.tolist()


def test_the_first_layers_run_forward_only() -> None:
    whole = load_graph(VIT, with_law=True)
    step = freeze_layers(whole, 2)
    later = {name for name, phase in zip(step.names, step.phase, strict=True) if phase != Phase.FORWARD}
    assert forward_pass(step).names == forward_pass(whole).names
    assert not {name for name in later if name.startswith(("layers.0", "layers.1", "patches"))}
    assert "layers.2.attention_norm/native_layer_norm_4.grad" not in later  # nobody needs the gradient of its input
    assert "layers.2.attention_norm/native_layer_norm_4.grad_weight" in later
    kept = [whole.names.index(name) for name in step.names]
    for key in COSTS:
        assert np.array_equal(getattr(step, key), getattr(whole, key)[kept])
        assert np.array_equal(getattr(law_of(step), key), getattr(law_of(whole), key)[kept])
    assert freeze_layers(whole, 0) is whole


def test_frozen_weights_have_neither_gradient_nor_optimizer_state() -> None:
    step = freeze_layers(load_graph(VIT), 3)
    problem = Problem(step, toy_cluster(1), "adam")
    frozen = float(step.weights[step.frozen].sum())
    trained = float(step.weights.sum()) - frozen
    assert trained == 4 * (2 * 32 + 32 * 1000 + 1000)  # the last norm and the classifier
    assert problem.weight_state_bytes.sum() == frozen + 4 * trained
    images, others = 4 * 3 * 32 * 32 * 4, 25 * 4 + 4 * 8  # and the mask of attention, and the labels
    assert step.held_tensors.bytes.sum() == images + others
    timeline = simulate(problem, Plan.of([0] * len(step)))
    assert timeline.held_bytes.tolist() == [frozen + 3 * trained + images + others]  # the gradient is an op's output
    assert timeline.peak(0).gradients <= trained


def test_a_weight_that_is_shared_with_a_frozen_layer_is_frozen_everywhere() -> None:
    whole = load_graph(BERT)
    step = freeze_layers(whole, 1)
    (logits,) = (op for op, kind in enumerate(whole.kinds) if kind == "aten.addmm" and "/" not in whole.names[op])
    name = f"{whole.names[logits]}.grad_weight"
    left = step.names.index(name)
    bias, table = 30522 * 4.0, 30522 * 32 * 4.0
    assert step.output_bytes[left] == pytest.approx(bias)  # only the bias is trained
    assert step.flops[left] == pytest.approx(whole.flops[whole.names.index(name)] * bias / (bias + table))
    assert not (step.phase == Phase.REFRESH).any()


def test_freezing_in_steps_is_freezing_at_once() -> None:
    whole = load_graph(BERT)
    once = freeze(whole, first_layers(whole, 2))
    first = freeze(whole, first_layers(whole, 1))
    twice = freeze(first, first_layers(first, 2))
    assert twice.names == once.names
    assert np.array_equal(twice.frozen, once.frozen)


def test_layers_of_a_profile_are_frozen_by_their_ops() -> None:
    layers = tuple(ProfiledLayer(f"node{i}", "Linear", 1.0, 2.0, (8.0,), False, 4.0) for i in range(3))
    whole = LayerProfile("three", layers, (("node0", "node1"), ("node1", "node2"))).graph()
    step = freeze(whole, np.isin(whole.names, ["node0", "node1"]))
    assert step.names == ("node0", "node1", "node2", "node2.backward", "node2.update")
    assert simulate(Problem(step, toy_cluster(1)), Plan.of([0] * 5)).step_seconds == 5.0
    assert step.frozen.tolist() == [True, True, False]
    assert isinstance(replace(step, batch_law=BatchLaw(4)).samples, int)


@pytest.mark.parametrize(
    ("spec", "names", "says"),
    [
        (VIT, ["layers.0.attention_norm/native_layer_norm"], "depends on 'add'; freeze that, too"),
        (VIT, ["loss.grad"], "'loss.grad' is no forward op"),
    ],
)
def test_ops_that_cannot_be_frozen_are_refused(spec: str, names: list[str], says: str) -> None:
    graph = load_graph(spec)
    with pytest.raises(InputError, match=says):
        freeze(graph, np.isin(graph.names, names))


def test_layers_that_cannot_be_frozen_are_refused() -> None:
    graph = load_graph(VIT)
    with pytest.raises(InputError, match=r"4 layers of .* cannot be frozen; it has 3"):
        freeze_layers(graph, 4)
    with pytest.raises(InputError, match="no training step"):
        freeze_layers(forward_pass(graph), 1)
    with pytest.raises(InputError, match=r"no weight of .* would be trained any more"):
        freeze(graph, graph.phase == Phase.FORWARD)
    with pytest.raises(InputError, match="show no layers"):
        first_layers(replace(graph, names=tuple(f"op{i}" for i in range(len(graph)))), 1)
    with pytest.raises(InputError, match="does not say which forward op"):
        freeze_layers(replace(graph, mirror=np.full(len(graph), -1)), 1)
    with pytest.raises(InputError, match=r"frozen has 1 entries for \d+ weights"):
        replace(graph, frozen=np.ones(1, np.bool_))
