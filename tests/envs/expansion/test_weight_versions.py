"""PipeDream: each micro-batch updates the weights, and backward passes read the version that forward passes read."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.expansion.pass_lists import BACKWARD, FORWARD, PassLists
from envs.plans.schedule import Sharing
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, drawn, servers

A, B = "early_backward_a", "early_backward_b"


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "in_flight"), [(A, [4, 3, 2, 1]), (f"{A}:in_flight=2", [2, 2, 2, 1]), (B, [7, 5, 3, 1])]
)
@pytest.mark.parametrize("micro_batches", [14, 20])
def test_a_version_is_held_for_each_micro_batch_in_flight_but_the_newest(
    order: str, in_flight: list[int], micro_batches: int
) -> None:
    """400 bytes of weights, gradients and Adam's state in each stage, and 100 of each earlier version."""
    chain = Pipeline(4, micro_batches, forward=1, backward=2, weights=100.0, update=0.5)
    timeline = simulate(chain.problem(optimizer="adam"), chain.plan(order, update="micro_batch"))
    assert timeline.peak_bytes.tolist() == [400 + 100 * (count - 1) for count in in_flight]


@pytest.mark.parametrize("replicas", [[2, 1], [3, 1, 1], [1, 3, 2], [2, 2, 1]])
def test_replicas_that_take_turns_hold_as_many_versions_as_mini_batches_in_flight(replicas: list[int]) -> None:
    """PipeDream's ceil(n / R) of n devices from a stage of R replicas on; parts of sums that pass come on top."""
    chain = Pipeline(len(replicas), 24, forward=1, backward=2, weights=100.0, update=0.5)
    plan = chain.plan(A, replicas=replicas, sharing="turns", update="micro_batch")
    peaks = simulate(chain.problem(servers(sum(replicas)), optimizer="adam"), plan).peak_bytes
    for stage, count in enumerate(replicas):
        first = sum(replicas[:stage])
        held = 400 + 100 * (-(-sum(replicas[stage:]) // count) - 1)
        assert peaks[first] == pytest.approx(held)
        assert (peaks[first : first + count] < held + 100).all()


def test_gpipe_reads_one_version_in_all_passes() -> None:
    chain = Pipeline(2, 5, weights=100.0)
    timeline = simulate(chain.problem(), chain.plan("gpipe", update="micro_batch"))
    assert timeline.peak_bytes.tolist() == [200, 200]
    assert timeline.expansion is not None
    assert (timeline.expansion.role == Role.VERSION).sum() == 2


def test_versions_are_kept_for_input_gradients_only() -> None:
    """Zero-bubble orders run weight gradients later; these need no weights. In the last stage the input gradients of
    the second micro-batch come after the first update, in the first stage before."""
    chain = Pipeline(2, 4, weight_gradient=1.0, weights=100.0)
    timeline = simulate(chain.problem(), chain.plan("zb_h1", update="micro_batch"))
    assert timeline.expansion is not None
    check_versions(timeline.expansion)


# ---- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "backward", "replicas", "order"),
    [
        ([1.0, 1.5, 1.0], [2.0, 2.0, 2.0], [1, 1, 1], A),
        ([1.0, 1.0], [2.0, 2.0], [2, 1], B),
        ([4.0, 1.0], [4.0, 2.0], [2, 1], B),
        ([2.0, 1.0, 2.0], [4.0, 2.0, 4.0], [2, 1, 2], B),
        ([4.0, 1.0], [4.0, 2.0], [2, 1], A),
        ([3.0, 1.0, 1.0], [6.0, 2.0, 2.0], [3, 1, 1], A),
    ],
)
def test_without_a_flush_the_slowest_stage_sets_the_period(
    forward: list[float], backward: list[float], replicas: list[int], order: str
) -> None:
    """A stage of R replicas that take turns passes R micro-batches in the time of one."""
    seconds = []
    for micro_batches in (60, 120):
        chain = Pipeline(len(replicas), micro_batches, forward=forward, backward=backward)
        plan = chain.plan(order, replicas=replicas, sharing="turns", update="micro_batch")
        seconds.append(simulate(chain.problem(servers(sum(replicas))), plan).step_seconds)
    period = max((f + b) / r for f, b, r in zip(forward, backward, replicas, strict=True))
    assert (seconds[1] - seconds[0]) / 60 == pytest.approx(period, abs=1e-6)


def test_updates_run_with_the_backward_passes_of_their_micro_batches() -> None:
    chain = Pipeline(2, 4, update=1)
    timeline = simulate(chain.problem(), chain.plan(A, update="micro_batch"))
    assert drawn(timeline) == [
        "F0 F1    B0 U0 F2 B1 U1 F3 B2 U2    B3 U3",
        "   F0 B0 U0 F1 B1 U1 F2 B2 U2 F3 B3 U3",
    ]


def test_replicas_that_take_turns_go_on_while_their_round_is_summed_up() -> None:
    """Each sum takes 4 s. The second one begins after the first update, whose gradients have been in its room."""
    chain = Pipeline(1, 4, weights=4.0, update=1)
    plan = chain.plan("gpipe", replicas=2, sharing="turns", update="micro_batch")
    assert drawn(simulate(chain.problem(servers(2, bandwidth=1.0)), plan)) == [
        "F0 F2 B0 B2          U0             U2",
        "F1 F3 B1 B3          U1             U3",
    ]


# ---- which version is read -------------------------------------------------------------------------------------------


def check_versions(expansion: Expansion) -> None:
    """Each backward pass reads the weights that its forward pass read: what an update since then has changed is copied
    before, and held until the backward pass."""
    layout = Layout(expansion.given, expansion.plan)
    lists, graph = PassLists.of(layout), expansion.problem.graph
    data = graph.edges[~graph.control]
    for stage, devices in enumerate(layout.stage_devices):
        for device in devices:
            own = (lists.stage == stage) & (lists.device == device)
            state, read, wanted = 0, dict[int, int](), set[tuple[int, int]]()
            updates: list[int] = []
            for kind, micro_batch in zip(lists.kind[own].tolist(), lists.micro_batch[own].tolist(), strict=True):
                if kind == FORWARD:
                    read[micro_batch] = state
                elif kind == BACKWARD + 1 or kind == BACKWARD:
                    wanted |= {(read[micro_batch], micro_batch)} if read[micro_batch] < state else set()
                if kind in (BACKWARD, BACKWARD + 2):
                    updates.append(micro_batch)
                    state += 1
            on = (expansion.stage == stage) & (expansion.placement == device)
            versions = np.flatnonzero(on & (expansion.role == Role.VERSION))
            found = {
                (updates.index(int(expansion.micro_batch[version])), int(expansion.micro_batch[reader]))
                for version in versions
                for reader in data[data[:, 0] == version, 1]
            }
            assert found == wanted
            assert len(versions) == len({version for version, _ in wanted})


@settings(max_examples=examples(60, 9), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 8), st.sampled_from(("split", "turns")),
    st.sampled_from((A, B, "gpipe", "zb_h1")),
)  # fmt: skip
def test_backward_passes_read_what_forward_passes_read(
    replicas: list[int], micro_batches: int, sharing: Sharing, order: str
) -> None:
    micro_batches *= int(np.lcm.reduce(replicas)) if sharing == "turns" else 1
    chain = Pipeline(len(replicas), micro_batches, weight_gradient=1.0, weights=10.0)
    plan = chain.plan(order, replicas=replicas, sharing=sharing, update="micro_batch")
    check_versions(expand(chain.problem(servers(sum(replicas))), plan))


def test_an_order_of_passes_is_needed() -> None:
    chain = Pipeline(2, 4)
    with pytest.raises(InputError, match="name an order of passes"):
        expand(chain.problem(), chain.plan(update="micro_batch"))
