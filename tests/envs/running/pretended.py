"""A step that computes nothing: its ops pass messages in the simulated order, and the loss counts what arrived."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor, distributed
from torch.distributed import Work

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.captured_program import CapturedProgram
from envs.running.processes import Process
from envs.running.running_step import Message, RunningStep, Span, StepRecord
from envs.simulation.simulator import LaidOut
from graphs.problem import Problem


class PretendedStep:
    """Of every op that takes time there is a record; each message is the number of its transfer."""

    def __init__(self, laid: LaidOut, rank: int) -> None:
        self.laid, self._rank = laid, rank
        self._timeline = laid.simulator().timeline(laid.placement)

    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        line, moved = self._timeline, self._timeline.transfers
        began, arrived = time.perf_counter(), 0.0
        mine = sorted((line.placement == self._rank).nonzero()[0].tolist(), key=lambda op: (line.start[op], op))
        coming = {
            int(number): (box := torch.zeros(1), distributed.irecv(box, int(moved.source[number]), tag=int(number)))
            for number in (moved.destination == self._rank).nonzero()[0].tolist()
        }
        readers = {number: int(moved.output[number]) for number in coming}
        sent = []
        for op in mine:
            reads = set(line.problem.graph.edges[line.problem.graph.edges[:, 1] == op, 0].tolist())
            for number in [number for number, output in readers.items() if output in reads]:
                box, work = coming[number]
                _wait(work)
                arrived += float(box == number)
                del readers[number]
                if record is not None:
                    record.messages.append(
                        Message(
                            int(moved.output[number]),
                            int(moved.source[number]),
                            self._rank,
                            4,
                            began,
                            time.perf_counter(),
                        )
                    )
            start = time.perf_counter()
            if record is not None and line.finish[op] > line.start[op]:
                record.spans.append(Span(op, start, time.perf_counter()))
            for number in ((moved.source == self._rank) & (moved.output == op)).nonzero()[0].tolist():
                sent.append(
                    distributed.isend(torch.full((1,), float(number)), int(moved.destination[number]), tag=number)
                )
        for work in sent:
            _wait(work)
        return arrived

    def weights(self) -> Mapping[str, Tensor]:
        return {"weight": torch.ones(2)}

    def gradients(self) -> Mapping[str, Tensor]:
        return {"weight": torch.full((2,), float(self._rank))}

    def buffers(self) -> Mapping[str, Tensor]:
        return {}


def pretended(program: CapturedProgram, problem: Problem, plan: Plan, process: Process, adam: Adam) -> RunningStep:
    return PretendedStep(LaidOut.of(problem, plan), process.rank)


def _wait(work: Work | None) -> None:
    assert work is not None
    work.wait()
