"""Plans that are given by their degrees: which devices, stages and parts ops get, and steps in closed form."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import placelab
from envs.files.plan_file import load_plan
from envs.plans.mesh import Mesh
from envs.simulation.simulator import simulate
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_groups.layer_names import unit_blocks
from graphs.problem import Problem
from graphs.runtime import PROGRAM, runtime_of
from placers.data_parallel import DataParallel
from placers.parallel import Parallel
from placers.tensor_parallel import TensorParallel
from tests.envs.expansion.divided_graphs import ITEM
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.test_divided_bytes import moved_bytes
from tests.envs.expansion.test_divided_models import TRANSFORMER
from tests.placers.splits.test_split_placers import BATCH, SEQUENCE, WIDTH, added_up_by_shards, captured

LONG = TRANSFORMER.replace(f"sequence={SEQUENCE}", "sequence=48")  # more activations than weights
WEIGHT = 40.0  # bytes of a block


def blocks(count: int, micro_batches: int = 8) -> Problem:
    """A chain of blocks, each of a second forward and two backward for a micro-batch, on four equal devices."""
    graph = Pipeline(count, micro_batches, forward=1.0, backward=2.0).graph()
    names = tuple(re.sub(r"s(\d+)", r"layers.\1/mm", name) for name in graph.names)
    return Problem(replace(graph, names=names), servers(4))


def given_by(degrees: str) -> Parallel:
    """The placer of a spec."""
    built: Parallel = by_name.build("placers", f"parallel:{degrees}")
    return built


def stages_of(problem: Problem, degrees: str) -> list[int]:
    """The stage of each block."""
    return list(given_by(degrees).place(problem).plan.schedule.stages[: len(problem.graph.weights)])


# ---- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degrees", "seconds"),
    [
        ("pp=4", (8 + 3) * 2 * 3),  # M + P - 1 times the passes of a stage of two blocks
        ("pp=4,order=gpipe", (8 + 3) * 2 * 3),
        ("pp=4,interleaved=2", 8 * 2 * 3 + 3 * 1 * 3),  # Narayanan et al. 2021, 2.2: half of the bubble
        ("pp=4,recompute=true", (8 + 3) * 2 * (1 + 1 + 2)),
        ("pp=4,recompute=true,recompute_at=late", (8 + 3) * 2 * (1 + 1 + 2)),
        ("pp=2,dp=1", (8 + 1) * 4 * 3),
        ("pp=2,dp=2", (8 + 1) * 4 * 3 / 2),  # each replica has half of every micro-batch
    ],
)
def test_a_step_takes_what_the_papers_say(degrees: str, seconds: float) -> None:
    problem = blocks(8)
    plan = given_by(f"micro_batches=8,{degrees}").place(problem).plan
    assert simulate(problem, plan).step_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("devices", [2, 4])
def test_shards_add_up_what_megatrons_do_and_send_nothing_else(devices: int) -> None:
    problem = captured(TRANSFORMER, f"p100x{devices}")
    found = Parallel(tp=devices).place(problem)
    assert moved_bytes(simulate(problem, found.plan)) == added_up_by_shards(devices)
    assert found.plan.split == TensorParallel(others="whole").place(problem).plan.split
    divided = problem.graph.flops[[any(split) for split in found.plan.split]].sum() / problem.graph.flops.sum()
    assert found.notes == (
        f"parallel: {divided:.0%} of the FLOPs are divided among the {devices} shards, each of which does all else "
        "in whole.",
    )


def test_each_shard_sends_to_its_counterpart_in_the_next_stage() -> None:
    problem = captured(TRANSFORMER, "p100x4")
    plan = Parallel(tp=2, pp=2, micro_batches=2).place(problem).plan
    activations = ITEM * BATCH * SEQUENCE * WIDTH
    passed = 2 * (1 + 2) * activations  # from both shards; backward, the gradients of the norm and of the residual
    assert moved_bytes(simulate(problem, plan)) == added_up_by_shards(2) + passed


@pytest.mark.parametrize(("shares", "mesh"), [("", (2, 2)), ("3:1", ((3, 1), 2)), ("2:2", (2, 2))])
def test_replicas_of_shards_add_up_their_parts_of_gradients(shares: str, mesh: Mesh) -> None:
    """Each pair of counterparts has the same half of the columns, with their biases, of the rows without, or all."""
    problem = captured(TRANSFORMER, "p100x4")
    plan = Parallel(tp=2, dp=2, shares=shares).place(problem).plan
    columns_or_rows = re.compile(r"(query_key_value|feed_forward\.0)\.|(out|feed_forward\.2|tokens|head)\.weight")
    divided = [bool(columns_or_rows.search(name)) for name in problem.graph.weight_names]
    stored = (problem.graph.weights / np.where(divided, 2, 1)).sum()
    sums = sum(added_up_by_shards(2, BATCH * share) for share in ((3 / 4, 1 / 4) if "3" in shares else (1 / 2, 1 / 2)))
    assert (plan.mesh, plan.schedule.shares) == (mesh, ())
    assert moved_bytes(simulate(problem, plan)) == sums + 2 * 2 * stored


def test_replicas_of_shards_hold_activations_in_proportion_to_their_shares() -> None:
    problem, unequal = captured(LONG, "p100x4"), Parallel(tp=2, shares="3:1")
    more, _, less, _ = simulate(problem, unequal.place(problem).plan).peak_bytes
    half = simulate(problem, Parallel(tp=2).place(problem).plan).peak_bytes[0]
    assert more - half == half - less > 0.2 * half
    fewer = captured(LONG.replace(f"batch={BATCH}", f"batch={BATCH // 4}"), "p100x2")
    assert less == pytest.approx(simulate(fewer, Parallel(tp=2).place(fewer).plan).peak_bytes[0], rel=0.01)


def test_replicas_of_shards_take_as_long_as_their_shares_of_samples() -> None:
    """Where the second replica is on devices that are a third as fast, both compute as long with shares of 3:1."""
    equal = captured(LONG, "p100x4")
    seconds = np.where(equal.graph.phase < Phase.UPDATE, equal.graph.flops, 0.0)
    problem = replace(equal, op_seconds=seconds[:, None] * (1.0, 1.0, 3.0, 3.0))
    busy = simulate(problem, Parallel(tp=2, shares="3:1").place(problem).plan).busy_seconds
    first, _, second, _ = busy
    assert first == pytest.approx(second, rel=1e-3)


# ---- what a plan says ------------------------------------------------------------------------------------------------


def test_degrees_of_data_parallelism_alone_are_data_parallelism() -> None:
    problem = Pipeline(3, weights=8.0).problem(servers(4, bandwidth=4.0))
    assert Parallel().place(problem).plan == DataParallel(micro_batches=1).place(problem).plan
    assert Parallel(dp=2, micro_batches=4).place(problem).plan == DataParallel(2, 4).place(problem).plan


def test_replicas_have_the_shares_that_are_given() -> None:
    problem = Pipeline(3, weights=8.0).problem(servers(4, bandwidth=4.0))
    plan = Parallel(shares="3:1").place(problem).plan
    assert plan == DataParallel(shares="3:1", micro_batches=1).place(problem).plan
    of_stages = Parallel(shares="6:2", pp=2, stages="s1", micro_batches=2).place(problem).plan.schedule
    assert of_stages.shares == ((3, 1), (3, 1))


def test_devices_that_shares_leave_empty_are_noted() -> None:
    problem = Pipeline(2, 3).problem(servers(4))
    (note,) = Parallel(shares="1:3").place(problem).notes
    assert note.startswith("parallel: 2 of 4 devices, as shares=1:3 are of 2 replicas")
    assert not Parallel(shares="1:3", dp=2).place(problem).notes
    assert not Parallel(shares="1:3", pp=2, micro_batches=2, order="gpipe", stages="s1").place(problem).notes


def test_shards_follow_one_another_then_replicas_then_stages() -> None:
    plan = Parallel(dp=2, tp=2, pp=2, micro_batches=2).place(captured(TRANSFORMER, "v100_servers")).plan
    of_stage = dict(zip(plan.schedule.stages, plan.devices, strict=True))
    assert of_stage == {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}
    assert (plan.mesh, plan.order, plan.schedule.order.name) == ((2, 2), PROGRAM, "early_backward_a")
    assert plan.schedule.all_reduce == ""
    assert given_by("all_reduce=ring").place(Pipeline(3).problem(servers(4))).plan.schedule.all_reduce == "ring"


def test_replicas_sum_up_as_the_runtime_has_it_with_nccl_on_gpus_alone() -> None:
    ideal = Pipeline(3, weights=8.0).problem(servers(4, bandwidth=4.0))
    on_gpus = replace(ideal, runtime=runtime_of("run:host=none"))
    devices = tuple(replace(each, kind="cpu") for each in ideal.cluster.devices)
    on_cpus = replace(on_gpus, cluster=replace(ideal.cluster, devices=devices))
    for problem, kind in ((ideal, "ring"), (on_gpus, "nccl"), (on_cpus, "ring")):
        plans = [placer.place(problem).plan for placer in (Parallel(), given_by(f"all_reduce={kind}"))]
        assert simulate(problem, plans[0]).step_seconds == simulate(problem, plans[1]).step_seconds


def test_stages_have_equally_many_blocks_or_as_many_as_the_user_says() -> None:
    problem = blocks(8)
    assert stages_of(problem, "pp=4") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert stages_of(problem, "pp=4,stages=1+2+3+2") == [0, 1, 1, 2, 2, 2, 3, 3]
    assert stages_of(problem, "pp=2,interleaved=2") == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("placer", ["parallel:pp=2,dp=1,stages=2+2", "parallel:pp=2,dp=1", "gpipe:stages=2+2"])
def test_blocks_that_op_groups_tear_apart_are_named(placer: str) -> None:
    model = "transformer:layers=4,width=32,heads=2,sequence=8,vocabulary=32,batch=8"
    note = "in several stages, since op groups hold ops of several blocks; place with --groups none"
    torn, whole = (placelab.place(model, cluster="p100x2", placer=placer, groups=each).result for each in (7, None))
    assert note in torn.notes[0]
    assert not whole.notes


def test_several_stages_of_a_device_are_interleaved_or_a_v() -> None:
    def devices(order: str = "") -> Sequence[tuple[int, ...]]:
        plan = Parallel(pp=4, interleaved=2, micro_batches=8, order=order).place(blocks(8)).plan
        return plan.devices[:8]

    assert devices() == tuple((block % 4,) for block in range(8))
    assert devices(order="zb_v") == ((0,), (1,), (2,), (3,), (3,), (2,), (1,), (0,))


def test_what_is_outside_of_the_blocks_is_with_the_one_before() -> None:
    """The embedding is with the first block, norm, head and loss with the last one."""
    graph = load_graph("transformer:layers=4,width=16,heads=2,sequence=8,batch=4,vocabulary=32")
    plan = Parallel(pp=2, micro_batches=2).place(Problem(graph, servers(2))).plan
    stage = dict(zip(graph.names, plan.schedule.stages, strict=True))
    assert {stage[name] for name in stage if name.startswith(("tokens", "layers.0.", "layers.1."))} == {0}
    assert {stage[name] for name in stage if name.startswith(("norm", "head", "layers.2.", "layers.3."))} == {1}
    loss = [stage[name] for name, phase in zip(graph.names, graph.phase, strict=True) if phase == Phase.FORWARD][-1]
    assert loss == 1


def test_a_head_that_is_a_sequence_of_modules_is_no_block() -> None:
    """BERT's head is three modules in a row."""
    graph = load_graph("bert:layers=4,width=16,heads=2,sequence=8,batch=4")
    assert unit_blocks(graph).max() + 1 == 4
    mlp = load_graph("vgg:layers=11,image=32,batch=4")
    assert len(set(unit_blocks(mlp).tolist())) > 8, "where no layer has modules inside, all are blocks"
    assert len(unit_blocks(Pipeline(3).graph())) == 0


