"""The study of published plans: Sailor's simulator, the best that its rivals can say, and a whole study, tiny."""

import math
import os
from pathlib import Path

import msgspec
import pytest

from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, within
from evaluation.studies.problems import measured_problem
from evaluation.studies.published import __main__ as published
from evaluation.studies.published import aceso
from evaluation.studies.published.__main__ import IDEAL, Published
from evaluation.studies.published.findings import (
    BEST,
    OURS,
    SHARDED,
    Answer,
    Compared,
    JobAnswer,
    Judged,
    compared,
    job_rows,
    results_of,
    versions,
)
from evaluation.studies.published.jobs import JOBS
from evaluation.studies.published.public_planner import MODELLED, Job, Theirs
from evaluation.studies.published.recommended import ROWS, Row
from evaluation.studies.published.sailor import Choice, Scenario, choices, pipeline_of, plan_of, workload
from evaluation.studies.published.sailor_rivals import best_of_all
from evaluation.studies.published.sailor_simulator import (
    CENTRAL,
    LAYERS,
    WEST,
    Group,
    Pipeline,
    Pool,
    SailorSimulator,
    Stage,
)
from graphs.foundation.errors import InputError

GPU = "A100-40"
POOL, FAR = Pool(GPU, CENTRAL), Pool(GPU, WEST)
BLOCK = (1.0, 2.0, 0.5)  # seconds of each layer
TWO = (0.0, 0.0, 2.0)  # GB/s, whatever the size of a message
EVEN = SailorSimulator(
    {(GPU, tp, 1): [BLOCK] * LAYERS for tp in (1, 2, 4)}, {(pool, n): TWO for pool in (POOL, FAR) for n in (1, 2, 4)}, 8
)
MEASURED = Path(os.environ.get("PLACELAB_MEASURED", "measured"))


def stages(*ends: int) -> tuple[Stage, ...]:
    """On A100s without tensor parallelism, up to these layers."""
    return tuple(Stage(range(begin, end), (Group(POOL, 1),)) for begin, end in zip((0, *ends), ends, strict=False))


def test_a_step_is_that_of_the_slowest_stage_for_each_micro_batch_but_the_first() -> None:
    alone = Pipeline(stages(LAYERS), 1, 1)
    assert EVEN.seconds(alone) == 8 * LAYERS * 3.0 + 0.5
    send = 2097152 * 4 / 2e9  # bytes of a sample, at 2 GB/s
    two = Pipeline(stages(13, LAYERS), 1, 1)
    # of two stages the first sends once, and the last counts twice the head's gradient, as large as the logits
    back = 2 * 2097152 * 4 / 2e9
    assert EVEN.seconds(two) == pytest.approx(7 * (39 + back) + 78 + send + back + 0.5)


def test_replicas_add_up_gradients_in_buckets_after_the_step() -> None:
    one, both = (EVEN.seconds(Pipeline(stages(LAYERS), replicas, 1)) for replicas in (1, 2))
    parameters = 53608448 + 24 * 12596224 + 51513344
    assert both == pytest.approx((one - 0.5) / 2 + 0.5 + 2 * parameters * 4 / 2 / 2e9), "2 (n - 1) / n of the bytes"


def test_what_does_not_fit_or_was_not_measured_takes_for_ever() -> None:
    assert math.isinf(EVEN.seconds(Pipeline(stages(LAYERS), 1, 2))), "no times for two samples"
    many = Pipeline(stages(*range(2, LAYERS + 1, 2)), 1, 1)
    assert math.isfinite(EVEN.seconds(many))
    assert math.isinf(EVEN.seconds(Pipeline((Stage(range(LAYERS), (Group(Pool("V100-16"), 1),)),), 1, 1)))


def test_a_mixed_stage_is_as_slow_as_its_slowest_replica_and_regions_are_far_apart() -> None:
    slow = SailorSimulator(
        {(GPU, tp, 1): [(tp * 1.0, 2.0, 0.5)] * LAYERS for tp in (1, 2)}, EVEN.links, 8
    )  # fmt: skip
    both = Pipeline((Stage(range(LAYERS), (Group(POOL, 1), Group(POOL, 2))),), 1, 1)
    assert slow.seconds(both) == slow.seconds(Pipeline((Stage(range(LAYERS), (Group(POOL, 2),)),), 1, 1))
    near, far = (slow.transfer(1e6, Group(POOL, 1), Group(pool, 1)) for pool in (POOL, FAR))
    assert [near, far] == pytest.approx([1e6 / 2e9, 1e6 / 0.20738e9])


