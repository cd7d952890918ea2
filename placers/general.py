"""The general policy: a second learned placer that comes with placelab, for kinds of graphs that nobody trained it on.

Where `default` has learned from families of models alone, this one has learned from random problems of nine kinds as
well, under longest-path order. It may say that one device is best, and counts the memory of outputs while they live.
"""

from __future__ import annotations

from pathlib import Path

from placers.contract.placer import Placer
from placers.default import released_placer

LEARNED = True  # is compared with the classical placers, not as one of them
FOLDER = Path(__file__).resolve().parent / "released" / "general"  # the run folder of `placelab train policy2 --seed 1`


def build(*, samples: int = 0, cheap: bool = False) -> Placer:
    """The policy's greedy placement, or the best of `samples`; of as many as the budget allows with 0.

    With `cheap` some of those are plans of cheap placers, and passes of the policy over them.
    Raises InputError if this copy of placelab comes without the policy.
    """
    return released_placer("general", FOLDER, "policy2", samples=samples, cheap=cheap)
