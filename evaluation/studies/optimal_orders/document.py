"""The document of the study of optimal orders: each rule's optimum over that with the order free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.statistics import geometric_mean
from evaluation.studies.document import save_document
from evaluation.studies.optimal_orders.proofs import RULES, Proof
from placers.exact import PRECISION


@dataclass(frozen=True)
class OrderFindings:
    """What is done of a study."""

    proofs: Sequence[Proof]

    def over_free(self, proof: Proof, rule: str) -> float:
        """A rule's optimum over the best plan whose order is free."""
        return proof.rule_seconds[rule] / proof.free_seconds

    def mean(self, rule: str) -> float:
        """The same over all problems, as a geometric mean."""
        return float(geometric_mean(np.array([self.over_free(proof, rule) for proof in self.proofs])))

    def worst(self, rule: str) -> float:
        """The largest of all problems."""
        return max(self.over_free(proof, rule) for proof in self.proofs)

    def least(self, proof: Proof) -> float:
        """That of the best rule for one problem."""
        return min(self.over_free(proof, rule) for rule in RULES)

    @property
    def proven(self) -> int:
        """How many optima are proven, to the precision of CP-SAT."""
        return sum(proof.gap <= 2 * PRECISION for proof in self.proofs)

    @property
    def optimal(self) -> dict[str, int]:
        """On how many problems each rule has an optimum as fast as the best plan."""
        return {rule: sum(self.over_free(proof, rule) <= 1 + PRECISION for proof in self.proofs) for rule in RULES}


def save(found: OrderFindings, folder: Path, command: str) -> Path:
    """Write `optimal_orders.md` into a folder."""

    def ratios(proof: Proof) -> list[str]:
        return [f"{found.over_free(proof, rule):.3f}" for rule in RULES]

    return save_document(
        "optimal_orders", "optimal_orders.md", folder, {},
        command=command, found=found, rules=list(RULES), ratios=ratios,
        means=[f"{found.mean(rule):.3f}" for rule in RULES], worsts=[f"{found.worst(rule):.3f}" for rule in RULES],
        optimal=[f"{found.optimal[rule]} of {len(found.proofs)}" for rule in RULES],
    )  # fmt: skip
