"""What `torchrun` starts for this study: updates of several ranks, timed by the first."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from evaluation.studies.scaling.clock import COMMUNICATE, Clock, ClockedRanks
from evaluation.studies.scaling.measure import ALL_REDUCES, COUNTS, SEED, WARMING, Size, Timed, once, trainer_of
from graphs.foundation.files import write_whole
from graphs.foundation.items import ThisProcess
from training.ranks import joined


def measure(phase: str, size: Size, file: Path) -> None:
    """Write mean seconds of an update, and what of it the ranks talk or wait; no rank ends before the file is there."""
    with joined() as own:
        clock = Clock(time.perf_counter)
        ranks = ClockedRanks(own.rank, own.count, clock)
        for seed in (WARMING, SEED):
            trainer = trainer_of(phase, size, seed, ranks=ranks, shards=COUNTS[-1])
            trainer.engine = ThisProcess()
            ranks.wait()
            clock.start()
            begin = time.perf_counter()
            for _ in range(size.updates if seed == SEED else 1):
                once(trainer, phase)
            seconds = time.perf_counter() - begin
        talk = clock.seconds[COMMUNICATE]
        weights = list(trainer.policy.parameters())
        ranks.wait()
        begin = time.perf_counter()
        for _ in range(ALL_REDUCES):
            ranks.add_gradients(weights)
        all_reduce = (time.perf_counter() - begin) / ALL_REDUCES
        timed = Timed(
            phase=phase, by="ranks", count=own.count, seconds=seconds / size.updates, communicate=talk / size.updates,
            all_reduce=all_reduce if own.count > 1 else 0.0,
        )  # fmt: skip
        if own.is_first:
            write_whole(file, msgspec.json.encode(timed))
        ranks.wait()


if __name__ == "__main__":
    phase, updates, small, file = sys.argv[1:]
    measure(phase, Size(int(updates), bool(int(small))), Path(file))
