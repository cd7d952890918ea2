"""Profiles of whole steps, what counts of repeated measurements, and how profiled times change with the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.costs.busy_machine import quiet_seconds, undisturbed
from envs.costs.cost_models.roofline import Roofline
from envs.costs.costs import timed
from envs.costs.profile_file import Profile, ProfiledMachine, load_profile
from envs.costs.profiling import profile
from envs.costs.timing import torch_threads
from envs.expansion.shares import shared
from envs.running.measured_timeline import RecordedStep
from envs.running.measuring.op_overhead import SPEC
from envs.running.measuring.profiled_step import StepTimer, profile_steps
from envs.running.process_memory import Growth
from envs.running.processes import Workers
from envs.running.running_step import Span, StepRecord
from envs.running.training_job import TrainedSteps, TrainingJob
from graphs.capture.op_calls import CapturedCalls, distinct_ops, load_calls
from graphs.cluster import Cluster
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from graphs.problem import Problem

TWO_TOWERS = f"{Path(__file__).parents[2] / 'fixtures' / 'user_module.py'}:two_towers"


@pytest.fixture(scope="module")
def captured() -> CapturedCalls:
    return load_calls(TWO_TOWERS)


@pytest.fixture(scope="module")
def measured(captured: CapturedCalls, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of steps of the two towers."""
    path = tmp_path_factory.mktemp("profiles") / "steps.profile.json"
    profile_steps(TWO_TOWERS, captured, path, steps=2)
    return path


def test_ops_are_timed_in_whole_steps(captured: CapturedCalls, measured: Path) -> None:
    found = load_profile(measured)
    assert {op.how for op in found.ops} == {"in_step"}
    assert [op.signature for op in found.ops] == [op.call.signature for op in distinct_ops(captured)]
    assert found.machine.threads == 1
    assert all(op.seconds >= found.machine.launch_seconds for op in found.ops)
    assert not np.isnan(found.seconds(captured.graph)).any()


def test_ops_that_are_in_a_profile_keep_their_times(captured: CapturedCalls, measured: Path) -> None:
    before = load_profile(measured)
    assert profile_steps(TWO_TOWERS, captured, measured, steps=1).ops == before.ops
    with torch_threads(1), pytest.raises(InputError, match="ops that were run in whole steps; choose another file"):
        profile(captured, measured, repeats=1, device="cpu")


MACHINE = ProfiledMachine(
    name="", kind="cpu", torch="", threads=1, flops_per_second=1.0, bytes_per_second=1.0, memory_bytes=1.0,
    launch_seconds=0.25, autograd_seconds=0.0,
)  # fmt: skip


class PretendedWorkers:
    """A process in which every op of the smallest model takes a second, and op i of any other i / 2 seconds."""

    def run(self, job: TrainingJob | Callable[..., Any], limit: float) -> list[Any]:
        if not isinstance(job, TrainingJob):
            return [MACHINE]
        ops = np.arange(len(job.problem.graph))
        seconds = np.ones(len(ops)) if job.training.model == SPEC else ops / 2
        record = StepRecord([Span(op, 10.0, 10.0 + taken) for op, taken in enumerate(seconds.tolist())])
        return [TrainedSteps(None, [RecordedStep(0.0, 0.0, 0.0, record)] * job.training.steps, Growth(0.0, 0.0), None)]


def test_of_what_an_op_takes_in_a_step_the_smallest_op_is_subtracted(captured: CapturedCalls) -> None:
    timer = StepTimer(cast(Workers, PretendedWorkers()), TWO_TOWERS, captured)
    timer.run(3)
    number = captured.graph.names.index
    for op in timer.extended(Profile(date="", machine=MACHINE, ops=[])).ops:
        taken = [0.25 + max(number(name) / 2 - 1.0, 0.0) for name in op.ops[captured.graph.name]]
        assert op.seconds == pytest.approx(np.mean(taken))


def test_no_steps_are_refused(captured: CapturedCalls, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="repeats is 0"):
        profile_steps(TWO_TOWERS, captured, tmp_path / "steps.profile.json", steps=0)


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=40))
def test_the_quietest_quarter_counts(seconds: list[float]) -> None:
    taken = np.array(seconds)
    chosen = undisturbed(taken)
    assert len(chosen) == max(round(len(seconds) / 4), 1)
    assert taken[chosen].max() <= np.delete(taken, chosen).min(initial=np.inf)
    assert quiet_seconds(taken) == pytest.approx(np.sort(taken)[: len(chosen)].mean())


def test_profiled_times_of_a_part_of_the_batch_change_as_the_roofline_does(measured: Path) -> None:
    machine = load_profile(measured).machine.device()
    cluster = Cluster.uniform("one", machine, 1, latency=0.0, bandwidth=1.0, shared_out=False)
    whole = timed(Problem(load_graph(TWO_TOWERS, with_law=True), cluster), f"profiled:file={measured}")
    part = shared(whole, 0.25)
    assert whole.op_seconds is not None
    assert part.op_seconds is not None
    before, after = (
        Roofline().costs(replace(each, op_seconds=None)).op_seconds[:, 0] for each in (whole, part)
    )  # fmt: skip
    timed_ops = (before > 0) & (whole.op_seconds[:, 0] > 0)
    ratio = part.op_seconds[timed_ops, 0] / whole.op_seconds[timed_ops, 0]
    assert ratio == pytest.approx(after[timed_ops] / before[timed_ops])
    computing = whole.graph.phase[timed_ops] < Phase.UPDATE
    assert (ratio[computing] >= 0.25 - 1e-9).all()
    assert (ratio[computing] > 0.26).any()  # weights are read whole
    assert ratio[~computing] == pytest.approx(1.0)
