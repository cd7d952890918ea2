"""ModuleHomes: the modules of a model, and of each the devices that its ops run on, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.timelines.timeline import Timeline
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.op_graph import Floats, Ints, OpGraph

OUTSIDE = -1


@dataclass(frozen=True, eq=False)
class ModuleHomes:
    """The modules by their paths, the model itself first, each before those that are in it."""

    paths: list[str]
    parent: list[int]  # (modules,) the one that each is in, or -1
    chain: Ints  # (ops, depths) the modules that each op is in, from the model itself inwards, or -1

    @classmethod
    def of(cls, graph: OpGraph) -> ModuleHomes:
        """Those of a graph, by the names of its ops; the passes of a training step are together."""
        number, parent = {"": 0}, [OUTSIDE]
        chains = list[list[int]]()
        for name in graph.names:
            path, chain = name.rpartition("/")[0], [0]
            parts = path.split(".") if path else []
            for depth in range(1, len(parts) + 1):
                module = ".".join(parts[:depth])
                if module not in number:
                    number[module] = len(number)
                    parent.append(chain[-1])
                chain.append(number[module])
            chains.append(chain)
        deepest = max(map(len, chains), default=1)
        padded = [chain + [OUTSIDE] * (deepest - len(chain)) for chain in chains]
        return cls(list(number), parent, np.array(padded, np.int64).reshape(len(chains), deepest))

    def ops(self) -> list[int]:
        """(modules,) how many ops are in each."""
        return [int(count) for count in self._summed(np.ones(len(self.chain)))]

    def seconds(self, timeline: Timeline) -> list[float]:
        """(modules,) seconds that devices are busy with the ops of each, of all micro-batches and replicas together."""
        took: Floats = timeline.finish - timeline.start
        expansion = timeline.expansion
        if expansion is not None:
            acts = expansion.origin >= 0
            took = np.bincount(expansion.origin[acts], took[acts], len(self.chain)).astype(np.float64)
        return [float(each) for each in self._summed(took)]

    def devices(self, placed: SimulatedPlan) -> list[list[int]]:
        """(modules,) the devices that ops of each are placed on."""
        op = np.repeat(np.arange(len(self.chain)), [len(each) for each in placed.plan.devices])
        device = np.array([device for each in placed.plan.devices for device in each], np.int64)
        found: list[list[int]] = [[] for _ in self.paths]
        for depth in range(self.chain.shape[1]):
            module = self.chain[op, depth]
            is_in = module != OUTSIDE
            for each, one in np.unique(np.stack([module[is_in], device[is_in]], axis=1), axis=0).tolist():
                found[each].append(one)
        return found

    def _summed(self, of_ops: Floats) -> Floats:
        """(modules,) the sums of (ops,) values."""
        total = np.zeros(len(self.paths))
        for depth in range(self.chain.shape[1]):
            is_in = self.chain[:, depth] != OUTSIDE
            np.add.at(total, self.chain[is_in, depth], of_ops[is_in])
        return total
