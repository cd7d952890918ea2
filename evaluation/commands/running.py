"""Running a plan in the user's own training loop. It is no verb of the command line: it takes and returns a module."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evaluation.commands.arguments import AUTO, as_declared, of_problem
from evaluation.commands.verb_signatures import unchecked
from graphs.foundation.code_in_files import code_allowed
from graphs.foundation.errors import InputError

# Imported late, in functions: what these need takes seconds to import, and the command line waits for this file.
if TYPE_CHECKING:
    from typing import Unpack

    from torch import device, nn

    from envs.plans.plan import Plan
    from envs.replay.replayed_forward import ReplayedForward
    from evaluation.commands.arguments import ClusterLike, GraphLike, LoopOptions, PlanLike, PlanOptions
    from evaluation.comparing.simulated_plan import SimulatedPlan
    from graphs.op_graph import Call
    from graphs.problem import Problem

    Model = TypeVar("Model", bound=nn.Module)

_log = logging.getLogger("placelab")


@unchecked
def parallelize(
    model: Model,
    plan: SimulatedPlan | PlanLike,
    *,
    devices: Sequence[str | int | device] | Mapping[str, str | int | device],
    graph: GraphLike | None = None,
    cluster: ClusterLike = "",
    batch: int | None = None,
    allow_code: bool = False,
    **options: Unpack[LoopOptions],
) -> Model:
    """Let a model run where a plan says, in any training loop; returns the same model, with the same `state_dict`.

    Its parameters and buffers are moved to the devices of the plan. From then on every call of a PyTorch function in
    its forward pass runs on the device that the plan gives it, on copies of what it reads elsewhere, and autograd
    sends gradients back. The optimizer, the loss, the batch, `eval()`, autocast, clipping and checkpointing are the
    user's. The outputs from which the plan computes the loss are on the device that it does that on.

    Args:
        model: the module that the plan was made for; a new one, or one with weights that were loaded.
        plan: what `place` or `simulate` returned; or a plan file, or a `Plan`, with the graph that it is for.
        devices: for each device of the cluster that which PyTorch is to use, such as ["cuda:0", "cuda:1"]; or by their
            names, {"gpu:0": "cuda:1"}. One may be given several times: what crosses is copied all the same.
        graph: what the plan is for, if that is a file or a `Plan`: as `place` takes it, or (model, example inputs).
        cluster: the cluster of such a plan, as `place` takes it.
        batch: samples of a step of such a plan, if it was made for another number than the model's own.
        defer_weight_gradients: in the backward pass, gradients of weights wait as long as gradients of inputs can be
            computed, for which others may wait; what they read is kept until then. As the plan was made for, or given.
        side_streams: copies between accelerators run in streams of their own, beside what both compute, and only what
            reads them waits; otherwise they hold up both. As the plan was made for, unless it is given.
        replay: example inputs, positional ones as a tuple or those by keyword as a dict: training steps are captured
            once, with these, and replayed in the plan's order, with copies in side streams. Every batch has their
            sizes. In `eval()` and `no_grad` the model's own code runs.
        cuda_graphs: on NVIDIA's and AMD's GPUs a replayed step launches CUDA graphs, which keep their memory between
            steps; otherwise its ops are called one by one. As the plan was made for, unless it is given.
        allow_code: run code that a plan file names as `FILE.py:function`, and print what runs, as `simulate` does.

    Raises InputError for a plan that is no op placement, for one of another model, for devices that it cannot use, and
    for a model whose step cannot be replayed.

    """
    from envs.placed_models.call_placement import on_calls
    from envs.placed_models.parallel import run_by_plan

    with code_allowed() if allow_code else nullcontext():
        made, decided = _given(plan, graph, cluster, batch)
    replay, defers, aside = options["replay"], options["defer_weight_gradients"], options["side_streams"]
    _check_loop(options)
    problem = in_loop(made, defer=defers, aside=replay is not None or aside)
    problem, rounded, moved = on_calls(problem, decided, model)
    replayed = None if replay is None else _replayed(model, replay, options["cuda_graphs"], made, decided)
    run = run_by_plan(model, problem, rounded, devices, replayed=replayed)
    ran = problem if replayed is None else replayed.problem
    if made.runtime != ran.runtime:
        _report_way(made, ran, decided)
    if moved and replayed is None:
        report_moves(problem, decided, rounded, moved)
    return run


def _check_loop(options: LoopOptions) -> None:
    """Raise InputError for options of a loop that has no use for them."""
    if options["replay"] is None and options["cuda_graphs"] is not None:
        raise InputError(
            "CUDA graphs are of a replayed step; give example inputs as `replay`, or leave out `cuda_graphs`"
        )
    if options["replay"] is not None and (options["defer_weight_gradients"], options["side_streams"]) != (None, None):
        raise InputError(
            "a replayed step keeps the plan's order, with copies in side streams; leave out `defer_weight_gradients` "
            "and `side_streams`"
        )


def _given(plan: Any, graph: GraphLike | None, cluster: ClusterLike, batch: int | None) -> tuple[Problem, Plan]:
    """The problem that a plan was made for, and the plan, that are meant."""
    from envs.files.plan_file import read_plan
    from envs.plans.placer_result import PlacerResult
    from evaluation.commands.given_plans import as_made
    from evaluation.commands.problems import problem_of
    from evaluation.comparing.simulated_plan import SimulatedPlan

    if isinstance(plan, SimulatedPlan):
        if graph is not None or cluster or batch is not None:
            raise InputError("this plan comes with its graph and its cluster; leave out `graph`, `cluster` and `batch`")
        made_for = plan.result.made_for
        return plan.problem if made_for is None else made_for.steps_as(plan.problem), plan.plan
    plan = as_declared("plan", plan, "PlanLike")
    if graph is None:
        raise InputError(
            "a plan alone does not say of which model's calls it is; give that, too, such as graph='my_model.py:model'"
        )
    saved = read_plan(plan) if isinstance(plan, Path) else None  # refused here if it is damaged
    groups = AUTO if saved is not None and saved.is_of_groups else None
    given = as_declared("graph", graph, "GraphLike"), as_declared("cluster", cluster, "ClusterLike")
    options: PlanOptions = {"groups": groups, "batch": as_declared("batch", batch, "int | None")}
    problem = problem_of(*given, **of_problem(as_made(options, plan if saved is None else saved)))
    found = plan if saved is None else saved.of(problem)
    decided = found.plan if isinstance(found, PlacerResult) else found
    decided.check(problem)
    return problem, decided


def _replayed(
    model: nn.Module, inputs: tuple[Any, ...] | Mapping[str, Any], graphs: bool | None, made: Problem, plan: Plan
) -> ReplayedForward:
    """The model's training step, by a plan that was made for replaying it, or for another way of running it."""
    from envs.replay.replayed_forward import ReplayedForward
    from envs.simulation.simulator import LaidOut
    from graphs.capture.examples import given_example
    from graphs.runtime import runtime_of

    runtime = made.runtime if made.runtime.replays else runtime_of("replay")
    if graphs is not None:
        runtime = runtime.with_knobs(graphs=str(graphs).lower())
    example = given_example((model, inputs), "replay", name=type(model).__name__)
    return ReplayedForward(example, LaidOut.of(replace(made, runtime=runtime), plan))


