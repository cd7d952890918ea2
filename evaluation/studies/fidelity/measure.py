"""What all plans of a model take: predicted before and after calibration, and measured in rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from envs.costs.busy_machine import quiet_seconds
from envs.costs.costs import timed
from envs.costs.profile_file import Profile, save_profile
from envs.plans.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.measuring.link_fits import Line, calibrated
from envs.running.measuring.profiled_step import StepTimer, profile_steps
from envs.running.processes import ProcessError, Workers
from envs.running.training_job import Training
from envs.simulation.simulator import simulate
from evaluation.measuring.calibration import message_sample, pass_sample, runner_sample, spread_plan, uneven_pipeline
from evaluation.studies.fidelity.cases import cases
from evaluation.studies.pieces import PIECES, Pieces
from graphs.capture.op_calls import load_calls
from graphs.cluster import Cluster
from graphs.devices.cluster_file import save_cluster
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.problem import Problem

FORMS = {"plain": "before calibration", "calibrated": "after calibration"}
SINGLE, SPREAD, UNEVEN = "calibration: one device", "calibration: ops anywhere", "calibration: uneven stages"
STEPS = 12  # of a plan in a round; the first two do not count


class FidelityPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan."""

    name: str
    kind: str
    predicted: dict[str, float]  # seconds of a step, by one of the `FORMS`
    measured: tuple[float, ...]  # seconds of each step, round after round


class MeasuredModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All plans of a model."""

    model: str
    spec: str
    ops: int
    rounds: int
    processes: int
    machine: str
    plans: tuple[FidelityPlan, ...]
    refused: tuple[str, ...]  # plans that are not run, and why


def jobs(out: Path, models: dict[str, str], cluster: Path, rounds: int) -> Pieces:
    """A job per model."""
    return {
        out / PIECES / f"{rounds}-{name}.json": partial(measured, name, spec, cluster, out, rounds)
        for name, spec in models.items()
    }


def measured(name: str, spec: str, cluster: Path, out: Path, rounds: int) -> MeasuredModel:
    """Profile a model, make its plans, and run these in turns.

    A machine is faster at some times than at others. So in each round the ops are timed again, and the plans run by
    which the runner, messages and passes are calibrated: one device, and a placement and a pipeline that are not among
    the plans.
    """
    captured, times = load_calls(spec), times_file(out, name)
    times.unlink(missing_ok=True)
    profile_steps(spec, captured, times)
    given = problem_of(spec, load_cluster(str(cluster)), times)
    plans = {case.name: case.plan for case in cases(given)}
    calibrating = {SINGLE: Plan.of([0] * len(given.graph)), SPREAD: spread_plan(given)}
    if uneven := uneven_pipeline(given):
        calibrating[UNEVEN] = uneven
    with Workers(["cpu"] * len(given.cluster)) as workers:
        timer = StepTimer(workers, spec, captured)
        training, between = Training(spec, STEPS), partial(timer.run, STEPS)
        seconds, refused = in_turns(workers, training, given, plans | calibrating, rounds, between)
    save_profile(timer.extended(Profile(date="", machine=timer.machine, ops=[])), times)
    taken = {each: quiet_seconds(np.array(seconds.pop(each))) for each in calibrating}
    plain = problem_of(spec, plain_cluster(given.cluster), times)
    calibrated = fitted(name, plain, given.cluster, calibrating, taken)
    save_cluster(calibrated, calibrated_file(out, name))
    problems = {"plain": plain, "calibrated": replace(plain, cluster=calibrated)}
    return MeasuredModel(
        model=name, spec=spec, ops=len(given.graph), rounds=rounds, processes=len(given.cluster),
        machine=timer.machine.described(), refused=refused,
        plans=tuple(_plan(each, plans[each], problems, taken) for each, taken in seconds.items()),
    )  # fmt: skip


def fitted(name: str, problem: Problem, given: Cluster, plans: dict[str, Plan], taken: dict[str, float]) -> Cluster:
    """The cluster with the runner, the messages and the passes of a model.

    `plans` are those of calibration, without a pipeline if none can be run; `taken` are the seconds of their steps.
    """
    runner = [runner_sample(name, problem, 0, taken[SINGLE]).per_op] * len(given)
    lines = [Line(device.message_seconds, device.message_seconds_per_byte, 0.0) for device in given.devices]
    with_messages = partial(calibrated, given, {}, lines, runner)
    times = message_sample(name, problem, plans[SPREAD], taken[SPREAD], with_messages).times
    if UNEVEN not in plans:
        return with_messages(times)
    with_passes = partial(with_messages, times)
    return with_passes(pass_sample(name, problem, plans[UNEVEN], taken[UNEVEN], with_passes).per_pass)


def in_turns(
    workers: Workers, training: Training, problem: Problem, plans: dict[str, Plan], rounds: int,
    between: Callable[[], object] = lambda: None,
) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:  # fmt: skip
    """By plan the seconds of its steps that count, all plans being run in each round; and why others are not run.

    Something else may be done in each round as well.
    """
    taken: dict[str, tuple[float, ...]] = dict.fromkeys(plans, ())
    refused: dict[str, str] = {}
    for _ in progress(range(rounds), f"running {problem.graph.name}", unit="round"):
        between()
        for name in [each for each in plans if each not in refused]:
            try:
                run = run_plan(workers, training, problem, plans[name])
            except ProcessError:
                raise
            except InputError as error:
                refused[name] = f"{name}: {error}"
                del taken[name]
                continue
            taken[name] += tuple(run.counted.tolist())
    return taken, tuple(refused.values())


def plain_cluster(calibrated: Cluster) -> Cluster:
    """The same as links and ops alone describe it."""
    return calibrated.with_each_device(
        runner_seconds=0.0, message_seconds=0.0, message_seconds_per_byte=0.0, pass_seconds=0.0
    )


def problem_of(spec: str, cluster: Cluster, times: Path) -> Problem:
    """A model with the times of its ops in a profile."""
    return timed(Problem(load_graph(spec, with_law=True), cluster), f"profiled:file={times}")


def times_file(out: Path, model: str) -> Path:
    """Where the profile of a model is, in the study's folder."""
    return out / f"{model}.profile.json"


def calibrated_file(out: Path, model: str) -> Path:
    """Where the cluster is that was calibrated with a model."""
    return out / f"{model}.cluster.toml"


def _plan(name: str, plan: Plan, problems: dict[str, Problem], taken: tuple[float, ...]) -> FidelityPlan:
    predicted = {form: simulate(problems[form], plan).step_seconds for form in FORMS}
    return FidelityPlan(name=name, kind=_kind(plan), predicted=predicted, measured=taken)


def _kind(plan: Plan) -> str:
    if plan.is_placement:
        return "op placement"
    return "pipeline" if plan.schedule.micro_batches > 1 else "data parallelism"
