"""What processes say of themselves tells one that is stopped, those that wait for each other, and one that is slow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from envs.running.progress import PATIENCE, Activity, Alive, Watch


@dataclass
class Event:
    """A mark of a GPU."""

    reached: bool = False

    def query(self) -> bool:
        return self.reached


def test_a_process_does_what_it_has_noted_last() -> None:
    progress = Activity()
    assert progress.now() == Alive()
    progress.note("op 'a'")
    progress.note("'b' of process 1", waits=True)
    assert progress.now() == Alive(2, "'b' of process 1", True)
    assert progress.now() == Alive(2, "'b' of process 1", True)


def test_a_gpu_does_what_it_was_given_before_the_first_mark_that_it_has_not_reached() -> None:
    progress = Activity()
    marks: list[Any] = [Event(), Event(), Event()]
    for number, mark in enumerate(marks):
        progress.note(f"op {number}", waits=number == 1, after=mark)
    assert progress.now() == Alive()
    marks[0].reached = marks[1].reached = True
    assert progress.now() == Alive(2, "op 1", True)
    marks[2].reached = True
    assert progress.now() == Alive(3, "op 2")


def watched(*said: Alive, until: float) -> Watch:
    """Processes that say the same every second."""
    watch, now = Watch(range(len(said)), 0.0), 0.0
    while now < until:
        now += 1.0
        for rank, each in enumerate(said):
            watch.hear(rank, each, now)
    return watch


WAITS, COMPUTES = Alive(3, "what op 'x' sends from process 1", waits=True), Alive(5, "op 'y'")


def test_steps_count_that_all_processes_have_ended_and_losses_of_the_same_step() -> None:
    begins = Alive(1, "the preparation of its part of the step")
    assert watched(begins, until=1.0).reached() == "process 0 does the preparation of its part of the step"
    first, second = Alive(9, "a step", steps=2, loss=1.5), Alive(9, "a step", steps=2, loss=0.75)
    assert watched(first, second, until=1.0).reached() == "step 2 has ended with a loss of 2.25"
    assert watched(first, replace(second, steps=3), until=1.0).reached() == "step 2 has ended"


def test_who_says_nothing_is_named() -> None:
    watch = watched(WAITS, COMPUTES, until=10.0)
    late = 10.0 + PATIENCE
    assert not watch.wrong(late)
    watch.hear(0, WAITS, late)
    assert watch.wrong(late + 1) == "process 1 has said nothing for 25 seconds, since op 'y'"
    watch.leave(1, late)
    assert not watch.wrong(late + 1)


def test_those_that_wait_for_each_other_are_named_with_what_they_wait_for() -> None:
    late = PATIENCE + 2.0
    other = Alive(3, "what op 'z' sends from process 0", waits=True)
    assert not watched(WAITS, other, until=PATIENCE).wrong(PATIENCE)
    assert watched(WAITS, other, until=late).wrong(late) == (
        "no process goes on: process 0 waits for what op 'x' sends from process 1, "
        "process 1 waits for what op 'z' sends from process 0"
    )


@pytest.mark.parametrize("others", [(WAITS, COMPUTES), (COMPUTES, WAITS)])
def test_one_that_may_be_slow_is_named_once_and_not_ended(others: tuple[Alive, Alive]) -> None:
    late = PATIENCE + 2.0
    watch = watched(*others, until=late)
    assert not watch.wrong(late)
    assert f"process {others.index(COMPUTES)} does op 'y'" in watch.slow(late)
    assert not watch.slow(late)
    watch.hear(0, Alive(9, "op 'z'"), late)
    assert not watch.slow(late + 1)
    alone = watched(COMPUTES, until=late)
    assert not alone.slow(late)
