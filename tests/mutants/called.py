"""A pytest plugin that notes which functions the tests of each file call, and for how long those tests run.

`pytest -p tests.mutants.called --called called.json` writes them. What compiled code and other processes call is not
seen.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import pytest

Function = str  # "graphs/algorithms/order.py:12", by the first line of the function, its decorators among it


class Called(msgspec.Struct):
    """What is known of each file of tests."""

    functions: dict[str, set[Function]]
    seconds: dict[str, float]


class Recorder:
    """Notes calls while the tests of a file run."""

    def __init__(self, out: Path, root: Path) -> None:
        self.out, self.root = out, root
        self.code: dict[str, set[CodeType]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.seen: set[CodeType] = set()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.seen.add(frame.f_code)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Set-up and tear-down of shared fixtures count for the first and last test that uses them."""
        file = str(item.path.relative_to(self.root))
        self.seen, began = self.code[file], time.perf_counter()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        yield
        sys.setprofile(None)
        threading.setprofile(None)
        self.seconds[file] += time.perf_counter() - began

    def pytest_sessionfinish(self) -> None:
        """Write what is known."""
        functions = {
            file: {named for each in codes if (named := self._named(each))} for file, codes in self.code.items()
        }
        self.out.write_bytes(msgspec.json.encode(Called(functions, dict(self.seconds))))

    def _named(self, code: CodeType) -> Function:
        path = Path(code.co_filename)
        return f"{path.relative_to(self.root)}:{code.co_firstlineno}" if path.is_relative_to(self.root) else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--called FILE`."""
    parser.addoption("--called", type=Path, help="write here which functions the tests of each file call")


def pytest_configure(config: pytest.Config) -> None:
    """Note calls, if asked to."""
    if config.getoption("--called"):
        config.pluginmanager.register(Recorder(config.getoption("--called"), config.rootpath), "called")
