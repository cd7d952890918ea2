"""Merit: what plans are compared by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Merit(NamedTuple):
    """What is compared: plans that fit are better than others, then those of less value are."""

    lacking: float  # bytes that devices lack
    value: float  # seconds of the objective


NONE = Merit(np.inf, np.inf)  # of what is no plan for the problem
