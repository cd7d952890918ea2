"""What processes record of a step becomes a Timeline; records of the simulated times give the simulated step."""

import numpy as np
import pytest
from hypothesis import given

from envs.running.measured_timeline import RecordedStep, measured_timeline
from envs.running.running_step import Message, Span, StepRecord
from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.op_graph import Bools
from graphs.problem import Problem
from tests.oracle.strategies import Case, cases
from tests.oracle.toys import toy_cluster, toy_graph

LATER = 1024.0  # on the clock of the processes


def simulated(case: Case) -> Timeline:
    return Simulator(case.problem, order=case.order).timeline(case.placements[0])


def recorded(line: Timeline, ops: Bools, transfers: Bools) -> list[RecordedStep]:
    """The simulated times of some ops and transfers, as the processes would have recorded them."""
    moved, processes = line.transfers, []
    for device in range(len(line.problem.cluster)):
        spans = [
            Span(op, LATER + float(line.start[op]), LATER + float(line.finish[op]))
            for op in np.flatnonzero(ops & (line.placement == device)).tolist()
        ]
        messages = [
            Message(
                int(moved.output[k]), int(moved.source[k]), device, 0, LATER + float(moved.start[k]),
                LATER + float(moved.finish[k]),
            )
            for k in np.flatnonzero(transfers & (moved.destination == device)).tolist()
        ]  # fmt: skip
        processes.append(RecordedStep(LATER, LATER + line.step_seconds, 0.0, StepRecord(spans, messages)))
    return processes


@given(cases())
def test_records_of_the_simulated_times_are_the_simulated_step(case: Case) -> None:
    line = simulated(case)
    every = np.ones(len(line.placement), np.bool_), np.ones(len(line.transfers), np.bool_)
    found = measured_timeline(line, recorded(line, *every))
    assert found.start == pytest.approx(line.start, abs=1e-9)
    assert found.finish == pytest.approx(line.finish, abs=1e-9)
    assert found.transfers.finish == pytest.approx(line.transfers.finish, abs=1e-9)
    assert sorted(zip(found.transfers.output, found.transfers.destination, strict=True)) == sorted(
        zip(line.transfers.output, line.transfers.destination, strict=True)
    )
    assert found.step_seconds == pytest.approx(line.step_seconds)


@given(cases())
def test_what_was_not_recorded_fits_between_what_was(case: Case) -> None:
    line = simulated(case)
    took_time = line.finish > line.start
    found = measured_timeline(line, recorded(line, took_time, np.zeros(len(line.transfers), np.bool_)))
    graph, moved = line.problem.graph, found.transfers
    producer, consumer = graph.edges.T
    assert not np.isnan(found.start).any()
    assert (found.start[consumer] >= found.finish[producer] - 1e-9).all()
    assert (moved.finish >= moved.start).all()
    assert (moved.start >= found.finish[moved.producer] - 1e-9).all()
    assert (found.finish <= found.step_seconds + 1e-9).all()
    assert (found.busy_seconds <= found.step_seconds + 1e-9).all()
    assert [found.peak(device).total for device in range(len(line.problem.cluster))] == found.peak_bytes.tolist()


def test_an_op_in_pieces_lasts_from_the_first_to_the_last_and_several_messages_are_one_transfer() -> None:
    line = Simulator(Problem(toy_graph([1, 1], [(0, 1)]), toy_cluster(2))).timeline([0, 1])
    first = StepRecord([Span(0, 1.0, 1.5), Span(0, 2.0, 2.5)])
    second = StepRecord([Span(1, 5.0, 6.0)], [Message(0, 0, 1, 4, 2.5, 3.0), Message(0, 0, 1, 4, 2.75, 4.0)])
    found = measured_timeline(line, [RecordedStep(0.5, 2.75, 0.0, first), RecordedStep(0.75, 7.0, 0.0, second)])
    assert (found.start.tolist(), found.finish.tolist()) == ([0.5, 4.5], [2.0, 5.5])
    assert (found.transfers.start.tolist(), found.transfers.finish.tolist()) == ([2.0], [3.5])
    assert found.step_seconds == 6.5
    assert "gpu:0" in found.draw()
