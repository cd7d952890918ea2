"""A region of reentrant checkpointing runs as it is within the forward pass, and where it is computed again as then."""

from envs.placed_models.recomputation import _at_first


def test_a_region_runs_as_it_is_the_first_time_alone() -> None:
    run = _at_first(lambda x: ("forward", x), lambda x: ("again", x))
    assert [run(1), run(2), run(3)] == [("forward", 1), ("again", 2), ("again", 3)]
