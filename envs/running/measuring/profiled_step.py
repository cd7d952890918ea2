"""A profile of whole steps: a model is trained op by op on one device, and what each op took there is kept.

An op that is run again and again by itself finds what it reads in a cache, and memory to write to that is in use
already. In a step neither is so, and on a processor ops take tens of percent longer than by themselves.

What an op takes in a step includes what it costs to run any op, which is not the op's, but the runner's. So the time of
the smallest op of the same phase in the same process is subtracted. `placelab calibrate` finds it again, in what a step
takes longer than all its ops.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from msgspec.structs import replace as with_

from envs.costs.busy_machine import BusyGuard, undisturbed
from envs.costs.profile_file import MeasuredOp, Profile, ProfiledMachine, save_profile
from envs.costs.profiling import earlier_profile, for_graph, key_of
from envs.plans.plan import Plan
from envs.running.measuring.link_speeds import machine, reference_seconds
from envs.running.measuring.op_overhead import SPEC
from envs.running.processes import LIMIT, Workers
from envs.running.training_job import Training, TrainingJob
from envs.running.ways import check_can_run, step_of
from graphs.capture.op_calls import CapturedCalls, DistinctOp, distinct_ops, load_calls
from graphs.cluster import Cluster
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.op_graph import Floats, OpGraph, Phase
from graphs.problem import Problem

FIRST = 4  # steps of a round that do not count: they also load, allocate and fill caches
ROUNDS = 4  # what disturbs one of them need not disturb the others
SMALLEST_STEPS = 40

_log = logging.getLogger("placelab")


class StepTimer:
    """Times the ops of a model in its own steps, on the first device, a round after another."""

    def __init__(self, workers: Workers, model: str, captured: CapturedCalls, limit: float = LIMIT) -> None:
        """Raises InputError for a model that cannot be run op by op."""
        self._workers, self._limit, self._captured = workers, limit, captured
        self._machine = workers.run(machine, limit=limit)[0]
        self._smallest = self._of_phases()
        self._job = self._training(model, captured.graph)
        self._spans: list[Floats] = []  # of each step, (ops,) seconds

    @property
    def machine(self) -> ProfiledMachine:
        """The device."""
        return self._machine

    def run(self, steps: int) -> None:
        """Run `steps` measured steps. Raises ProcessError if they do not fit in memory, or exceed the limit."""
        self._spans += self._timed(self._job, steps)

    def extended(self, earlier: Profile) -> Profile:
        """A profile with what it does not hold, timed in the quietest quarter of all steps."""
        captured, quiet = self._captured, _quiet(self._spans)
        seconds = np.maximum(quiet - self._smallest[captured.graph.phase], 0.0) + self._machine.launch_seconds
        profile = for_graph(earlier, captured.graph.name, distinct_ops(captured))
        held, ops = {key_of(op) for op in profile.ops}, list(profile.ops)
        number = {name: op for op, name in enumerate(captured.graph.names)}
        for op in distinct_ops(captured):
            if key_of(op) not in held:
                of_steps = seconds[:, [number[name] for name in op.names]].mean(axis=1)
                ops.append(_measured(op, of_steps, captured.graph.name))
        return with_(profile, date=datetime.now(UTC).isoformat(timespec="seconds"), ops=ops)

    def _training(self, model: str, graph: OpGraph) -> TrainingJob:
        cluster = Cluster.uniform("one device", self._machine.device(), 1, latency=0, bandwidth=1, shared_out=False)
        problem, plan = Problem(graph, cluster), Plan.of([0] * len(graph))
        check_can_run(problem, plan)
        return TrainingJob(Training(model, FIRST), problem, plan, step_of)

    def _timed(self, job: TrainingJob, steps: int) -> list[Floats]:
        """Of each step, (ops,) seconds."""
        job = replace(job, training=replace(job.training, steps=FIRST + steps))
        found = []
        for step in self._workers.run(job, limit=self._limit)[0].steps[FIRST:]:
            seconds = np.zeros(len(job.problem.graph))
            for op, start, finish in step.record.spans:
                seconds[op] = finish - start
            found.append(seconds)
        return found

    def _of_phases(self) -> Floats:
        """(phases,) seconds of the smallest op of each phase; 0 where the smallest model has none."""
        graph = load_calls(SPEC).graph
        seconds = _quiet(self._timed(self._training(SPEC, graph), SMALLEST_STEPS)).mean(axis=0)
        phases = [seconds[graph.phase == phase] for phase in Phase]
        return np.array([np.median(ops) if len(ops) else 0.0 for ops in phases])


def profile_steps(
    model: str, captured: CapturedCalls, out: Path, *, steps: int = 20, device: str = "cpu", limit: float = LIMIT
) -> Profile:
    """Train a model on a torch device, and keep in a file what its distinct ops take on average in a step.

    Of the steps the quietest quarter counts. A file that exists is extended: ops that it holds keep their times. A
    warning says if the machine was busy with something else. Raises InputError for a model that cannot be run op by op,
    a file of another machine or of ops that were run alone, and less than one step; ProcessError for a model that does
    not fit in memory, or whose steps take longer than the limit, in seconds.
    """
    if steps < 1:
        raise InputError(f"repeats is {steps}; expected at least 1")
    with Workers([device]) as workers:
        guard = BusyGuard(lambda: workers.run(reference_seconds, limit=limit))
        guard.look()
        timer = StepTimer(workers, model, captured, limit)
        earlier = earlier_profile(out, timer.machine, in_step=True)
        rounds = [len(part) for part in np.array_split(np.arange(steps), min(ROUNDS, steps))]
        for count in progress(rounds, f"running {captured.graph.name}", unit="round"):
            timer.run(count)
        guard.look()
    profile = timer.extended(earlier)
    save_profile(profile, out)
    if warning := guard.warning(f"end other programs, remove {out} and profile again"):
        _log.warning(warning)
    return profile


def _quiet(spans: Sequence[Floats]) -> Floats:
    """(steps that count, ops) seconds."""
    rows = np.array(spans)
    quiet: Floats = rows[undisturbed(rows.sum(axis=1))]
    return quiet


def _measured(op: DistinctOp, seconds: Floats, graph: str) -> MeasuredOp:
    """An op of a graph, from (steps,) seconds, launch included."""
    low, median, high = np.percentile(seconds, [25, 50, 75])
    return MeasuredOp(
        kind=op.call.kind, signature=op.call.signature, flops=op.flops, bytes_accessed=op.bytes_accessed,
        seconds=float(seconds.mean()), spread=float((high - low) / median), repeats=len(seconds), how="in_step",
        ops={graph: list(op.names)},
    )  # fmt: skip
