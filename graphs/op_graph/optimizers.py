"""Optimizers: what each keeps for a weight between steps, and what an update moves.

                state of a weight                             bytes of an element in BF16, with its gradient
    sgd         none                                          2 + 2 = 4,          with a master copy 2 + 2 + 4 = 8
    momentum    one tensor, in the precision of the weight    2 + 2 + 2 = 6,      2 + 2 + 4 + 4 = 12
    adam        two                                           2 + 2 + 2 + 2 = 8,  2 + 2 + 4 + 4 + 4 = 16
    adam8bit    two, of one byte an element                   2 + 2 + 1 + 1 = 6,  2 + 2 + 4 + 1 + 1 = 10

A graph with master weights (`OpGraph.master_weights`) has a copy of each weight in half precision in single precision,
and the state in single precision, too. Sources: Micikevicius et al. (2018) for master copies, Rajbhandari et al. (2020)
for the 16 bytes, Dettmers et al. (2022) for moments of one byte.
"""

from graphs.foundation.errors import InputError, unknown
from graphs.op_graph.precision import BYTES

NONE = "none"  # of weights whose bytes already include their gradients and state
_AS_WEIGHT = 0.0
_STATES = {"sgd": (), "momentum": (_AS_WEIGHT,), "adam": (_AS_WEIGHT, _AS_WEIGHT), "adam8bit": (1.0, 1.0)}  # an element
OPTIMIZERS = (*_STATES, NONE)
# Adam reads the weight, its gradient and two moments, and writes all but the gradient.
UPDATE_TRAFFIC = 7.0  # bytes per byte of weight


def check_optimizer(name: str) -> None:
    """Raise InputError for an unknown optimizer."""
    if name not in OPTIMIZERS:
        raise InputError(unknown("optimizer", name, OPTIMIZERS))


def state_share(optimizer: str, precision: str, *, has_master: bool) -> float:
    """Bytes of state, the weight and its gradient not included, per byte of a weight in a precision."""
    element, single = BYTES[precision], BYTES["fp32"]
    has_master = has_master and element < single
    states = [size or (single if has_master else element) for size in _STATES[optimizer]]
    return (sum(states) + single * has_master) / element