def test_the_best_pipeline_is_no_slower_than_any_that_is_tried_and_both_simulators_take_it() -> None:
    best = best_of_all(EVEN, {POOL: 8})
    assert EVEN.seconds(best) <= min(EVEN.seconds(Pipeline(stages(LAYERS), n, 1)) for n in range(1, 9))
    choice = Choice.of(best)
    problem = measured_problem(*workload(EVEN, choice), **IDEAL)
    plan = plan_of(best, problem)
    assert pipeline_of(plan, problem, choice) == best
    assert simulate(problem, plan).step_seconds > 0.0


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_a_step_of_one_stage_takes_as_long_in_both_simulators(replicas: int) -> None:
    pipeline = Pipeline(stages(LAYERS), replicas, 1)
    problem = measured_problem(*workload(EVEN, Choice.of(pipeline)), **IDEAL)
    assert simulate(problem, plan_of(pipeline, problem)).step_seconds == pytest.approx(EVEN.seconds(pipeline))


def test_choices_leave_no_gpu_that_a_group_could_have_but_whole_pools() -> None:
    found = choices(EVEN, {POOL: 8, FAR: 2})
    assert len(set(found)) == len(found)
    assert Choice(8, (Group(POOL, 1),), 1) in found, "the other region may be left out"
    assert Choice(2, (Group(POOL, 4), Group(FAR, 1)), 1) in found
    assert Choice(2, (Group(POOL, 2),), 1) not in found, "two GPUs of four would be left"
    assert all(each.replicas * sum(tp for pool, tp in each.groups if pool == POOL) <= 8 for each in found)


@pytest.mark.skipif(not MEASURED.is_dir(), reason="set PLACELAB_MEASURED to the folder of measured layers")
def test_a_step_that_was_measured_took_about_as_long() -> None:
    """Sailor's plan_config_N4_D2: 16 GH200, two stages, 64 samples, 1.60179 s."""
    plan = Pipeline(tuple(Stage(some, (Group(Pool("GH-96"), 4),)) for some in (range(12), range(12, LAYERS))), 2, 1)
    of = SailorSimulator.of(MEASURED)
    assert SailorSimulator(of.times, of.links, 64).seconds(plan) == pytest.approx(1.60179, rel=0.2)


def test_scenarios_with_both_answers_are_compared() -> None:
    scenario = Scenario("any", {POOL: 8}, "none")
    best, ours = Judged("any", BEST, "", 5.0, None), Judged("any", OURS, "", 5.5, 3.0, by_engine=6.0)
    (result,) = results_of([scenario], [best, ours])
    assert (result.by_sailor, result.unseen, result.is_behind) == (1.1, 1.2, True)
    assert results_of([scenario], [best]) == []
    (unknown,) = results_of([scenario], [Judged("any", BEST, "", 0.0, None, ended=False), ours])
    assert not unknown.is_compared
    assert not unknown.is_behind


def test_what_takes_too_long_is_given_up() -> None:
    def endless() -> int:
        while True:
            sum(range(1000))

    assert within(0.05, endless) is None
    assert within(60.0, lambda: 3) == 3


def test_an_answer_that_did_not_end_is_no_answer() -> None:
    row = ROWS[0]
    theirs, ours = (Answer(row.name, placer, 2.0, 1.0, True, 0.0, made="b") for placer in (row.plan, OURS))
    late = Answer(row.name, OURS, 0.0, 0.0, False, 600.0, ended=False, made="a")
    alone = Answer(row.name, SHARDED, 1.0, 1.0, True, 0.0)
    assert compared(ROWS, [theirs, late]) == []
    assert [each.ours for each in compared(ROWS, [theirs, late, alone])] == [alone]
    assert [each.ours for each in compared(ROWS, [theirs, ours, alone])] == [ours]
    other = Judged("any", OURS, "", 1.0, None, made="b")
    assert versions([theirs, ours, other, alone]) == [
        ("b", [f"Llama {row.name} (parallel, planner)", "Sailor's any (planner)"]), ("", [f"Llama {row.name} (fsdp)"]),
    ]  # fmt: skip


