"""A new extension is one new file: it is listed, built by its name, and nothing else is edited."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs import by_name
from graphs.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''"""An extension that exists for the length of one test."""

CONFIGURATIONS = ("size=2",)


def build(*, size: int = 1, label: str = "a", exact: bool = False, rate: float = 0.5) -> tuple[object, ...]:
    """Its knobs."""
    return size, label, exact, rate
'''


@pytest.fixture(params=by_name.FOLDERS)
def folder(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each extension folder in turn, with one more file in it."""
    name: str = request.param
    path = ROOT.joinpath(*name.split("."), "of_one_test.py")
    path.write_text(SOURCE)
    yield name
    path.unlink()


def test_a_new_file_is_listed_and_built(folder: str) -> None:
    assert "of_one_test" in by_name.names(folder)
    assert by_name.build(folder, "of_one_test:size=3,exact=true,rate=2") == (3, "a", True, 2.0)
    assert by_name.constants(folder, "of_one_test") == {
        "doc": "An extension that exists for the length of one test.",
        "CONFIGURATIONS": ("size=2",),
    }


@pytest.mark.parametrize("name", by_name.FOLDERS)
def test_an_unknown_name_gets_the_nearest_and_all_that_exist(name: str) -> None:
    known = by_name.names(name)
    assert known
    with pytest.raises(InputError, match=f"did you mean '{known[0]}'.*there are: .*{known[-1]}"):
        by_name.module(name, f"{known[0]}x")


def test_knobs_are_checked() -> None:
    with pytest.raises(InputError, match="unknown knob 'device'; did you mean 'devices'"):
        by_name.build("graphs.clusters", "p100:device=2")
    with pytest.raises(InputError, match="expected devices to be of type int, got 'two'"):
        by_name.build("graphs.clusters", "p100:devices=two")
    with pytest.raises(InputError, match="key=value"):
        by_name.build("graphs.clusters", "p100:2")
    with pytest.raises(InputError, match="given twice"):
        by_name.build("graphs.clusters", "p100:devices=2,devices=4")
