"""A pytest plugin that notes which functions each test calls, in other processes, too, and how long it takes.

What compiled code calls is not seen.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.mutants import imports

FAILED = "(failed)"


class Called(msgspec.Struct):
    """What is known of each test, by pytest's name of it."""

    functions: dict[str, set[str]]  # "graphs/order.py:12", by the first line of the function, its decorators among it
    seconds: dict[str, float]


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note for each test the functions that it calls, whether another did before, and its seconds."""
    imports.seen.clear()
    began = time.perf_counter()
    yield
    imports.note(f"{item.nodeid} (call)\t{time.perf_counter() - began:.3f}")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What was called as the test was set up is noted again if the test calls it by itself."""
    imports.seen.clear()
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test that fails without a mutant tells nothing of one."""
    if report.failed:
        imports.note(f"{report.nodeid} {FAILED}\t")


def read(path: Path) -> Called:
    """What was noted in a file of calls. What fixtures call counts for every test of the file: they may share it."""
    functions: dict[str, set[str]] = defaultdict(set)
    of_fixtures: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    failed: set[str] = set()
    for line in path.read_text().splitlines():
        test, _, noted = line.partition("\t")
        name, _, phase = test.rpartition(" ")
        if phase == FAILED:
            failed.add(name)
        elif ".py:" in noted:
            (functions[name] if phase == "(call)" else of_fixtures[name.partition("::")[0]]).add(noted)
        else:
            seconds[name] = float(noted)
    for name in failed:
        seconds.pop(name, None)
    everywhere = {name: functions[name] | of_fixtures[name.partition("::")[0]] for name in seconds}
    return Called(everywhere, seconds)