def test_a_plan_is_saved_and_simulated_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.plan.json"
    placed = placelab.place(
        TRANSFORMER, cluster="p100x4", placer="parallel:tp=2,pp=2,micro_batches=2,recompute=true", out=file
    )
    again = placelab.simulate(TRANSFORMER, file, cluster="p100x4")
    assert again.timeline.step_seconds == placed.timeline.step_seconds
    assert again.plan == placed.plan


def by_hand(path: Path, degrees: dict[str, object], **more: object) -> Path:
    path.write_text(json.dumps({"schema": "placelab.plan", "version": 6, "plan": {"parallel": degrees, **more}}))
    return path


def test_a_plan_file_says_the_same_by_hand(tmp_path: Path) -> None:
    degrees = {"dp": 2, "pp": 2, "micro_batches": 4, "recompute": True, "stages": "1+1"}
    file = by_hand(tmp_path / "mine.plan.json", degrees)
    said = placelab.place(
        TRANSFORMER, cluster="p100x4", placer="parallel:dp=2,pp=2,micro_batches=4,recompute=true,stages=1+1"
    )
    found = placelab.simulate(TRANSFORMER, file, cluster="p100x4")
    assert (found.plan, found.result.placer) == (said.plan, said.result.placer)
    assert found.timeline.step_seconds == said.timeline.step_seconds
    assert load_plan(by_hand(file, {}), blocks(4)).plan == Parallel().place(blocks(4)).plan
    divided = placelab.simulate(TRANSFORMER, by_hand(file, {"tp": 2}), cluster="p100x2")
    assert "divided among the 2 shards" in divided.result.notes[0]


