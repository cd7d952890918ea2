"""EqualStageEstimates: about what pipelines of equally many replicas take, by the planner's formula.

That is for each number of micro-batches, replicas and stages, on consecutive devices of a row, cut where the formula
cuts. It is rough: a policy reads it among other features, and learns when to trust it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.op_graph import Floats
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, ProblemChain
from placers.pipelines.cuts import ALL

HOPELESS = 1e3  # times a step on one device: what seems not to fit, or cannot be made


@dataclass(frozen=True, eq=False)
class EqualStageEstimates:
    """What seems possible for a problem."""

    view: ProblemChain

    @cached_property
    def seconds(self) -> Floats:
        """(micro-batches, replicas + 1, stages + 1) of a step on the fastest device; `HOPELESS` where there is none."""
        view = self.view
        most, samples = len(view.row), view.problem.graph.samples
        found = np.full((len(MICRO_BATCHES), most + 1, most + 1), HOPELESS)
        for number, micro_batches in enumerate(MICRO_BATCHES):
            for replicas in range(1, most + 1):
                if samples % (micro_batches * replicas):
                    continue
                for stages in range(1, min(most // replicas, len(view.work) - 1) + 1):
                    found[number, replicas, stages] = min(self._of(micro_batches, replicas, stages), HOPELESS)
        return found

    @cached_property
    def best(self) -> float:
        """The least of all."""
        return float(self.seconds.min())

    def of_replicas(self, number: int) -> Floats:
        """(replicas + 1,) the least with a number of micro-batches, by its place among them."""
        least: Floats = self.seconds[number].min(axis=1)
        return least

    def _of(self, micro_batches: int, replicas: int, stages: int) -> float:
        """Steps on the fastest device; infinite for what does not fit, computed again or not."""
        sets = tuple(map(tuple, self.view.row[: replicas * stages].reshape(stages, replicas).tolist()))
        for again in (0, ALL)[: 1 + self.view.problem.graph.is_training]:
            seconds = self.view.formula.cut(sets, micro_batches, again=again, thorough=False).seconds
            if np.isfinite(seconds):
                break
        return seconds / self.view.step
