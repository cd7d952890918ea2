"""What a policy of whole plans sees of each candidate: logarithms of ratios, shares and flags.

They are by closed forms and, of pipelines, by when their passes run (`placers.learned.whole_plans.pass_times`).

Rows end with what is the same for all candidates of a problem. All values are within `FAR` of zero, whatever the model.
"""

import numpy as np

from envs.costs.costs import costs_of
from envs.pipelines.layers import Layers, sums_before
from envs.pipelines.pipeline import LayerPipeline
from envs.simulation.bounds import path_bound
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.whole_plans.candidates import KINDS, Candidate, Candidates
from placers.learned.whole_plans.pass_times import estimates

FEATURES = ("whole plans, 6",)  # what the columns mean: another number is of other ones
ORDERS = (
    "early_backward_a", "early_backward_b", "gpipe", "zb_h1", "zb_h2", "interleaved", "interleaved_zero_bubble",
    "looped_bfs", "zb_v", "dualpipe_v",
)  # fmt: skip
OF_CANDIDATE, OF_PROBLEM = 18, 15
WIDTH = len(KINDS) + len(ORDERS) + OF_CANDIDATE + OF_PROBLEM
FAR = 5.0  # no logarithm of a ratio counts for more


def rows_of(candidates: Candidates) -> Floats:
    """(candidates, WIDTH) of a problem."""
    formula = candidates.formula
    said = np.array([estimates(formula, each.pipeline) for each in candidates.each])
    known = _Known(candidates)
    kinds = np.array([[each.kind == kind for kind in KINDS] for each in candidates.each])
    orders = np.array([[each.pipeline.order.name == order for order in ORDERS] for each in candidates.each])
    own = np.array([known.of(each, *both) for each, both in zip(candidates.each, said.tolist(), strict=True)])
    least = np.nanmin(np.where(np.isfinite(said[:, 0]), said[:, 0], np.nan))
    rough = np.array([formula.estimates(each.pipeline)[0] for each in candidates.each])
    relative = np.column_stack([log_ratio(said[:, 0], least), log_ratio(rough, said[:, 0])])
    shared = np.tile(known.of_problem(said[:, 0], kinds, least), (len(own), 1))
    rows = np.concatenate([kinds, orders, relative, own, shared], axis=1)
    return np.asarray(np.nan_to_num(np.clip(rows, -FAR, FAR), nan=0.0))


def log_ratio(value: Floats | float, other: Floats | float) -> Floats:
    """Logarithm of a ratio, within `FAR`; 0 where both are nothing."""
    found = np.log(np.clip(value, 1e-12, 1e12)) - np.log(np.clip(other, 1e-12, 1e12))
    return np.asarray(np.clip(found, -FAR, FAR))


class _Known:
    """What is known of a problem."""

    def __init__(self, candidates: Candidates) -> None:
        problem, layers = candidates.problem, candidates.layers
        devices = list(candidates.devices)
        self.problem: Problem = problem
        self.formula = candidates.formula
        self.layers: Layers = layers
        self.count = len(devices)
        seconds = candidates.formula.devices.seconds[devices]
        self.alone = max(float(seconds.min()), 1e-30)  # seconds of a step on the fastest device
        self.together = 1.0 / float((1.0 / np.maximum(seconds, 1e-30)).sum())  # of one that is divided by speed
        self.spread = float(seconds.max()) / self.alone
        self.memory = float(np.minimum(problem.cluster.memory_bytes[devices], 1e15).min())
        self.held, self.kept = float(layers.held.sum()), float(layers.kept.sum())
        self.weights = float(layers.weights.sum())
        self.path = path_bound(problem, costs_of(problem).op_seconds)  # of any op placement
        self.fixed = float((layers.forward_fixed + layers.backward_fixed).sum())
        pairs = ~np.eye(self.count, dtype=np.bool_)
        links = np.ix_(devices, devices)
        per_byte, latency = 1.0 / problem.cluster.bandwidth[links][pairs], problem.cluster.latency[links][pairs]
        self.fast, self.slow, self.latency = (
            (float(per_byte.min()), float(per_byte.max()), float(latency.max())) if pairs.any() else (0.0, 0.0, 0.0)
        )

    def of(self, candidate: Candidate, seconds: float, full: float) -> Floats:
        """(OF_CANDIDATE - 2,) of one candidate, by what is said of its pipeline."""
        one: LayerPipeline = candidate.pipeline
        stages, used = len(one.stages), len({each for stage in one.stages for each in stage.devices})
        replicas, micro_batches = max(stage.replicas for stage in one.stages), one.micro_batches
        in_parts = self.held / used + self.kept / (used * micro_batches)
        alone = (seconds / micro_batches, 0.0, 0.0, 0.0)
        forward, backward, of_weights, transfer = self.formula.times(one) if stages > 1 else alone
        passes = forward + backward + of_weights
        sums = 2 * self.weights * (replicas - 1) / max(replicas * stages, 1)
        return np.array(
            [
                log_ratio(seconds, self.together), log_ratio(full, 1.0), float(full > 1), float(full > 0.8),
                log_ratio(in_parts, self.memory), np.log2(micro_batches) / 3, np.log2(self.count / used),
                np.log2(stages) / 2, len(one.recompute) / stages, float(any(stage.again for stage in one.stages)),
                float(one.sharing == "turns") - float(one.rule is not None),
                log_ratio(sums * self.slow, self.together), log_ratio(self.fixed * micro_batches, self.together),
                log_ratio(transfer, passes), log_ratio(of_weights, passes), log_ratio(micro_batches * passes, seconds),
            ]
        )  # fmt: skip

    def of_problem(self, seconds: Floats, kinds: Floats, least: float) -> Floats:
        """(OF_PROBLEM,) by the (candidates,) seconds of the formula, the least of them, and (candidates, kinds)."""
        layers = self.layers
        best = [seconds[kinds[:, KINDS.index(kind)]].min(initial=np.inf) for kind in ("replicas", "pipeline")]
        sent = float(np.median(np.maximum(layers.sent, layers.returned)))
        work = np.diff(sums_before(layers.forward + layers.backward))
        return np.array(
            [
                np.log2(self.count) / 2 - 1, float(self.problem.graph.is_training), log_ratio(self.spread, 1.0),
                log_ratio(self.held, self.memory), log_ratio(self.held + self.kept, self.memory),
                log_ratio(self.weights * self.slow, self.together), log_ratio(self.weights * self.fast, self.together),
                log_ratio(sent * self.slow, self.together), log_ratio(sent * self.fast, self.together),
                log_ratio(self.latency, self.together), log_ratio(self.fixed, self.alone),
                log_ratio(float(work.max()), float(work.sum())), log_ratio(self.path, self.together),
                *log_ratio(np.array(best), least),
            ]
        )  # fmt: skip
