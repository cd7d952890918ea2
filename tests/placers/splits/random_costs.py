"""Random pairwise costs, and all their assignments."""

import itertools

import numpy as np

from placers.splits.pairwise_costs import PairwiseCosts, Term


def random_costs(seed: int, *, most_variables: int = 8, most_choices: int = 4) -> PairwiseCosts:
    """Any graph, also with parallel terms, terms of a variable with itself, and forbidden pairs of choices."""
    rng = np.random.default_rng(seed)
    variables = int(rng.integers(1, most_variables + 1))
    choices = rng.integers(1, most_choices + 1, variables)
    terms: list[Term] = []
    for _ in range(int(rng.integers(0, 2 * variables + 1))):
        u, v = (int(x) for x in rng.integers(0, variables, 2))
        table = rng.random((choices[u], choices[v]))
        if rng.random() < 0.2 and u != v:
            table[1:, -1] = np.inf  # the first choice of u goes with all
        terms.append((u, v, table))
    return PairwiseCosts.summed([rng.random(length) for length in choices], terms)


def series_parallel(seed: int, *, most_steps: int = 8, most_choices: int = 4) -> PairwiseCosts:
    """A graph made of one edge by dividing edges and doubling them, its edges from the source to the sink."""
    rng = np.random.default_rng(seed)
    edges, count = [(0, 1)], 2
    for _ in range(int(rng.integers(0, most_steps + 1))):
        u, v = edges[at := int(rng.integers(len(edges)))]
        if rng.random() < 0.6:
            edges[at : at + 1] = [(u, count), (count, v)]
            count += 1
        else:
            edges.append((u, v))
    choices = rng.integers(2, most_choices + 1, count)
    alone = [rng.random(length) for length in choices]
    return PairwiseCosts.summed(alone, [(u, v, rng.random((choices[u], choices[v]))) for u, v in edges])


def assignments(costs: PairwiseCosts) -> list[tuple[float, tuple[int, ...]]]:
    """All assignments with their costs."""
    every = itertools.product(*(range(length) for length in costs.choices.tolist()))
    return [(costs.cost(chosen), chosen) for chosen in every]
