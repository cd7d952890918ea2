"""Another batch: a graph as if its step had been captured with another number of samples."""

from dataclasses import replace

from graphs.descriptions.descriptions import descriptions_of
from graphs.notation.described import Described, of_part
from graphs.notation.operator import Operator
from graphs.op_graph import OpGraph
from graphs.transforms.batch import check_samples, law_of, samples_of, scaled


def with_batch(graph: OpGraph, samples: int) -> OpGraph:
    """The same graph, with what it costs and what its ops compute when a step has that many samples.

    An op whose index of samples does not have a whole number of values then, is no longer described.
    Raises InputError for less than one sample, and for a graph that does not say how many it has.
    """
    check_samples(samples)
    own = samples_of(graph)
    if samples == own:
        return graph
    law = replace(law_of(graph), samples=samples)
    return replace(scaled(graph, samples, own), batch_law=law, described=_descriptions(graph, samples, own))


def _descriptions(graph: OpGraph, samples: int, own: int) -> tuple[Described | None, ...]:
    """(ops,) descriptions for another number of samples; ops that share an operator still do."""
    made: dict[tuple[Operator, str], Operator | None] = {}
    found = list[Described | None]()
    for each in descriptions_of(graph):
        if each is None:
            found.append(None)
            continue
        key = each.operator, each.batch
        if key not in made:
            made[key] = of_part(*key, samples, own)
        operator = made[key]
        found.append(None if operator is None else replace(each, operator=operator))
    return tuple(found)
