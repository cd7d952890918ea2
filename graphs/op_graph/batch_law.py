"""BatchLaw: how many samples a step has, and what of each op does not grow with them."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Amounts = NDArray[np.float64]
COSTS = ("flops", "bytes_accessed", "output_bytes")  # of an op; what the law is about


def _not_known() -> Amounts:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class BatchLaw:
    """FLOPs, bytes accessed and output bytes of an op are a fixed part, and a part in proportion to the batch.

    That is exact for the ops of a captured model (`graphs.capture.second_batch`). Fixed are the weights that an op
    reads, the gradients of weights, updates, and what is computed from positions or masks alone. Without the arrays
    only the samples are known, and a rule says what is fixed (`graphs.transforms.batch.law_of`).
    """

    samples: int = 0  # of a step; 0 if not known
    flops: Amounts = field(default_factory=_not_known)  # (ops,) the fixed part, FLOP
    bytes_accessed: Amounts = field(default_factory=_not_known)  # (ops,) the fixed part, bytes
    output_bytes: Amounts = field(default_factory=_not_known)  # (ops,) the fixed part, bytes

    def __post_init__(self) -> None:
        for key in COSTS:
            array = np.array(getattr(self, key), np.float64)
            array.flags.writeable = False
            object.__setattr__(self, key, array)

    @property
    def knows_ops(self) -> bool:
        """Whether the fixed parts are known, and not the samples alone."""
        return any(len(getattr(self, key)) for key in COSTS)
