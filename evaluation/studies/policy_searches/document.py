"""The document of the study: step times over those of a search from cheap plans, over METIS, and over the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evaluation.statistics import Estimate
from evaluation.studies.document import save_document
from evaluation.studies.frame import Frame
from evaluation.studies.grain.measure import OPS
from evaluation.studies.policy_searches.measure import FEW, GRAINS, SHORT, Who

NAMES = {
    Who.METIS: "METIS, tuned", Who.POLICY: "the policy", Who.FROM_CHEAP: "search from cheap plans",
    Who.FROM_POLICY: "search from the policy",
}  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """What is done of a study."""

    frame: Frame  # by placer, grain and simulations
    searching: int

    @property
    def entries(self) -> list[tuple[Who, int]]:
        """Placers with their simulations; 1 stands for none."""
        return [
            (Who.METIS, 1), (Who.POLICY, 1), (Who.POLICY, FEW),
            *((who, count) for count in (SHORT, self.searching) for who in (Who.FROM_CHEAP, Who.FROM_POLICY)),
        ]  # fmt: skip

    def over_metis(self, who: Who, simulations: int, grain: int) -> Estimate:
        """Step times over those of tuned METIS at the same grain."""
        return self.frame.ratio((who, grain, simulations), (Who.METIS, grain, 1))

    def over_long(self, who: Who, simulations: int, grain: int) -> Estimate:
        """Step times over those of the long search from cheap plans at the same grain."""
        return self.frame.ratio((who, grain, simulations), (Who.FROM_CHEAP, grain, self.searching))

    def over_reference(self, who: Who, simulations: int, grain: int) -> Estimate:
        """Step times over those of the reference."""
        return self.frame.ratio((who, grain, simulations), (Who.REFERENCE, GRAINS[0], self.searching))


def save(found: Findings, folder: Path, *, policy: str, suites: str, command: str) -> Path:
    """Write `policy_searches.md` into a folder."""
    return save_document(
        "policy_searches", "policy_searches.md", folder, {},
        found=found, policy=policy, suites=suites, command=command, grains=GRAINS, ops=OPS, names=NAMES,
    )  # fmt: skip
