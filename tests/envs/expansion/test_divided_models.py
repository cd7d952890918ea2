"""Captured models, divided by their indices."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from evaluation.tables.plan_table import schedule_sentence
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.descriptions.descriptions import descriptions_of
from graphs.files.load import load_graph
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.expansion.divided_graphs import ITEM, random_split
from tests.envs.expansion.test_collectives import two_servers
from tests.envs.expansion.test_divided_bytes import moved_bytes

DEVICES = (0, 1, 2, 3)
LAYERS, WIDTH, SEQUENCE, BATCH = 2, 16, 6, 8
TRANSFORMER = f"transformer:layers={LAYERS},width={WIDTH},heads=4,sequence={SEQUENCE},batch={BATCH},vocabulary=12"
RESNET = "resnet:layers=26,batch=8,image=32"
MODELS = (TRANSFORMER, "rnnlm:layers=2,hidden=8,steps=3,batch=8,vocabulary=12")

# in a layer of the transformer, what is divided along heads and along the inner width of the feed-forward part
HEADS = {
    "attention.query_key_value/addmm": "m.1", "aten.split_with_sizes": "d2.1", "aten.div": "d1", "aten.clone": "d1",
    "aten.bmm": "b.1", "aten.add": "d1", "aten._softmax": "d1", "attention.out/addmm": "k.0",
    "feed_forward.0/addmm": "m", "aten.gelu": "d2", "feed_forward.2/addmm": "k",
}  # fmt: skip


@pytest.mark.parametrize("spec", MODELS)
def test_every_read_of_a_captured_model_is_known(spec: str) -> None:
    graph = load_graph(spec)
    described = descriptions_of(graph)
    assert descriptions_of(graph) is described
    assert {graph.kinds[op] for op, each in enumerate(described) if each is None} <= {"loss", "loss.grad"}
    for op, each in enumerate(described):
        if each is None:
            continue
        producers = set(graph.edges[(graph.edges[:, 1] == op) & ~graph.control, 0].tolist())
        named = {source.op for source in each.sources if source is not None and source.op >= 0}
        assert named <= producers
        assert all(described[other] is None for other in producers - named), graph.names[op]
        for source, access in zip(each.sources, each.operator.reads, strict=True):
            maker = None if source is None or source.op < 0 else described[source.op]
            if source is not None and maker is not None:
                assert maker.operator.writes[source.result].shape == access.shape, graph.names[op]
        if graph.phase[op] < Phase.UPDATE and not graph.kinds[op].endswith("grad_weight"):
            has_samples = BATCH in each.operator.writes[0].shape
            assert has_samples == any(each.batch in access.variables for access in each.operator.writes)


@pytest.mark.parametrize("spec", [*MODELS, RESNET])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_data_parallelism_of_a_captured_model_is_a_split_by_the_batch(spec: str, micro_batches: int) -> None:
    graph = load_graph(spec)
    problem, schedule = Problem(graph, two_servers(2), optimizer="sgd"), Schedule(micro_batches)
    replicas, split = (
        simulate(problem, Plan((DEVICES,) * len(graph), None, schedule, each)) for each in ((), ((),) * len(graph))
    )
    assert moved_bytes(split) == pytest.approx(2 * 3 * graph.weights.sum()) == moved_bytes(replicas)
    assert split.held_bytes.tolist() == pytest.approx(replicas.held_bytes.tolist())
    assert split.busy_seconds.sum() == pytest.approx(replicas.busy_seconds.sum(), rel=0.05)
    assert split.step_seconds == pytest.approx(replicas.step_seconds, rel=0.05)


def test_batch_normalisation_divided_along_the_batch_by_name_adds_up_its_statistics() -> None:
    """As torch.nn.SyncBatchNorm: twice two numbers per channel. Gradients of scales and shifts need no more of them."""
    graph, channels = load_graph(RESNET), 0
    split = list[tuple[str, ...]]()
    for op, each in enumerate(descriptions_of(graph)):
        is_norm = "batch_norm" in graph.kinds[op] and graph.phase[op] < Phase.UPDATE and each is not None
        split.append((each.batch,) if is_norm and each is not None else ())
        if is_norm and graph.phase[op] == Phase.FORWARD and each is not None:
            channels += each.operator.writes[0].shape[1]
    problem = Problem(graph, two_servers(2), optimizer="sgd")
    replicas, synchronised = (
        simulate(problem, Plan((DEVICES,) * len(graph), split=each)) for each in (((),) * len(graph), tuple(split))
    )
    assert channels > 0
    assert moved_bytes(synchronised) - moved_bytes(replicas) == pytest.approx(2 * 2 * channels * 2 * 3 * 4.0)
    assert synchronised.step_seconds >= replicas.step_seconds


def along_heads(graph: OpGraph) -> tuple[tuple[str, ...], ...]:
    """(ops,) Megatron-LM's division of a transformer's layers; the rest is done by every device."""
    split = []
    for op, mirror in enumerate(graph.mirror.tolist()):
        name = graph.names[op if mirror < 0 else mirror]
        kind = graph.kinds[op if mirror < 0 else mirror]
        in_layer = (name.startswith("layers.") and ".attention" in name) or ".feed_forward." in name
        index = next((index for key, index in HEADS.items() if in_layer and (key in name or key == kind)), "")
        split.append(("d2" if kind == "aten.clone" and name.endswith(("clone_3", "clone_7")) else index,))
    return tuple(split)


def test_a_transformer_divided_along_its_heads_adds_up_twice_in_a_layer_and_pass() -> None:
    graph = load_graph(TRANSFORMER)
    plan = Plan((DEVICES,) * len(graph), split=along_heads(graph))
    timeline = simulate(Problem(graph, two_servers(2), optimizer="sgd"), plan)
    activation = ITEM * BATCH * SEQUENCE * WIDTH
    assert moved_bytes(timeline) == LAYERS * 2 * 2 * 2 * 3 * activation


def test_updates_that_are_divided_store_a_part_of_every_weight() -> None:
    """Forward and backward passes along the batch gather weights, as fully sharded data parallelism does."""
    graph = load_graph(TRANSFORMER)
    split = []
    for op, each in enumerate(descriptions_of(graph)):
        weights = () if each is None or graph.phase[op] != Phase.UPDATE else each.operator.writes
        shared = [index for access in weights[:1] for index in sorted(access.variables)]
        longest = [index for index in shared if each is not None and each.operator.sizes[index] % 4 == 0]
        alike = [index for index in longest if all(index in access.variables for access in weights)]
        split.append((alike[0],) if alike else ())
    plan = Plan((DEVICES,) * len(graph), split=tuple(split))
    problem = Problem(graph, two_servers(2), optimizer="sgd")
    timeline, replicas = simulate(problem, plan), simulate(problem, Plan((DEVICES,) * len(graph)))
    assert all(split[op] for op in range(len(graph)) if graph.phase[op] == Phase.UPDATE)
    others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    assert (timeline.held_bytes - others).tolist() == pytest.approx([graph.weights.sum() / 4] * 4)
    assert (
        moved_bytes(replicas) < moved_bytes(timeline) <= 1.5 * moved_bytes(replicas)
    )  # a third gather, of the backward pass
    assert timeline.expansion is not None
    sentence = schedule_sentence(timeline.expansion)
    by_batch = sum(not each and described is not None and described.batch != ""
                   for each, described in zip(split, descriptions_of(graph), strict=True))  # fmt: skip
    divided = f"{sum(map(bool, split)) + by_batch} of {len(graph)} ops divided, {by_batch} of them by the batch alone"
    assert divided in sentence


@pytest.mark.parametrize("spec", MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_captured_models_divided_at_random_are_simulated(spec: str, seed: int) -> None:
    """Nothing that is read is missing, and no shard does more than the whole op; what replicates costs more in all."""
    graph = load_graph(spec)
    mesh, schedule = ((4,), (2, 2))[seed % 2], Schedule(1 + seed % 2, all_reduce=("ring", "direct")[seed // 2])
    split = random_split(graph, mesh, np.random.default_rng(seed))
    problem = Problem(graph, two_servers(2), optimizer="sgd")
    timeline = simulate(problem, Plan((DEVICES,) * len(graph), None, schedule, split, mesh))
    whole = simulate(problem, Plan(((0,),) * len(graph), None, schedule))
    assert timeline.busy_seconds.sum() >= whole.busy_seconds.sum() * 0.9
    assert timeline.busy_seconds.max() <= whole.busy_seconds[0] * (1 + 1e-9)


class Heads(nn.Module):
    """Several outputs of unlike shapes, one of which is of two inputs, as a generator and a discriminator have."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8), nn.Linear(32, 1)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.body(x)) + y
        return {"first": self.first(hidden), "second": self.second(hidden).squeeze(-1), "y": self.second(y)}


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_models_of_several_inputs_and_outputs_are_divided(micro_batches: int) -> None:
    """The gradient of their loss has a result for each output, and no description: it is read as a whole."""
    graph = training_step(capture(Heads(), (torch.zeros(8, 16), torch.zeros(8, 32)), name="heads"))
    described = descriptions_of(graph)
    assert any(source is not None and source.result > 0 and described[source.op] is None
               for each in described if each is not None for source in each.sources)  # fmt: skip
    problem = Problem(graph, two_servers(2), optimizer="sgd")
    for seed in range(3):
        split = random_split(graph, (2, 2), np.random.default_rng(seed))
        timeline = simulate(problem, Plan((DEVICES,) * len(graph), None, Schedule(micro_batches), split, (2, 2)))
        assert timeline.expansion is not None
        origin = timeline.expansion.origin[timeline.transfers.producer]
        assert not any(graph.kinds[op] == "loss.grad" for op in origin.tolist()), "each device makes all of it"
