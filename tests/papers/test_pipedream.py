"""PipeDream's optimizer meets the bottlenecks of the released one, and brute force on chains."""

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.formats.pipedream import LayerProfile, ProfiledLayer, load_layer_profile
from graphs.foundation.errors import InputError
from tests.papers.pipedream_optimizer import LinkLevel, bottleneck
from tests.papers.pipedream_states import States, states_of

DATA = Path(__file__).parents[3] / "shared" / "data" / "pipedream"
MEMORY = 16e9  # bytes, where the released optimizer minds it


def references() -> list[dict[str, str]]:
    path = DATA / "reference.csv"
    rows = csv.DictReader(path.read_text().splitlines()) if path.is_file() else []
    return [row for row in rows if row["bottleneck_s"]]


def test_every_bottleneck_of_the_released_optimizer_is_met() -> None:
    rows = references()
    if not rows:
        pytest.skip("the profiles of PipeDream are not at hand")
    states = {model: states_of(load_layer_profile(DATA / f"{model}.txt")) for model in {row["model"] for row in rows}}
    for row in rows:
        machines, bandwidths = row["machines"].split("x"), row["bandwidth_GBs"].split("/")
        levels = [LinkLevel(int(m), float(b) * 1e9) for m, b in zip(machines, bandwidths, strict=True)]
        found = bottleneck(
            states[row["model"]],
            levels,
            transfers=bool(row["activation_compression_ratio"]),
            straight=row["straight"] == "True",
            memory_bytes=MEMORY if row["memory_constraint"] == "True" else math.inf,
        )
        assert len(states[row["model"]]) == int(row["states"])
        assert found == pytest.approx(float(row["bottleneck_s"]), rel=1e-9)


def chain(drawn: list[tuple[int, int, int]]) -> LayerProfile:
    layers = tuple(
        ProfiledLayer(f"node{i}", "Conv2d", seconds / 3, 2 * seconds / 3, (float(size),), False, float(parameters))
        for i, (seconds, size, parameters) in enumerate(drawn)
    )
    return LayerProfile("chain", layers, tuple((f"node{i}", f"node{i + 1}") for i in range(len(layers) - 1)))


def brute_force(states: States, machines: int, bandwidth: float, as_in_paper: bool) -> float:
    """Every way to cut a chain, and every number of replicas of each stage; as the paper counts transfers."""
    layers, best = len(states), math.inf
    totals = [np.concatenate([[0.0], values]) for values in (states.seconds, states.parameter_bytes)]
    for stages in range(1, machines + 1):
        for cuts in itertools.combinations(range(1, layers), stages - 1):
            bounds = [0, *cuts, layers]
            for replicas in itertools.product(range(1, machines + 1), repeat=stages):
                if sum(replicas) != machines:
                    continue
                slowest = 0.0
                for begin, end, count in zip(bounds, bounds[1:], replicas, strict=False):
                    seconds, parameters = (total[end] - total[begin] for total in totals)
                    exchange = 4 * (count - 1) * parameters / (bandwidth * count)
                    together = max(seconds, exchange) if as_in_paper else seconds + exchange
                    slowest = max(slowest, together / count)
                    if as_in_paper and begin:
                        slowest = max(slowest, 2 * states.output_bytes[begin - 1] / bandwidth)
                best = min(best, slowest)
    return best


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=6),
    st.integers(1, 4),
    st.booleans(),
)
def test_on_a_chain_it_is_the_best_of_all_pipelines(
    drawn: list[tuple[int, int, int]], machines: int, as_in_paper: bool
) -> None:
    states = states_of(chain(drawn))
    assert len(states) == len(drawn)
    level = [LinkLevel(machines, 2.0)]
    found = bottleneck(states, level, transfers=as_in_paper, as_in_paper=as_in_paper)
    assert found == pytest.approx(brute_force(states, machines, 2.0, as_in_paper))


def test_a_branch_that_is_read_later_stays_in_the_state() -> None:
    """a feeds b and d, b feeds c, c and d end: while d is open, a's output is still to be handed on."""
    layers = tuple(ProfiledLayer(i, "ReLU", 1.0, 0.0, (10.0**power,), False, 0.0) for power, i in enumerate("abcd"))
    states = states_of(LayerProfile("branch", layers, (("a", "b"), ("b", "c"), ("a", "d"))))
    assert states.antichains[0] == ("a",)
    assert set(states.antichains) == {("a",), ("a", "b"), ("a", "c"), ("a", "d"), ("a", "b", "d"), ("a", "c", "d")}
    of = {antichain: position for position, antichain in enumerate(states.antichains)}
    assert states.output_bytes[of["a", "b"]] == 11
    assert states.seconds[of["a", "c"]] == 3
    assert states.seconds[of["a", "c", "d"]] == 4
    assert states.comes_before[of["a", "b"], of["a", "c", "d"]]
    assert not states.comes_before[of["a", "c"], of["a", "b", "d"]]


def test_what_makes_no_sense_is_refused() -> None:
    states = states_of(chain([(1, 1, 1)] * 3))
    with pytest.raises(InputError, match="levels of at least one machine"):
        bottleneck(states, [])
    loop = LayerProfile("loop", chain([(1, 1, 1)] * 2).layers, (("node0", "node1"), ("node1", "node0")))
    with pytest.raises(InputError, match="'loop' is cyclic"):
        states_of(loop)
    inputs = LayerProfile("inputs", (ProfiledLayer("node1", "Input0", 0.0, 0.0, (1.0,), False, 0.0),), ())
    with pytest.raises(InputError, match="nothing but inputs"):
        states_of(inputs)
    wide = chain([(1, 1, 1)] * 2).layers[:1] + tuple(
        ProfiledLayer(f"n{i}", "ReLU", 1.0, 0.0, (1.0,), False, 0.0) for i in range(14)
    )
    with pytest.raises(InputError, match="more than 3,000 states"):
        states_of(LayerProfile("wide", wide, tuple(("node0", f"n{i}") for i in range(14))))
