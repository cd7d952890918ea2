"""Merit: what plans are compared by."""

from typing import NamedTuple

import numpy as np


class Merit(NamedTuple):
    """What is compared: plans that fit are better than others, then those of less value are."""

    lacking: float  # bytes that devices lack
    value: float  # seconds of the objective


INVALID = Merit(np.inf, np.inf)  # of plans that are not valid for the problem
