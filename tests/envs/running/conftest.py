"""What these tests share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from envs.running.processes import Workers
from tests.envs.placed_models.conftest import one_thread

__all__ = ["one_thread"]


@pytest.fixture(scope="session")
def processes() -> Iterator[Callable[[int], Workers]]:
    """A number of processes on CPUs, which start once for all tests that leave them as they are."""
    with ExitStack() as stack:
        yield cache(lambda count: stack.enter_context(Workers(["cpu"] * count, pin=False)))
