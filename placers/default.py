"""The released policies: the learned placer that comes with placelab, trained on many families of models.

One was trained for the ideal machine, and chooses an order of ops, too; the other for the ways in which programs run
plans (`graphs.runtime`). Which of them places a problem follows from how its plans are run.
"""

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
OF_PROGRAMS = RELEASED.with_name("released_world")  # of `placelab train world`


def build(*, samples: int = 0, cheap: bool = False, order: bool = True, seconds: float = math.inf) -> Placer:
    """The greedy placement of a released policy, or the best of `samples`; of as many as the budget allows with 0.

    A limit of processor `seconds` allows as many as fit.

    Of a problem of more than 512 units one of several is METIS's plan, if there is time for that: none is behind it.
    With `cheap` some of those are plans of cheap placers, and passes of the policy over them. Without `order` ops run
    by the problem's rule, and not in the order that the policy chooses.
    Raises InputError if this copy of placelab comes without one of the policies.
    """
    for folder, recipe in ((RELEASED, "released"), (OF_PROGRAMS, "world")):
        if not (folder / "meta.json").is_file():
            raise InputError(
                f"the released policy is missing from {folder}; `placelab train {recipe} --out {folder}` makes it"
            )
    # frozen dataclasses, as all learned placers are
    of_programs: Any = placer_of(OF_PROGRAMS)
    learned: Any = placer_of(RELEASED, samples=samples, cheap=cheap, order=order)
    knobs = {"samples": samples, "cheap": cheap and "yes", "order": "" if order else "no"}
    name = by_name.spec_of("default", {knob: v for knob, v in knobs.items() if v})
    named: Any = replace(learned, name=name, of_programs=of_programs.policy, beside_baseline=True)
    limited: Placer = named if math.isinf(seconds) else named.within(seconds)
    return limited
