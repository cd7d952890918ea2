"""Pipelines whose stages are divided inside, by the shards of a server (tensor parallelism), to begin a search with.

    8 devices in servers of 4, widths 2 and 4        width 4, 2 stages:     0 1 2 3 | 4 5 6 7
                                                     width 2, 2 stages:     0 1, 2 3 | 4 5, 6 7    two replicas each

All devices are used, in equal stages of equal width; a search then changes single stages (`placers.pipelines.moves`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from envs.pipelines.pipeline import LayerPipeline
from placers.pipelines.proposals import Proposer

FOR_EACH = (2, 4)  # micro-batches for each stage, or the numbers next to these; ours


@dataclass(frozen=True, eq=False)
class DividedPipelines:
    """What is proposed for a problem."""

    proposer: Proposer

    @property
    def widths(self) -> tuple[int, ...]:
        """How many shards there may be: what divides the number of devices of every server, from 2 on."""
        most = math.gcd(*map(len, self._servers))
        return tuple(width for width in range(2, most + 1) if most % width == 0)

    def proposals(self) -> Iterator[LayerPipeline]:
        """The widest first, cut by the formula for the first shards."""
        for width in self.widths[::-1]:
            groups = [
                tuple(server[first : first + width])
                for server in self._servers
                for first in range(0, len(server), width)
            ]
            for stages in range(1, min(len(groups), len(self.proposer.grain.layers)) + 1):
                if len(groups) % stages == 0:
                    yield from self._of(groups, len(groups) // stages)

    def _of(self, groups: list[tuple[int, ...]], replicas: int) -> Iterator[LayerPipeline]:
        """Pipelines whose stages have `replicas` groups of shards each."""
        several = [groups[first : first + replicas] for first in range(0, len(groups), replicas)]
        possible = self.proposer.micro_batches(len(several), replicas)
        wanted = [1] if len(several) == 1 else [times * len(several) for times in FOR_EACH]
        counts = {min(possible, key=lambda count: abs(count - each)) for each in wanted if possible}
        for count in sorted(counts):
            cut = self.proposer.cut(tuple(tuple(group[0] for group in each) for each in several), count).pipeline
            stages = tuple(
                replace(stage, devices=sum(each, ()), shards=len(groups[0]))
                for stage, each in zip(cut.stages, several, strict=True)
            )
            yield replace(cut, stages=stages)

    @property
    def _servers(self) -> list[list[int]]:
        """The devices of each server, in ascending order."""
        found: dict[int, list[int]] = {}
        for device in sorted(self.proposer.devices.used):
            found.setdefault(int(self.proposer.server[device]), []).append(device)
        return list(found.values())
