"""What all plans of a model take: predicted before and after calibration, and measured in rounds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from envs.costs.costs import timed
from envs.costs.profile_file import load_profile
from envs.costs.profiling import profile
from envs.costs.timing import torch_threads
from envs.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import ProcessError, Workers
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
STEPS = 5  # of a plan in a round; the first two do not count


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
    """Profile a model, and run its plans in turns."""
    with torch_threads(1):
        profile(load_calls(spec), out / TIMES, device="cpu")
    calibrated, plain = (problem_of(spec, each, out) for each in clusters(cluster))
    plans = {case.name: case.plan for case in cases(calibrated)}
    with Workers(["cpu"] * len(calibrated.cluster)) as workers:
        seconds, refused = in_turns(workers, Training(spec, STEPS), calibrated, plans, rounds)
    return MeasuredModel(
        model=name, spec=spec, ops=len(calibrated.graph), rounds=rounds, processes=len(calibrated.cluster),
        machine=load_profile(out / TIMES).machine.described(), refused=refused,
        plans=tuple(_plan(each, plans[each], plain, calibrated, taken) for each, taken in seconds.items()),
    )  # fmt: skip


def in_turns(
    workers: Workers, training: Training, problem: Problem, plans: dict[str, Plan], rounds: int
) -> tuple[dict[str, tuple[float, ...]], tuple[str, ...]]:
    """By plan the seconds of its steps that count, all plans being run in each round; and why others are not run."""
    taken: dict[str, tuple[float, ...]] = dict.fromkeys(plans, ())
    refused: dict[str, str] = {}
    for _ in progress(range(rounds), f"running {problem.graph.name}", unit="round"):
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


def _plan(name: str, plan: Plan, plain: Problem, calibrated: Problem, taken: tuple[float, ...]) -> MeasuredPlan:
    seconds = (simulate(problem, plan).step_seconds for problem in (plain, calibrated))
    return MeasuredPlan(name=name, kind=_kind(plan), predicted=dict(zip(FORMS, seconds, strict=True)), measured=taken)


def _kind(plan: Plan) -> str:
    if plan.is_placement:
        return "op placement"
    return "pipeline" if plan.schedule.micro_batches > 1 else "data parallelism"
