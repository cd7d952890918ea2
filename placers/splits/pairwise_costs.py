"""Pairwise costs: variables with a few choices each, what a choice costs, and what choices of two variables cost.

    alone   v: (choices of v,)                      of layer v: compute and parameter synchronisation of a configuration
    pair  u-v: (choices of u, choices of v)         of edge u-v: moving the tensor between two configurations

The cost of an assignment is the sum of all these. That is OptCNN's objective t_C + t_S + t_X (Jia et al. 2018), and
Tofu's bytes moved (Wang et al. 2019), where a variable says by which index an op is divided. The field knows the
problem as a weighted constraint network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints

Term = tuple[int, int, Floats]  # two variables, (choices of the first, choices of the second) cost


@dataclass(frozen=True, eq=False)
class PairwiseCosts:
    """Costs of assignments. An infinite one forbids a choice, or two choices together."""

    alone: tuple[Floats, ...]  # per variable, (choices,)
    pairs: Ints  # (pairs, 2) two variables, in the direction in which they were first given; no two variables twice
    together: tuple[Floats, ...]  # per pair, (choices of the first, choices of the second)

    def __len__(self) -> int:
        return len(self.alone)

    @classmethod
    def summed(cls, alone: Sequence[Floats], terms: Iterable[Term]) -> PairwiseCosts:
        """Costs of variables, and of any two of them: terms of the same two are added up, whatever their direction.

        A term of a variable with itself adds its diagonal to the variable's own costs: so tied ops, such as the time
        steps of a recurrent network, are one variable whose costs count as often as there are ops. A term of a variable
        with one choice is added to the other's own costs.
        Raises InputError for a variable without a choice, a term of other choices, NaN, or minus infinity.
        """
        own = [np.array(costs, np.float64) for costs in alone]
        added: dict[tuple[int, int], Floats] = {}  # those of one term as they were given
        for first, second, costs in terms:
            if np.shape(costs) != (len(own[first]), len(own[second])):
                raise InputError(
                    f"costs of variables {first} and {second} have shape {np.shape(costs)}; "
                    f"expected {(len(own[first]), len(own[second]))}, their choices"
                )
            if first == second:
                own[first] += np.diagonal(costs)
            elif 1 in np.shape(costs):
                own[first if np.shape(costs)[1] == 1 else second] += np.ravel(costs)
            elif (first, second) in added:
                added[first, second] = added[first, second] + costs
            elif (second, first) in added:
                added[second, first] = added[second, first] + costs.T
            else:
                added[first, second] = np.asarray(costs, np.float64)
        for variable, costs in enumerate(own):
            if not len(costs):
                raise InputError(f"variable {variable} has no choice; each needs at least one")
        every = [*enumerate(own), *added.items()]
        if not (np.concatenate([np.ravel(costs) for _, costs in every] or [np.zeros(0)]) > -np.inf).all():  # NaN is not
            where = next(where for where, costs in every if not (costs > -np.inf).all())
            raise InputError(f"costs of {where} hold NaN or minus infinity; expected numbers, or infinity")
        return cls(tuple(own), np.array(list(added), np.int64).reshape(-1, 2), tuple(added.values()))

    @property
    def choices(self) -> Ints:
        """(variables,) how many choices each has."""
        return np.array([len(costs) for costs in self.alone], np.int64)

    def terms(self) -> Iterator[Term]:
        """The costs of each pair."""
        for (u, v), together in zip(self.pairs.tolist(), self.together, strict=True):
            yield u, v, together

    def cost(self, chosen: Sequence[int] | Ints) -> float:
        """What an assignment, (variables,) a choice of each, costs."""
        own = sum(float(costs[choice]) for costs, choice in zip(self.alone, chosen, strict=True))
        return own + sum(float(costs[chosen[u], chosen[v]]) for u, v, costs in self.terms())

    def plus(self, alone: Sequence[Floats]) -> PairwiseCosts:
        """The same with more costs of each variable, (choices,)."""
        own = tuple(mine + more for mine, more in zip(self.alone, alone, strict=True))
        return PairwiseCosts(own, self.pairs, self.together)


@dataclass(frozen=True, eq=False)
class Assignment:
    """A choice of each variable, and what it costs."""

    chosen: Ints  # (variables,)
    cost: float


def assigned(costs: PairwiseCosts, chosen: Ints) -> Assignment:
    """An assignment with its cost, added up from the given costs. Raises InputError if it is infinite."""
    cost = costs.cost(chosen)
    if not cost < np.inf:
        raise InputError("every assignment is forbidden: some variables have no choices that go together; offer more")
    return Assignment(chosen, cost)
