"""The released policy: the learned placer that comes with placelab, trained on many families of models."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer
from placers.learned.lookup import placer_of

LEARNED = True  # is compared with the classical placers, not as one of them
RELEASED = Path(__file__).resolve().parent / "released"  # the run folder of `placelab train released`


def build(*, samples: int = 0, cheap: bool = False, order: bool = True, seconds: float = math.inf) -> Placer:
    """The released policy's greedy placement, or the best of `samples`; of as many as the budget allows with 0.

    A limit of processor `seconds` allows as many as fit.

    With `cheap` some of those are plans of cheap placers, and passes of the policy over them. Without `order` ops run
    by the problem's rule, and not in the order that the policy chooses.
    Raises InputError if this copy of placelab comes without the policy.
    """
    if not (RELEASED / "meta.json").is_file():
        raise InputError(
            f"the released policy is missing from {RELEASED}; `placelab train released --out {RELEASED}` makes it"
        )
    # a frozen dataclass, as all learned placers are
    learned: Any = placer_of(RELEASED, samples=samples, cheap=cheap, order=order)
    knobs = {"samples": samples, "cheap": cheap and "yes", "order": "" if order else "no"}
    named: Any = replace(learned, name=by_name.spec_of("default", {knob: v for knob, v in knobs.items() if v}))
    limited: Placer = named if math.isinf(seconds) else named.within(seconds)
    return limited
