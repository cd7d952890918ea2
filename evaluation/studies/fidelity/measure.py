"""What all plans of a model take: predicted before and after calibration, and measured in rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from envs.costs.costs import timed
from envs.costs.profile_file import Profile, save_profile
from envs.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import ProcessError, Workers
from envs.running.profiled_step import StepTimer, profile_steps
from envs.running.training_job import Training
from envs.simulation.simulator import simulate
from evaluation.studies.fidelity.cases import cases
from evaluation.studies.pieces import PIECES, SavedJob
from graphs.capture.op_calls import load_calls
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem

FORMS = {"plain": "before calibration", "calibrated": "after calibration"}
TIMES = "ops.profile.json"
STEPS = 12  # of a plan in a round; the first two do not count


class MeasuredPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    plans: tuple[MeasuredPlan, ...]
    refused: tuple[str, ...]  # plans that are not run, and why


def jobs(out: Path, models: dict[str, str], cluster: Path, rounds: int) -> list[SavedJob]:
    """A job per model."""
    return [
        SavedJob(out / PIECES / f"{rounds}-{name}.json", partial(measured, name, spec, cluster, out, rounds))
        for name, spec in models.items()
    ]


def measured(name: str, spec: str, cluster: Path, out: Path, rounds: int) -> MeasuredModel:
    """Profile a model, make its plans, and run these in turns; in each round its ops are timed again."""
    captured, times = load_calls(spec), out / TIMES
    times.unlink(missing_ok=True)
    profile_steps(spec, captured, times)
    calibrated, _ = _problems(spec, cluster, out)
    plans = {case.name: case.plan for case in cases(calibrated)}
    with Workers(["cpu"] * len(calibrated.cluster)) as workers:
        timer = StepTimer(workers, spec, captured)
        training, between = Training(spec, STEPS), partial(timer.run, STEPS)
        seconds, refused = in_turns(workers, training, calibrated, plans, rounds, between)
    save_profile(timer.extended(Profile(date="", machine=timer.machine, ops=[])), times)
    problems = _problems(spec, cluster, out)
    return MeasuredModel(
        model=name, spec=spec, ops=len(calibrated.graph), rounds=rounds, processes=len(calibrated.cluster),
        machine=timer.machine.described(), refused=refused,
        plans=tuple(_plan(each, plans[each], problems, taken) for each, taken in seconds.items()),
    )  # fmt: skip


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


def clusters(path: Path) -> tuple[Cluster, Cluster]:
    """The calibrated cluster, and the same as links and ops alone describe it."""
    calibrated = load_cluster(str(path))
    devices = tuple(
        replace(device, runner_seconds=0.0, message_seconds=0.0, message_seconds_per_byte=0.0)
        for device in calibrated.devices
    )
    return calibrated, replace(calibrated, devices=devices)


def problem_of(spec: str, cluster: Cluster, out: Path) -> Problem:
    """A model with the times of its ops, which are profiled in the study's folder."""
    return timed(Problem(load_graph(spec, with_law=True), cluster), f"profiled:file={out / TIMES}")


def _problems(spec: str, cluster: Path, out: Path) -> tuple[Problem, Problem]:
    """The model on the calibrated cluster, and without what calibration adds."""
    calibrated, plain = (problem_of(spec, each, out) for each in clusters(cluster))
    return calibrated, plain


def _plan(name: str, plan: Plan, problems: tuple[Problem, Problem], taken: tuple[float, ...]) -> MeasuredPlan:
    calibrated, plain = (simulate(problem, plan).step_seconds for problem in problems)
    predicted = {"plain": plain, "calibrated": calibrated}
    return MeasuredPlan(name=name, kind=_kind(plan), predicted=predicted, measured=taken)


def _kind(plan: Plan) -> str:
    if plan.is_placement:
        return "op placement"
    return "pipeline" if plan.schedule.micro_batches > 1 else "data parallelism"