def in_loop(made: Problem, *, defer: bool | None = None, aside: bool | None = None) -> Problem:
    """A problem whose plan a loop runs: as it was made for if that was a loop, but for what is given."""
    from graphs.runtime import PROGRAM, loop_runtime

    runtime = made.runtime if made.runtime.streams else loop_runtime(made.graph, made.cluster)
    copies = runtime.copies if aside is None else "side" if aside else "barrier"
    defers = str(runtime.defer if defer is None else defer).lower()
    return replace(made, runtime=runtime.with_knobs(order=PROGRAM, defer=defers, copies=copies))


def _report_way(made: Problem, problem: Problem, plan: Plan) -> None:
    """Say that a plan was made for another way of running it than that of a problem, and what of its gain is kept."""
    from envs.simulation.simulator import simulate
    from evaluation.records.formatting import ratio, seconds, share
    from evaluation.tables.alone import fastest_alone

    problems = made, problem
    steps, alone = [simulate(each, plan).step_seconds for each in problems], [fastest_alone(each) for each in problems]
    told = [f"a step takes {seconds(each)}" for each in steps]
    kept = ""
    gains = [one.seconds / step for one, step in zip(alone, steps, strict=True) if one is not None]
    if len(gains) == len(steps):
        told = [f"{each}, {ratio(gain)} times as fast as one device" for each, gain in zip(told, gains, strict=True)]
        if gains[0] > 1:
            kept = f": {share(max(gains[1] - 1, 0) / (gains[0] - 1))} of that gain is left"
    _log.warning(
        "the plan was made for `%s`, where %s; in this loop, in %s order, %s%s (simulated); `runtime='%s'` plans for "
        "this loop", made.runtime.name, told[0], "PyTorch's" if problem.runtime.streams else "its own", told[1], kept,
        problem.runtime.name,
    )  # fmt: skip


def report_moves(problem: Problem, planned: Plan, run: Plan, moved: tuple[Call, ...]) -> None:
    """Say which calls do not run as planned, and what that costs."""
    from envs.simulation.simulator import simulate

    seconds, rounded = (simulate(problem, each).step_seconds for each in (planned, run))
    call = moved[0]
    one = f"{call.function!r} in {repr(call.module) if call.module else 'the model'}"
    what = f"{len(moved)} calls, such as {one}, do" if len(moved) > 1 else f"the call {one} does"
    _log.warning(
        "%s not run where the plan puts all of its ops: a call runs on one device, and one that changes a tensor in "
        "place on that of the tensor; simulated, a step takes %.4g s in place of %.4g s", what, rounded, seconds,
    )  # fmt: skip
