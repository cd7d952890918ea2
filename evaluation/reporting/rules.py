"""Placers that decide by a rule, without search or learning: what a plan that took more has to beat."""

from typing import NamedTuple

import numpy as np

from evaluation.comparing.comparison import Comparison
from evaluation.records.statistics import Estimate, estimate

# A rule may try a few of its own answers, as METIS does, but does not search from one to the next.
OF_PLACEMENTS = (
    "heft", "human_expert", "kahip", "m_etf", "m_sct", "m_topo", "max_load_dp", "metis", "peft", "round_robin",
)  # fmt: skip
RULES = (
    *OF_PLACEMENTS, "black_gpipe", "dapple", "data_parallel", "expert", "fsdp", "gpipe", "optcnn", "parallel",
    "pipedream", "pipetransformer", "tensor_parallel", "tofu",
)  # fmt: skip


class BestRule(NamedTuple):
    """The fastest rule on a problem."""

    placer: str  # its label
    seconds: float


def rules_like(comparison: Comparison, *placers: str) -> tuple[str, ...]:
    """The rules that make plans of the kind that these placers make: of op placements only, if all of theirs are."""
    of_ops = all(not record.replicas for record in comparison.records if record.placer in placers)
    return OF_PLACEMENTS if of_ops else RULES


def best_rules(comparison: Comparison, rules: tuple[str, ...] = RULES) -> list[BestRule | None]:
    """The fastest of the rules on each problem of a comparison; None where no plan of one fits."""
    which = [placer for placer in comparison.placers if placer.partition(":")[0] in rules]
    seconds = comparison.fitting_seconds[:, [comparison.placers.index(placer) for placer in which]]
    found: list[BestRule | None] = []
    for row in seconds:
        if np.isnan(row).all():
            found.append(None)
        else:
            best = int(np.nanargmin(row))
            found.append(BestRule(comparison.labels[which[best]], float(row[best])))
    return found


def speedup_over_rules(comparison: Comparison, placer: str, rules: tuple[str, ...] = RULES) -> Estimate:
    """Geometric mean of how many times as fast a placer's plan is as that of the best of the rules of each problem."""
    own = comparison.fitting_seconds[:, comparison.placers.index(placer)]
    best = np.array([np.nan if rule is None else rule.seconds for rule in best_rules(comparison, rules)])
    ratio = best / own
    return estimate([ratio[np.isfinite(ratio)]])
