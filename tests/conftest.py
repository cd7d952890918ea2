"""What tests of all floors share."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from graphs.capture.cache import SWITCH
from graphs.foundation.cache_folder import VARIABLE
from tests import drawn  # noqa: F401  # which registers profiles
from tests.forked import ForkedWorker
from tests.oracle.toys import Toy
from tests.oracle.toys import four_ops_two_devices as _four_ops_two_devices

MADE = "PLACELAB_TESTS_CACHE"
LONG_FILES = ("tests/training/", "tests/envs/running/", "tests/evaluation/test_workers.py", "tests/examples/")

settings.load_profile("brief")  # unless --hypothesis-profile says another one


def pytest_configure() -> None:
    """Tests share a cache of their own, also among processes, and never use the user's."""
    if MADE not in os.environ:
        os.environ[VARIABLE] = os.environ[MADE] = tempfile.mkdtemp(prefix="placelab-tests-")
        atexit.register(shutil.rmtree, os.environ[MADE], ignore_errors=True)
    os.environ.pop(SWITCH, None)
    # bytecode is kept even where PYTHONDONTWRITEBYTECODE is set: without it, each process compiles all sources again,
    # and pytest rewrites all assertions at each run
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files of few and long tests first: a process that ends with one of them would let the other wait."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(LONG_FILES))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: garbage is not looked for meanwhile, and seldom among all those objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Processes that run steps are forked from one that has PyTorch; `test_processes` starts some as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("envs.running.processes.Popen", ForkedWorker)
        yield


@pytest.fixture
def four_ops_two_devices() -> Toy:
    """A toy problem with a known optimum: `problem`, `best_placement` (units,), `best_seconds`."""
    return _four_ops_two_devices()