@pytest.mark.parametrize(
    ("degrees", "more", "sentence"),
    [
        ({"dp": 2}, {"placement": {"": "gpu:0"}}, "`parallel` says all of a plan; remove what the file says in addit"),
        ({"ddp": 2}, {}, "unknown knob 'ddp'; did you mean 'dp'"),
        ({"dp": 1.5}, {}, r"plan\.parallel.*dp"),
        ({"tp": 0}, {}, "tp is 0; expected at least 1"),
        ({"dp": ""}, {}, "expected knobs as key=value"),
        ({"order": "evil.py:build"}, {}, "it names code, 'evil.py:build', and a file that is opened runs none"),
    ],
)
def test_degrees_in_a_file_are_refused_before_a_model_is_captured(
    tmp_path: Path, degrees: dict[str, object], more: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=rf"mine\.plan\.json: .*{sentence}"):
        placelab.simulate("no_such.py:model", by_hand(tmp_path / "mine.plan.json", degrees, **more), cluster="p100x4")


def test_an_order_has_as_many_knobs_as_it_needs_in_brackets(tmp_path: Path) -> None:
    order = "v_half:in_flight=2,times=1+2+1+0"
    spec = f"parallel:pp=2,micro_batches=4,interleaved=2,order=[{order}]"
    placer = by_name.build("placers", spec)
    assert (placer.order, placer.name) == (order, spec)
    assert by_name.specs(f"heft,{spec},dapple") == ["heft", spec, "dapple"]
    degrees = {"pp": 2, "micro_batches": 4, "interleaved": 2, "order": order}
    assert load_plan(by_hand(tmp_path / "mine.plan.json", degrees), blocks(4)).plan == placer.place(blocks(4)).plan
    assert runtime_of("run:order=[my.py:build:a=1,b=2],host=30us").order.name == "my.py:build:a=1,b=2"


