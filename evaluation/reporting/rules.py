"""Placers that decide by a rule, without search or learning: what a plan that took more has to beat."""

from typing import NamedTuple

import numpy as np

from evaluation.comparing.comparison import Comparison
from evaluation.records.statistics import Estimate, estimate
from graphs.op_graph import Floats

# A rule may try a few of its own answers, as METIS does, but does not search from one to the next.
RULES = (
    "black_gpipe", "dapple", "data_parallel", "expert", "fsdp", "gpipe", "heft", "human_expert", "kahip", "m_etf",
    "m_sct", "m_topo", "max_load_dp", "metis", "optcnn", "parallel", "peft", "pipedream", "pipetransformer",
    "round_robin", "tensor_parallel", "tofu",
)  # fmt: skip


class BestRule(NamedTuple):
    """The fastest rule on a problem."""

    placer: str  # its label
    seconds: float


def best_rules(comparison: Comparison) -> list[BestRule | None]:
    """The fastest rule on each problem of a comparison; None where no plan of a rule fits."""
    seconds, which = _of_rules(comparison), [placer for placer in comparison.placers if _is_rule(placer)]
    found: list[BestRule | None] = []
    for row in seconds:
        if np.isnan(row).all():
            found.append(None)
        else:
            best = int(np.nanargmin(row))
            found.append(BestRule(comparison.labels[which[best]], float(row[best])))
    return found


def speedup_over_rules(comparison: Comparison, placer: str) -> Estimate:
    """Geometric mean of how many times as fast a placer's plan is as that of the best rule of each problem."""
    own = comparison.fitting_seconds[:, comparison.placers.index(placer)]
    best = np.array([np.nan if rule is None else rule.seconds for rule in best_rules(comparison)])
    ratio = best / own
    return estimate([ratio[np.isfinite(ratio)]])


def _is_rule(placer: str) -> bool:
    return placer.partition(":")[0] in RULES


def _of_rules(comparison: Comparison) -> Floats:
    """(problems, rules) seconds of the objective; NaN where the plan does not fit."""
    columns = [column for column, placer in enumerate(comparison.placers) if _is_rule(placer)]
    found: Floats = comparison.fitting_seconds[:, columns]
    return found
