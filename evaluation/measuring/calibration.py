"""Calibration: what links, issuing ops and running cost on this machine, measured by processes.

There is one for each device. Of processors and GPUs together it is one for each GPU, which measures its copies from and
to the processor itself: what runs a plan on both is one process.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.text import Text
from scipy.optimize import brentq

from envs.costs.busy_machine import BusyGuard, quiet_seconds
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.measuring.copy_speeds import MeasureCopies, MeasureProcessor, TwoWayTimes
from envs.running.measuring.host_times import MODELS, MeasureHost
from envs.running.measuring.link_fits import WHILE_COMPUTED, WHILE_WAITED, Line, Pair, calibrated, fitted, with_links
from envs.running.measuring.link_speeds import SIZES, MeasurePair, machine, reference_seconds
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.running.ways import check_can_run
from envs.simulation.simulator import simulate
from evaluation.records.formatting import numbers, ratio, seconds, share, table
from evaluation.records.printed import Printed
from graphs.cluster import Cluster
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress
from graphs.host import SECONDS, Host
from graphs.op_graph import Floats
from graphs.problem import Problem

MEGABYTE = 1e6
TIMES = 0.2, 10.0  # as much as between processes that do nothing else messages may cost in a step
SEED = 4  # of the placement by which messages are calibrated
MICRO_BATCHES = 4, 3, 2  # of the pipeline by which passes are calibrated: the first that divides the samples
LONGEST_PASS = 1.0  # seconds that running may add to a pass
REMEDY = "end other programs and calibrate again"


class RunnerSample(NamedTuple):
    """A step of a model on one device, as it was simulated and as it took."""

    model: str
    device: int
    ops: int  # after which the device is held before the step ends
    predicted: float  # seconds, with no runner
    measured: float  # seconds, of the quietest of several steps

    @property
    def per_op(self) -> float:
        """Seconds that running adds to each op; 0 where the step was not slower than predicted."""
        return max((self.measured - self.predicted) / max(self.ops, 1), 0.0)


class MessageSample(NamedTuple):
    """A step of a model whose ops are spread over all devices, and what messages must cost for it to take as long."""

    model: str
    messages: int
    predicted: float  # seconds, with messages that cost what they do while processes compute little
    measured: float  # seconds, of the quietest of several steps
    times: float  # as much as that they cost here


class PassSample(NamedTuple):
    """A step of a model by a pipeline, and what each pass must take longer than its ops for it to take as long."""

    model: str
    passes: int  # of all stages, forward and backward
    predicted: float  # seconds, with passes that take what their ops do
    measured: float  # seconds, of the quietest of several steps
    per_pass: float  # seconds


def runner_sample(model: str, problem: Problem, device: int, measured: float) -> RunnerSample:
    """What a step on one device, which took the measured seconds, says of the runner."""
    bare = replace(problem, cluster=problem.cluster.with_each_device(runner_seconds=0.0))
    predicted = simulate(bare, Plan.of([device] * len(problem.graph)))
    held = int((predicted.finish > predicted.start).sum()) - 1
    return RunnerSample(model, device, held, predicted.step_seconds, measured)


def spread_plan(problem: Problem) -> Plan:
    """Units on devices that are drawn, always the same for a problem."""
    random = np.random.default_rng(SEED)
    return Plan.of_units(problem, random.integers(len(problem.cluster), size=problem.graph.num_units))


def message_sample(
    model: str, problem: Problem, plan: Plan, measured: float, cluster: Callable[[float], Cluster]
) -> MessageSample:
    """What a step by a plan, which took the measured seconds, says of messages.

    `cluster` gives the cluster whose messages cost the given multiple.
    """

    def predicted(times: float) -> float:
        return simulate(replace(problem, cluster=cluster(times)), plan).step_seconds

    times = _where(predicted, measured, *TIMES, tolerance=0.01)
    transfers = len(simulate(problem, plan).transfers)
    return MessageSample(model, transfers, predicted(1.0), measured, times)


def uneven_pipeline(problem: Problem) -> Plan | None:
    """A pipeline through all devices, by the schedule of GPipe, each of whose stages has more work than the one before.

    None for a model that is not run so, as one whose samples cannot be divided, or which is one layer.
    """
    devices, samples = len(problem.cluster), problem.graph.samples
    micro_batches = next((count for count in MICRO_BATCHES if samples > 0 and samples % count == 0), 0)
    layers = Layers.of(problem, problem.graph.num_units)
    if not micro_batches or not 1 < devices <= len(layers):
        return None
    work = np.cumsum(layers.forward + layers.backward + layers.forward_fixed + layers.backward_fixed)
    shares = np.cumsum(np.arange(1, devices)) / (devices * (devices + 1) / 2)
    ends = np.searchsorted(work, shares * work[-1]) + 1
    ends = np.clip(np.maximum.accumulate(ends), np.arange(1, devices), len(layers) - np.arange(devices - 1, 0, -1))
    bounds = [0, *ends.tolist(), len(layers)]
    stages = tuple(LayerStage(*pair, (device,)) for device, pair in enumerate(pairwise(bounds)))
    plan = LayerPipeline(stages, micro_batches, "gpipe").plan(problem, layers)
    try:
        check_can_run(problem, plan)
    except InputError:
        return None
    return plan


def pass_sample(
    model: str, problem: Problem, plan: Plan, measured: float, cluster: Callable[[float], Cluster]
) -> PassSample:
    """What a step by a pipeline, which took the measured seconds, says of its passes.

    `cluster` gives the cluster whose passes take the given seconds longer than their ops.
    """

    def predicted(per_pass: float) -> float:
        return simulate(replace(problem, cluster=cluster(per_pass)), plan).step_seconds

    per_pass = _where(predicted, measured, 0.0, LONGEST_PASS, tolerance=1e-6)
    passes = 2 * plan.schedule.micro_batches * len(set(plan.schedule.stages))
    return PassSample(model, passes, predicted(0.0), measured, per_pass)


def _where(predicted: Callable[[float], float], measured: float, least: float, most: float, tolerance: float) -> float:
    """Where a prediction, which grows, is what was measured, or the end that is closer to it."""
    if predicted(least) >= measured:
        return least
    if predicted(most) <= measured:
        return most
    return float(brentq(lambda each: predicted(each) - measured, least, most, xtol=tolerance))


def least_wrong(runs: Sequence[RunnerSample]) -> float:
    """Seconds per op with which the sum of the relative errors of predicted steps, in absolute value, is least.

    That is a weighted median: a model of short ops says more of the runner than one whose ops take long themselves.
    """
    ordered = sorted(runs, key=lambda run: run.per_op)
    weights = np.cumsum([run.ops / run.measured for run in ordered])
    return ordered[int(np.searchsorted(weights, weights[-1] / 2))].per_op


@dataclass(frozen=True, eq=False)
class Calibration(Printed):
    """What was measured, and the cluster with it."""

    given: Cluster
    one_way: Mapping[Pair, Line]  # what a message takes between two idle processes
    messages: Sequence[Line]  # (devices,) processor time of a message, sent or received
    runs: Sequence[RunnerSample]  # of every model on every device; empty without models
    spread: Sequence[MessageSample]  # of every model; empty without models, and for one device
    passes: Sequence[PassSample]  # of every model that is run as a pipeline; likewise
    host: Host  # what issuing costs a thread of a plain loop
    warning: str  # that the machine was busy with something else; empty if it was not
    copies: Mapping[Pair, TwoWayTimes] = field(default_factory=dict)  # by processor and GPU, where one process has both

    @property
    def runner_seconds(self) -> list[float]:
        """(devices,) seconds per op with which the models' predicted steps are least wrong; empty without models."""
        by_device = [[run for run in self.runs if run.device == each] for each in range(len(self.given))]
        return [least_wrong(runs) for runs in by_device] if self.runs else []

    @property
    def times(self) -> float:
        """How many times as much messages cost in a step: the median over the models; 1 without models."""
        return float(np.median([each.times for each in self.spread])) if self.spread else 1.0

    @property
    def per_pass(self) -> float:
        """Seconds that running adds to each pass of a pipeline: the median over the models; 0 without models."""
        return float(np.median([each.per_pass for each in self.passes])) if self.passes else 0.0

    @property
    def cluster(self) -> Cluster:
        """The given cluster with what was measured."""
        found = calibrated(self.given, self.one_way, self.messages, self.runner_seconds, self.times, self.per_pass)
        found = replace(found, hosts={**self.given.hosts, self.host.name: self.host})
        pageable = {(source, target): line for source, target, memory, line in self._copied() if memory == "pageable"}
        return with_links(found, pageable)  # as the tensors of a model are

    def _copied(self) -> list[tuple[int, int, str, Line]]:
        """Source, destination, in which memory the processor has the tensor, and what copies take."""
        return [
            (*pair, memory, line)
            for (processor, gpu), copies in self.copies.items()
            for pair, times in (((processor, gpu), copies.to_gpu), ((gpu, processor), copies.from_gpu))
            for memory, line in times._asdict().items()
        ]

    def to_json(self) -> dict[str, object]:
        """As a record."""
        names = [device.name for device in self.given.devices]
        return {
            "cluster": self.given.name,
            "links": [
                {"between": [names[lower], names[higher]], **line._asdict()}
                for (lower, higher), line in self.one_way.items()
            ],
            "copies": [
                {"from": names[source], "to": names[target], "memory": memory, **line._asdict()}
                for source, target, memory, line in self._copied()
            ],
            "messages": {name: line._asdict() for name, line in zip(names, self.messages, strict=True)},
            "runner_seconds": dict(zip(names, self.runner_seconds, strict=False)),
            "runs": [run._asdict() | {"device": names[run.device], "per_op": run.per_op} for run in self.runs],
            "messages_in_steps": [each._asdict() for each in self.spread],
            "passes": [each._asdict() for each in self.passes],
            "hosts": {self.host.name: {of: getattr(self.host, of) for of in SECONDS}},
            "busy": self.warning,
        }

    def _shown(self) -> RenderableType:
        names = [device.name for device in self.given.devices]
        links = table("A message between idle processes", "link", *numbers("latency", "bandwidth", "spread"))
        for (lower, higher), line in self.one_way.items():
            rate = f"{1 / max(line.per_byte, 1e-15) / 1e9:,.2f} GB/s"
            links.add_row(f"{names[lower]} - {names[higher]}", seconds(line.fixed), rate, share(line.spread))
        costs = table("What it costs the processor at each end", "device", *numbers("per message", "per MB", "spread"))
        for name, line in zip(names, self.messages, strict=True):
            costs.add_row(name, seconds(line.fixed), seconds(line.per_byte * MEGABYTE), share(line.spread))
        issuing = table(f"What it costs a thread to issue an op, {self.host.name}", *numbers(*SECONDS))
        issuing.add_row(*(seconds(getattr(self.host, of)) for of in SECONDS))
        shown: list[RenderableType] = [links, costs, issuing] if self.one_way else [issuing]
        if self.copies:
            copied = table("A copy in one process", "from", "to", "memory", *numbers("latency", "bandwidth", "spread"))
            for source, target, memory, line in self._copied():
                rate = f"{1 / max(line.per_byte, 1e-15) / 1e9:,.2f} GB/s"
                copied.add_row(names[source], names[target], memory, seconds(line.fixed), rate, share(line.spread))
            shown.insert(0, copied)
        if self.runs:
            heads = numbers("ops", "predicted", "measured", "besides, per op")
            runs = table("A step on one device, and what running takes besides its ops", "device", "model", *heads)
            for run in self.runs:
                taken = (seconds(value) for value in (run.predicted, run.measured, run.per_op))
                runs.add_row(names[run.device], run.model, f"{run.ops:,}", *taken)
            shown.append(runs)
        if self.spread:
            title = f"A step spread over all devices: messages cost {ratio(self.times)} times as much as without ops"
            steps = table(title, "model", *numbers("messages", "predicted", "measured", "times"))
            for each in self.spread:
                predicted, measured = seconds(each.predicted), seconds(each.measured)
                steps.add_row(each.model, f"{each.messages:,}", predicted, measured, ratio(each.times))
            shown.append(steps)
        if self.passes:
            title = f"A pipeline's step: each pass takes {seconds(self.per_pass)} longer than its ops"
            steps = table(title, "model", *numbers("passes", "predicted", "measured", "per pass"))
            for sample in self.passes:
                taken = (seconds(value) for value in (sample.predicted, sample.measured, sample.per_pass))
                steps.add_row(sample.model, f"{sample.passes:,}", *taken)
            shown.append(steps)
        spread = "Spread: the interquartile range of a size's samples over their median; of all sizes the median."
        return Group(*shown, Text(spread), *([Text(f"Warning: {self.warning}.")] if self.warning else []))


