"""Expand: from a problem and a plan to the larger graph that the engine times."""

from collections.abc import Callable

from envs.expansion.copies import connect_copies
from envs.expansion.draft import Divided, Draft
from envs.expansion.expanded import Expansion
from envs.expansion.gathered_weights import gather_weights
from envs.expansion.gradients import sum_gradients
from envs.expansion.held_gradients import hold_gradients
from envs.expansion.layout import Layout
from envs.expansion.offloaded_updates import offload_updates
from envs.expansion.pass_costs import lengthen_passes
from envs.expansion.passes import order_passes
from envs.expansion.sharded_states import ShardedStates
from envs.expansion.shards.divided import connect_shards
from envs.expansion.shards.shard_costs import ShardCosts
from envs.expansion.shards.shards import Partition
from envs.expansion.shards.stored_weights import StoredWeights
from envs.expansion.shares import shared
from envs.expansion.weight_groups import WeightGroups
from envs.expansion.weight_versions import keep_versions
from envs.plans.plan import Plan
from graphs.problem import Problem


def expand(problem: Problem, plan: Plan, part_of: Callable[[Problem, float], Problem] = shared) -> Expansion:
    """Write out what a plan means. An op placement gives the problem's own graph, op by op.

    `part_of` says what a share of the batch costs, if that is not what follows from the graph and its cost model.
    Raises InputError if the plan is not one for this problem.
    """
    plan.check(problem)
    layout = Layout(problem, plan)
    draft = Draft(layout)
    divided: Divided | None = None
    if plan.split:
        partition = Partition(layout)
        stored = StoredWeights(partition)
        connect_shards(draft, partition, stored)
        divided = ShardCosts(partition, stored)
    else:
        groups = WeightGroups(layout) if plan.schedule.zero and int(layout.replicas.max()) > 1 else None
        connect_copies(draft)
        sum_gradients(draft, groups)
        hold_gradients(draft)
        keep_versions(draft)
        if groups is not None:
            gather_weights(draft, groups)
        offload_updates(draft)
        if groups is not None or layout.is_offloaded.any():
            divided = ShardedStates(layout)
    lengthen_passes(draft, order_passes(draft))
    return draft.build(part_of, divided)
