"""States of Placeto's MDP as tensors: graphs of any sizes side by side, with ancestors and descendants of each unit.

Edges are those of the forward pass, as for the other policies: with the backward pass, whose ops are tied to the
forward ones, every unit would be an ancestor of every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.gym.observations import FEATURES, Progress
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Ints
from graphs.problem import Problem

ANCESTOR, DESCENDANT, PARALLEL = 1, 2, 4  # bits: in a cycle of groups a unit may be both before and after another

MOST_UNITS = 4000  # a table of the kin of each takes 16 MB then; the paper's graphs have up to 160


@dataclass(frozen=True, eq=False)
class Relatives:
    """Who is whose ancestor: the sets that Placeto pools over (section 3.2)."""

    edges: Ints  # (2, edges) producer unit, consumer unit
    kin: NDArray[np.uint8]  # (units, units) [v, u]: what u is to v; 0 to itself

    @classmethod
    def of(cls, problem: Problem) -> Relatives:
        """The relatives of a problem's units; parallel are those that are neither before nor after.

        Raises InputError for more than MOST_UNITS.
        """
        graph, units = problem.graph, problem.units
        if graph.num_units > MOST_UNITS:
            raise InputError(
                f"graph {graph.name!r} has {graph.num_units} units, and Placeto looks at all of them once for each; "
                f"tie its ops into {MOST_UNITS} groups at most (`groups={MOST_UNITS}`)"
            )
        after = _reaches(units.forward_edges, units.order)
        kin = ANCESTOR * after.T + DESCENDANT * after + PARALLEL * ~(after | after.T)
        np.fill_diagonal(kin, 0)
        return cls(np.ascontiguousarray(units.forward_edges.T), kin.astype(np.uint8))


@dataclass(frozen=True, eq=False)
class States:
    """A batch of states as one graph without edges between its parts.

    A state is one part, or one for each device if its features are free of devices.
    """

    nodes: Tensor  # (nodes, columns) float32
    edges: Tensor  # (2, edges) producer node, consumer node
    kin: Tensor  # (nodes,) uint8: what each is to the current unit of its part
    part: Tensor  # (nodes,)
    current: Tensor  # (parts,) node
    state: Tensor  # (parts,) which state the part shows
    device: Tensor  # (parts,) which device it is for; 0 if for all

    @classmethod
    def of(cls, states: Sequence[Progress], relatives: Sequence[Relatives], features: str) -> States:
        """Stack states of any sizes, each with its problem's relatives, showing `features` of the environment."""
        nodes = [FEATURES[features].of(state) for state in states]
        copies = np.array([len(each) for each in nodes])
        sizes = np.array([each.shape[1] for each in nodes])
        part_sizes = np.repeat(sizes, copies)
        first = np.concatenate([[0], part_sizes.cumsum()[:-1]])  # (parts,) node
        of_part = np.repeat(np.arange(len(states)), copies)  # (parts,) state
        edges = [relatives[s].edges + offset for s, offset in zip(of_part.tolist(), first, strict=True)]
        kin = [relatives[s].kin[states[s].current] for s in of_part.tolist()]
        current = first + np.array([state.current for state in states])[of_part]
        device = np.concatenate([np.arange(count) for count in copies])
        return cls(
            torch.from_numpy(np.concatenate([each.reshape(-1, each.shape[2]) for each in nodes])),
            torch.from_numpy(np.concatenate(edges, axis=1)),
            torch.from_numpy(np.concatenate(kin)),
            torch.from_numpy(np.repeat(np.arange(len(part_sizes)), part_sizes)),
            torch.from_numpy(current),
            torch.from_numpy(of_part),
            torch.from_numpy(device),
        )


def _reaches(edges: Ints, order: Ints) -> Bools:
    """(units, units) whether a path of one edge or more leads from the first to the second; `order` is the visits'.

    What a consumer reaches, its producers reach, too: from the last producer to the first, once if there is no cycle
    among the units, else until nothing changes.
    """
    reaches: Bools = np.zeros((len(order), len(order)), np.bool_)
    place = np.argsort(order)
    backwards = edges[np.argsort(-place[edges[:, 0]], kind="stable")].tolist()
    known = -1
    while known < (known := int(reaches.sum())):
        for producer, consumer in backwards:
            reaches[producer] |= reaches[consumer]
            reaches[producer, consumer] = True
    return reaches
