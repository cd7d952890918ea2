"""PipelineEvaluator: what pipelines take, at the grain of stages or op by op; each is simulated once."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from envs.objectives import evaluate_objective, is_static
from envs.objectives.latency import Latency
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline
from envs.plans.schedule import AS_READY
from envs.simulation.simulator import Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from placers.pipelines.budget import Spent
from placers.pipelines.contest import Contestant
from placers.pipelines.merit import INVALID, Merit
from placers.pipelines.micro_batches import FEW_MICRO_BATCHES
from placers.pipelines.size import is_large, is_too_large

MOST_COPIES = 1_400_000  # of stages of very many micro-batches, that are simulated in all at this grain; ours
MOST_OF_LARGE = 200_000  # of those of large problems, whatever the micro-batches


@dataclass(frozen=True, eq=False)
class PipelineOutcome:
    """What a pipeline takes."""

    seconds: float  # of the objective
    peak_bytes: Floats  # (devices,)


class PipelineEvaluator:
    """Simulates pipelines at the grain of stages: their step time, or the latency of their first micro-batch.

    An objective that asks for no simulation says what their plans are worth, and memory alone is simulated.
    """

    def __init__(self, grain: LayerGrain, spent: Spent, *, latency: bool = False) -> None:
        self.grain, self.spent = grain, spent
        self.memory_factor = 1.0  # of what devices need at op grain, over what they need at this one
        self._latency = Latency() if latency else None
        self._known: dict[LayerPipeline, PipelineOutcome | None] = {}
        self._run: dict[object, PipelineOutcome | None] = {}  # by what tells apart how they are run
        ops = np.bincount(grain.layers.of_unit[grain.problem.graph.units])
        self._ops_before = np.concatenate([[0], np.cumsum(ops)])  # (layers + 1,)

    def merit(self, pipeline: LayerPipeline) -> Merit:
        """What it is worth. Without simulations left, what is not known is worth nothing."""
        if pipeline not in self._known:
            if not self.spent.left:
                return INVALID
            run = _run_by(pipeline)
            if run not in self._run:
                self._run[run] = self._simulated(pipeline)
            self._known[pipeline] = self._run[run]
        found = self._known[pipeline]
        if found is None:
            return INVALID
        return Merit(float(self.lacking(pipeline).sum()), found.seconds)

    def lacking(self, pipeline: LayerPipeline) -> Floats:
        """(devices,) bytes of memory that a pipeline lacks that has been simulated."""
        needed = self.peak_bytes(pipeline) * self.memory_factor
        return np.maximum(needed - self.grain.problem.cluster.memory_bytes, 0.0)

    def refuse(self, pipeline: LayerPipeline) -> None:
        """A pipeline gives a plan that is not valid for the problem."""
        self._known[pipeline] = None

    def peak_bytes(self, pipeline: LayerPipeline) -> Floats:
        """(devices,) what a pipeline that has been simulated needs at this grain."""
        found = self._known[pipeline]
        assert found is not None
        return found.peak_bytes

    def affordable(self, pipeline: LayerPipeline) -> int:
        """How many pipelines like this may be simulated in all: fewer than is asked for of very many copies."""
        of_large = is_large(self.grain.problem)
        if pipeline.micro_batches <= FEW_MICRO_BATCHES and not of_large:
            return self.spent.left
        most = MOST_OF_LARGE if of_large else MOST_COPIES
        return most // (pipeline.micro_batches * sum(len(stage.devices) for stage in pipeline.stages))

    def memory_ratio(self, pipeline: LayerPipeline, entry: Contestant) -> float:
        """What the fullest device needs op by op, of a pipeline that has been simulated, over what it needs here."""
        fullest = (entry.peak_bytes / np.maximum(self.grain.problem.cluster.memory_bytes, 1.0)).argmax()
        seemed = self.peak_bytes(pipeline)[fullest]
        return float(entry.peak_bytes[fullest] / seemed) if seemed else 1.0

    def ranked(self) -> list[LayerPipeline]:
        """All pipelines so far, the best first."""
        valid = [pipeline for pipeline, found in self._known.items() if found is not None]
        return sorted(valid, key=self.merit)

    def _simulated(self, pipeline: LayerPipeline) -> PipelineOutcome | None:
        """None for a pipeline that is too large, or that the problem or its order of passes does not take."""
        if is_too_large(self.grain.problem, self._copies(pipeline)):
            return None
        grain = self.grain
        try:
            written = grain.expansion(pipeline)
            given = None
            if is_static(grain.problem):
                given = evaluate_objective(grain.problem, pipeline.plan(grain.problem, grain.layers, grain.splits))
        except InputError:
            return None
        self.spent.add(1)
        outcome = Simulator(written.problem, order=written.order).run(written.placement)
        seconds = self._latency.of_expansion(written) if self._latency else outcome.step_seconds
        seconds = seconds if given is None else given
        return PipelineOutcome(seconds, self.grain.on_all_shards(pipeline, outcome.peak_bytes))

    def _copies(self, pipeline: LayerPipeline) -> int:
        """Of ops, in micro-batches and replicas."""
        ops = self._ops_before
        replicated = sum(int(ops[stage.end] - ops[stage.first]) * len(stage.devices) for stage in pipeline.stages)
        return replicated * pipeline.micro_batches


class OpEvaluator(PipelineEvaluator):
    """Simulates pipelines op by op, as all plans are compared."""

    def __init__(self, grain: LayerGrain, spent: Spent, compare: Callable[[LayerPipeline], Contestant | None]) -> None:
        """`compare` simulates the plan of a pipeline; None if it is not valid for the problem."""
        super().__init__(grain, spent)
        self._compare = compare

    def _simulated(self, pipeline: LayerPipeline) -> PipelineOutcome | None:
        entry = self._compare(pipeline)
        return None if entry is None else PipelineOutcome(entry.merit.value, entry.peak_bytes)


def _run_by(pipeline: LayerPipeline) -> object:
    """What tells apart how pipelines are run: the pipeline or, of one micro-batch, its passes, whatever the order.

    In many orders they are the same then.
    """
    if pipeline.micro_batches > 1 or pipeline.order == AS_READY or any(stage.again for stage in pipeline.stages):
        return pipeline
    hosted = dict[tuple[int, ...], list[int]]()
    for number, stage in enumerate(pipeline.stages):
        hosted.setdefault(stage.devices, []).append(number)
    try:
        passes = pipeline.order.built.passes(tuple(map(tuple, hosted.values())), pipeline.micro_batches)
    except InputError:  # as simulating it will say
        return pipeline
    return replace(pipeline, order=ONE_F_ONE_B), passes