@dataclass(frozen=True)
class Calibrator:
    """Measures with processes, one per device; or per GPU, if there is a processor as well: the first device."""

    workers: Workers
    samples: int  # of each size of message
    steps: int  # of each model
    limit: int  # seconds for each job

    def this_machine(self, given: Cluster) -> Cluster:
        """The devices of the given cluster, as fast as they are found to be; their links are not measured yet."""
        found = self.workers.run(machine, limit=self.limit)
        if len(given) > len(found):
            processor = self.workers.run(MeasureProcessor(torch.get_num_threads()), limit=self.limit)[0]
            assert processor is not None
            found = [processor, *found]
        sharing = [sum(other.name == each.name for other in found) if each.kind == "cpu" else 1 for each in found]
        devices = tuple(
            replace(each.device(), name=device.name, memory_bytes=each.memory_bytes / among)
            for device, each, among in zip(given.devices, found, sharing, strict=True)
        )
        return replace(given, devices=devices)

    def measure(self, given: Cluster, problems: Mapping[str, Problem]) -> Calibration:
        """The links of each pair of devices, and what running adds to the ops of each model, by its spec."""
        guard = BusyGuard(lambda: self.workers.run(reference_seconds, limit=self.limit))
        guard.look()
        one_way, messages = self._links(len(self.workers.devices), guard)
        copied = dict[Pair, TwoWayTimes]()
        if apart := len(given) - len(messages):  # the processor, which is the first device
            one_way = {(lower + apart, higher + apart): line for (lower, higher), line in one_way.items()}
            messages = [Line(0.0, 0.0, 0.0)] * apart + messages
            copied = {(0, rank + apart): self._copies(rank) for rank in range(len(self.workers.devices))}
        runs, work = list[RunnerSample](), [(model, device) for model in problems for device in range(len(given))]
        for model, device in progress(work, "running models", unit="run"):
            guard.look_now_and_then()
            runs.append(self._run(model, problems[model], device))
        found = Calibration(given, one_way, messages, runs, [], [], self._host(), "", copied)
        if len(given) > 1:
            found = replace(found, spread=[self._spread(model, problems[model], found) for model in problems])
            pipelines = {model: uneven_pipeline(problem) for model, problem in problems.items()}
            passes = [self._passes(name, problems[name], plan, found) for name, plan in pipelines.items() if plan]
            found = replace(found, passes=passes)
        guard.look()
        return replace(found, warning=guard.warning(REMEDY))

    def _links(self, count: int, guard: BusyGuard) -> tuple[dict[Pair, Line], list[Line]]:
        """What messages take between each pair, and what they cost each device."""
        one_way, costs = dict[Pair, Line](), defaultdict[int, list[Floats]](list)
        pairs = list(combinations(range(count), 2))
        for pair in progress(pairs, "measuring links", unit="link"):
            guard.look_now_and_then()
            found = self.workers.run(MeasurePair(*pair, samples=self.samples), limit=self.limit)
            lower, higher = (found[rank] for rank in pair)
            assert lower is not None
            assert higher is not None
            both = np.concatenate([lower.one_way, higher.one_way], axis=1)
            one_way[pair] = fitted(SIZES, both, WHILE_WAITED)
            for rank, measured in zip(pair, (lower, higher), strict=True):
                costs[rank] += [measured.as_sender, measured.as_receiver]
        lines = [fitted(SIZES, np.concatenate(costs[rank], axis=1), WHILE_COMPUTED) for rank in sorted(costs)]
        return one_way, lines or [Line(0.0, 0.0, 0.0)] * count

    def _copies(self, rank: int) -> TwoWayTimes:
        """Between the processor and the GPU of a process."""
        found = self.workers.run(MeasureCopies(rank, self.samples), limit=self.limit)[rank]
        assert found is not None
        return found

    def _host(self) -> Host:
        """What issuing costs."""
        job = MeasureHost({model: load_graph(model) for model in MODELS}, self.steps)
        found = self.workers.run(job, limit=self.limit)[0]
        assert found is not None
        return found

    def _run(self, model: str, problem: Problem, device: int) -> RunnerSample:
        """A model on one device."""
        plan = Plan.of([device] * len(problem.graph))
        run = run_plan(self.workers, Training(model, self.steps), problem, plan, limit=self.limit)
        return runner_sample(model, problem, device, quiet_seconds(run.counted))

    def _spread(self, model: str, problem: Problem, found: Calibration) -> MessageSample:
        """A model whose ops are anywhere, so that much is sent."""
        plan = spread_plan(problem)
        run = run_plan(self.workers, Training(model, self.steps), problem, plan, limit=self.limit)
        given = found.given, found.one_way, found.messages, found.runner_seconds
        return message_sample(
            model, problem, plan, quiet_seconds(run.counted), lambda times: calibrated(*given, times=times)
        )

    def _passes(self, model: str, problem: Problem, plan: Plan, found: Calibration) -> PassSample:
        """A model by a pipeline."""
        run = run_plan(self.workers, Training(model, self.steps), problem, plan, limit=self.limit)
        given = found.given, found.one_way, found.messages, found.runner_seconds, found.times
        return pass_sample(
            model, problem, plan, quiet_seconds(run.counted), lambda per_pass: calibrated(*given, per_pass=per_pass)
        )
