"""Rounds: how many samples a policy draws at a time where its processor seconds are limited.

The first round has a few, or fewer where a sample is expected to take long. From what it takes follows what encoding
the problem takes, and each sample, well enough to fill the rest of the time with one or two rounds more:

    seconds    [ encode, 8 samples ][ encode, 32 samples at most ][ encode, as many as fit ] ...
"""

import math
import time
from collections.abc import Iterator

FIRST = 8  # samples of the first round
GROWTH = 4  # a round has at most so many times the samples of the one before: what it takes is an estimate
ENCODING = 14.0  # samples that take as long as encoding does, as measured of `sequential`


def rounds(seconds: float, most: int, expected: float = 0.0) -> Iterator[int]:
    """Yield the samples of each round, `most` in all, until processor seconds would be over; one sample at least.

    `expected` is an estimate of the seconds of a sample, if there is one.
    Whoever draws them does so before asking for the next. Without a limit it is a single round.
    """
    if math.isinf(seconds):
        yield most
        return
    started = time.process_time()
    count = min(FIRST, most, max(int(seconds / max(expected, 1e-9) - ENCODING), 1))
    while count > 0:
        began = time.process_time()
        yield count
        most -= count
        now = time.process_time()
        each = (now - began) / (count + ENCODING)
        fitting = (seconds - (now - started)) / max(each, 1e-9) - ENCODING
        count = min(int(max(fitting, 0.0)), GROWTH * count, most)
