"""The network's last layers in a roll-out: the score of every device that a unit may go to, one row after another."""

import numpy as np

from envs.simulation.compiled import inlined
from graphs.op_graph import Ints
from placers.learned.sequential.state import RolloutState, ScoreLayers, Singles


@inlined
def score_choices(layers: ScoreLayers, unit: int, choices: Ints, features: Singles, state: RolloutState) -> None:
    """Write the score of every choice: the network's last layers, in single precision as in training."""
    hidden, narrow = state.hidden, state.narrow
    for device in choices:
        x = features[device]
        score = np.float32(0.0)
        for i in range(len(x)):
            score += layers.skip[i] * x[i]
        for k in range(len(hidden)):
            hidden[k] = layers.state[unit, k]
        _add_product(hidden, layers.first, x)
        for k in range(len(hidden)):
            hidden[k] = max(hidden[k], np.float32(0.0))
        for k in range(len(narrow)):
            narrow[k] = layers.bias[k]
        _add_product(narrow, layers.second, hidden)
        for k in range(len(narrow)):
            score += layers.out[k] * max(narrow[k], np.float32(0.0))
        state.score[device] = score


@inlined
def _add_product(sums: Singles, table: Singles, x: Singles) -> None:
    """Add x @ table to the sums, eight rows of the table at a time: a sum is read and written an eighth as often."""
    eights = len(x) // 8 * 8
    for i in range(0, eights, 8):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        e, f, g, h = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
        for k in range(len(sums)):
            more = sums[k] + table[i, k] * a + table[i + 1, k] * b
            more = more + table[i + 2, k] * c + table[i + 3, k] * d
            more = more + table[i + 4, k] * e + table[i + 5, k] * f
            sums[k] = more + table[i + 6, k] * g + table[i + 7, k] * h
    for i in range(eights, len(x)):
        for k in range(len(sums)):
            sums[k] += table[i, k] * x[i]
