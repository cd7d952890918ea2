"""Time steps: which ops of a captured graph are the same op at another step of a recurrent network.

A capture unrolls the network: a cell that is called 20 times is 20 ops "layers.0.gates/mm", "layers.0.gates/mm_1", ...
that read the same weight. What a cell does besides, such as its three products "layers.0/mul", then comes 60 times, the
first three in the first step. Tofu ties steps likewise, position by position (Wang et al. 2019, section 5.2).
"""

import re
from collections import Counter, defaultdict

from graphs.op_graph import OpGraph, Phase

_NUMBER = re.compile(r"_\d+$")
FEWEST = 0.5  # of the steps: what comes less often is not part of each


def tied_steps(graph: OpGraph) -> list[tuple[object, ...]]:
    """(ops,) what is equal for forward ops that are at the same place of different time steps; of others, themselves.

    The steps of a module are as many as calls of one kind by it read one weight, or of the network where a module has
    no weights.
    """
    sites: dict[tuple[str, str], list[int]] = defaultdict(list)  # by module and kind, in the order of the program
    for op in range(len(graph)):
        if graph.phase[op] == Phase.FORWARD:
            module, _, call = graph.names[op].rpartition("/")
            sites[module, _NUMBER.sub("", call)].append(op)
    site_of = {op: site for site, ops in sites.items() for op in ops}
    users = Counter((site_of[op], weight) for op, weight in graph.weight_uses.tolist() if op in site_of)
    steps: dict[str, int] = {}  # of each module
    for ((module, _), _), count in users.items():
        if count > 1:
            steps[module] = max(count, steps.get(module, 0))
    keys: list[tuple[object, ...]] = [(op,) for op in range(len(graph))]
    if not steps:
        return keys
    usual = Counter(steps.values()).most_common(1)[0][0]
    for (module, call), ops in sites.items():
        inside = [count for other, count in steps.items() if other == module or other.startswith(f"{module}.")]
        count = max(inside, default=usual)
        if len(ops) % count == 0 or count * FEWEST <= len(ops) < count:
            each = max(len(ops) // count, 1)
            for place, op in enumerate(ops):
                keys[op] = (module, call, place % each)
    return keys