def test_answers_are_compared_in_the_engine_or_else_with_what_was_measured() -> None:
    theirs = (Theirs("any", "run", 4.0), Theirs("any", "measured", 5.0), Theirs("any", "modelled", 5.0, MODELLED))
    job = Job("any", "", "", JOBS[0].problem, theirs, "samples/s", 20.0)
    answer = JobAnswer("any", 3.0, True, ((2.0, True), None, None), 0.0)
    assert [each.ratio for each in job_rows([job], [answer])] == [1.5, 0.75, 0.0]
    assert [each.is_behind for each in job_rows([job], [answer])] == [True, False, False]
    lacking = JobAnswer("any", 3.0, True, ((2.0, False), None, None), 0.0)
    assert not job_rows([job], [lacking])[0].is_behind, "theirs does not fit"
    assert job.worth(job.seconds(5.0)) == 5.0


@pytest.mark.parametrize(
    "job", [job for job in JOBS if job.name.startswith(("galvatron", "helix"))], ids=lambda job: job.name
)
def test_published_plans_are_worth_about_as_much_in_the_engine(job: Job) -> None:
    problem = job.problem()
    for theirs in job.theirs:
        if theirs.placed:
            seconds, fits = job.judge(*theirs.placed(problem))
            assert fits
            assert job.worth(seconds) == pytest.approx(theirs.printed, rel=0.06)
            assert msgspec.json.encode((seconds, fits))


def test_moving_layers_away_from_the_output_layer_gains_what_torchtitan_measured() -> None:
    job = next(each for each in JOBS if each.name == "torchtitan-2048")
    problem = job.problem()
    moved, usual = (job.judge(*each.placed(problem))[0] for each in job.theirs if each.placed)
    assert usual / moved == pytest.approx(3348 / 2616, abs=0.03)


def test_a_step_of_the_profile_takes_as_long_as_its_ops() -> None:
    problem = aceso.problem()
    forward = sum(op[1] for op in (aceso.FIRST, *aceso.LAYER * aceso.LAYERS, *aceso.LAST))
    assert problem.graph.measured_seconds[:315].sum() == pytest.approx(forward * 1e-6 * 1024)


def test_a_plan_that_does_not_fit_is_behind_and_the_optimizers_state_is_divided() -> None:
    row = Row("8B", 32, 8192, 8, 1, 2, 1, 1, 32, "", "")
    theirs = Answer(row.name, row.plan, 2.0, 100.0, False, 0.0, weights=8.0)
    compared = Compared(row, theirs, Answer(row.name, OURS, 1.0, 1.0, True, 0.0))
    assert not compared.is_behind
    assert compared.their_peak == 100.0 - 12.0 * 8.0 * 7 / 8
    assert Compared(row, theirs, Answer(row.name, OURS, 1.0, 1.0, False, 0.0)).is_behind
    alone = Answer(row.name, SHARDED, 0.8, 1.0, True, 0.0)
    assert Compared(row, theirs, compared.ours, alone).missed == 1.25
    assert Compared(row, theirs, alone, alone).missed == compared.missed == 0.0


def test_degrees_of_each_row_are_its_gpus() -> None:
    assert all(row.dp * row.tp * row.cp * row.pp == row.gpus for row in ROWS)
    assert len({row.name for row in ROWS}) == len(ROWS) == 12


def test_a_study_of_published_plans_says_first_where_it_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluation.studies.published.recommended.SIZES", {"small": "width=32,heads=2,inner=48"})
    monkeypatch.setattr("evaluation.studies.published.recommended.VOCABULARY", 50)
    monkeypatch.setattr(published, "ROWS", [Row("small", 2, 8, 8, 2, 1, 2, 1, 2, "a source", "a key")])
    study = Published(out=tmp_path, budget=5)
    monkeypatch.setattr(published, "JOBS", [aceso.JOB])
    with pytest.raises(InputError, match="no published plan is compared yet"):
        Published(out=tmp_path, write_only=True).write()
    answer = tmp_path / "jobs" / PIECES / "aceso.json"
    answer.parent.mkdir(parents=True)
    answer.write_bytes(msgspec.json.encode(JobAnswer("aceso", 100.0, True, (None, None), 1.0, ("told so",), "a")))
    written = study.write().read_text()
    assert "answers are better on 0 of 1 row" in written
    assert written.count("told so") == 1
    assert "- a: aceso (planner)" in written
    assert "on 0 of 1 row" in written or "on 1 of 1 row" in written
    assert written.count("| Llama small |") == 1
    assert study.write().read_text() == written
    with pytest.raises(InputError, match=r"layers.csv is missing; --data is a folder with Sailor's"):
        Published(out=tmp_path, data=tmp_path).write()