# ---- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degrees", "sentence"),
    [
        ("tp=3", "tp=3 and pp=1 take 3 devices for each replica, cluster 'servers4' has 4; choose degrees whose"),
        ("dp=4,pp=2", "dp=4, tp=1 and pp=2 take 8 devices, cluster 'servers4' has 4; choose degrees"),
        (
            "pp=4,dp=1",
            "'chain6' has 6 blocks, of which 4 stages cannot have equally many; say stages=1[+]2[+]1[+]2",
        ),
        ("pp=4,interleaved=2", "'chain6' has 6 blocks, of which 8 stages .* choose fewer stages"),
        ("tp=2", "ops cannot be divided with tp=2, since graph 'chain6' does not say what its ops compute"),
        ("pp=2,micro_batches=5", "has 12 samples, which cannot be divided into 5 micro-batches on 2 replicas"),
        ("pp=2,order=zb_v,micro_batches=2", "the order 'zb_v' takes two stages on a device"),
        (
            "dp=1,pp=2,interleaved=3,micro_batches=5",
            "the order 'interleaved' runs 5 micro-batches on 2 devices in 2 rounds, which must be equal; use 4 or 6",
        ),
    ],
)
def test_what_a_problem_cannot_have_is_refused(degrees: str, sentence: str) -> None:
    problem = blocks(6, 1)
    samples = 60 if "interleaved=3" in degrees else 12
    problem = replace(problem, graph=replace(problem.graph, batch_law=BatchLaw(samples=samples)))
    with pytest.raises(InputError, match=sentence):
        given_by(degrees).place(problem)


