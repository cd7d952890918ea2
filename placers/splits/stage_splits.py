"""How a stage is divided inside: by which index every op is, over the shards of a server, found by a search in seconds.

The axes of replicas divide the batch; over those of shards each op divides what the search finds best, with the whole
step's computing and moving, and the sums of gradients over replicas. Which ops will be in a stage does not matter: a
stage takes its own part of what was found for all of them, once for each width, number of replicas, and kind of links.
"""

from collections.abc import Sequence
from dataclasses import replace

from envs.pipelines.pipeline import LayerStage
from envs.plans.mesh import Split, prime_factors
from graphs.problem import Problem
from placers.splits.cuts import searched
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import prices_of_links
from placers.splits.options import SplitRules, Splitting
from placers.splits.pricing import Pricing
from placers.splits.split_graph import SplitGraph

RULES = SplitRules(replicas=True)  # what divides the batch alone does as replicas do
ROOM = (0.7, 0.95)  # of the memory, for weights; ours: the rest is for activations. The second if there is no way
MOST_OPERATIONS = 3e7  # for all axes of shards at once; ours: about a second


class SearchedSplits:
    """The splits of a problem's stages (`envs.pipelines.pipeline.StageSplits`)."""

    def __init__(self, problem: Problem, devices: Sequence[int]) -> None:
        """`devices` are those that a plan may use."""
        self._problem = problem
        self._memory = float(problem.cluster.memory_bytes[list(devices)].sum())
        self._graph: SplitGraph | None = None
        self._found: dict[tuple[object, ...], tuple[Split, ...]] = {}

    def __call__(self, stage: LayerStage) -> tuple[Split, ...]:
        """(ops,) by axis of the stage's mesh the index that is divided, of all ops of the problem.

        Weights keep to the memory, if stages of as many devices have all of it. Raises InputError if too many choices
        depend on each other.
        """
        prices = prices_of_links(self._problem.cluster, stage.devices, stage.axes)
        key = stage.replicas, stage.shards, prices.per_byte, prices.per_message
        if key not in self._found:
            if self._graph is None:
                self._graph = _weights_alone(split_graph_of(self._problem))
            splitting = Splitting(self._graph, stage.axes, RULES, len(prime_factors(stage.replicas)))
            pricing, memory = Pricing(splitting, prices), self._memory / len(stage.devices)
            for share in ROOM:
                cuts = searched(pricing, share * memory, most_operations=MOST_OPERATIONS)
                if cuts.fits:
                    break
            self._found[key] = plan_of(splitting, cuts, stage.devices).split
        return self._found[key]


def _weights_alone(graph: SplitGraph) -> SplitGraph:
    """The same, without the memory of what ops make: of that there is as much as micro-batches are in flight."""
    tensors = (each if each.stored or each.as_made else replace(each, held_bytes=0.0) for each in graph.tensors)
    return replace(graph, tensors=tuple(tensors))