def test_what_no_problem_can_have_is_refused_before_one_is_captured() -> None:
    for degrees, sentence in (
        ("tp=0", "parallel: tp is 0; expected at least 1"),
        ("order=no_such", "no_such"),
        ("shares=3", "parallel: shares=3 says no shares"),
        ("shares=3:1,dp=4", "parallel: shares=3:1 are of 2 replicas, and dp=4; change one"),
        ("shares=3:1,tp=2,zero=3", "parallel: shares=3:1 cannot be combined with tp=2 and zero=3; leave one out"),
    ):
        with pytest.raises(InputError, match=sentence):
            given_by(degrees)


def test_graphs_without_columns_name_the_remedy() -> None:
    convolutions = Problem(load_graph("vgg:layers=11,image=32,batch=4"), servers(2))
    by = {split for split in Parallel(tp=2).place(convolutions).plan.split if any(split)}
    assert by, "the classifier of VGG has columns and rows"
    resnet = Problem(load_graph("resnet:layers=26,image=32,batch=4"), servers(2))
    with pytest.raises(InputError, match=r"no product of 'resnet.*' can be divided by 2 columns, and the next one by"):
        Parallel(tp=2).place(resnet)


# ---- states of weights in parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_replicas_of_all_stages_hold_parts_of_weights(zero: int) -> None:
    """Two stages of two replicas with Adam: of the two blocks of each device, what the stage of ZeRO says."""
    made = Pipeline(4, 4, forward=1.0, backward=2.0, weights=WEIGHT)
    graph = made.graph()
    names = tuple(re.sub(r"s(\d+)", r"layers.\1/mm", name) for name in graph.names)
    problem = Problem(replace(graph, names=names), servers(4), optimizer="adam")
    plan = given_by(f"pp=2,dp=2,micro_batches=4,zero={zero}").place(problem).plan
    assert plan.schedule.zero == zero
    bytes_of = {1: 1 + 1 + 2 / 2, 2: 1 + (1 + 2) / 2, 3: (1 + 1 + 2) / 2}
    assert simulate(problem, plan).static_bytes.tolist() == [2 * WEIGHT * bytes_of[zero]] * 4
    alone = given_by(f"pp=4,micro_batches=4,zero={zero}").place(problem).plan
    assert alone == given_by("pp=4,micro_batches=4").place(problem).plan


def test_an_unknown_stage_of_zero_is_refused_before_a_model_is_captured() -> None:
    with pytest.raises(InputError, match="unknown zero '4'"):
        given_by("zero=4")
