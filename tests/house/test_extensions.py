"""A new extension is one new file: it is listed, built by its name, and nothing else is edited."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs.foundation import by_name
from graphs.foundation.errors import InputError

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
    assert "of_one_test" in by_name.built_in(folder)
    assert by_name.build(folder, "of_one_test:size=3,exact=true,rate=2") == (3, "a", True, 2.0)
    assert by_name.constants(folder, "of_one_test") == {
        "doc": "An extension that exists for the length of one test.",
        "CONFIGURATIONS": ("size=2",),
    }


@pytest.mark.parametrize("name", by_name.FOLDERS)
def test_an_unknown_name_gets_the_nearest_and_all_that_exist(name: str) -> None:
    known = by_name.built_in(name)
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
    with pytest.raises(InputError, match="unknown recompute 'True'; did you mean 'true'"):
        by_name.check("placers", "fsdp:recompute=True")
    with pytest.raises(InputError, match="unknown zero '7'; there are: 0, 1, 2, 3"):
        by_name.check("placers", "fsdp:zero=7")


@pytest.mark.parametrize(
    ("folder", "spec", "sentence"),
    [
        ("graphs.clusters", "p100:", "expected knobs as key=value"),
        ("graphs.clusters", "p100:devices=2,", "expected knobs as key=value"),
        ("graphs.clusters", "p100:devices=0", "expected devices to be at least 1, got 0"),
        ("graphs.clusters", "v100_servers:servers=-2", "expected servers to be at least 1, got -2"),
        ("graphs.clusters", "v100_servers:gbps=nan", "expected gbps to be a finite number, got nan"),
        ("graphs.clusters", "v100_servers:gbps=inf", "expected gbps to be a finite number, got inf"),
        ("graphs.families", "rnnlm:layers=0", "expected layers to be at least 1, got 0"),
        ("graphs.families", "rnnlm:layers=-1", "expected layers to be at least 1, got -1"),
        ("graphs.families", "layered:seed=-1", "expected seed to be at least 0, got -1"),
        ("graphs.families", "resnet:squeeze=-1", "expected squeeze to be at least 0, got -1"),
        ("graphs.families", "transformer:tied=maybe", "expected tied to be true or false, got 'maybe'"),
        ("graphs.families", "resnet:resnet-50,,batch=2", "expected knobs as key=value"),
        ("placers", "gdp:samples=-1", "expected samples to be at least 0, got -1"),
        ("placers", "annealing:hot=nan", "expected hot to be a finite number, got nan"),
        ("placers", "annealing:seconds=nan", "expected seconds to be a finite number, got nan"),
        ("placers", "annealing:hot=1e999", "expected hot to be a finite number, got 1e999"),
        ("placers", "expert", "'expert' needs its knob 'split': expert:SPLIT"),
        ("placers", "heft:a=1", "'heft' has no knobs"),
        ("placers", "parallel:order=[zb_h2:in_flight=2", "'order=[zb_h2:in_flight=2' has one bracket of two"),
        ("placers", "parallel:order=v_half:in_flight=3,times=1", "is in brackets with it, order=[...,times=1]"),
    ],
)
def test_a_wrong_knob_is_refused_by_one_sentence_without_building(folder: str, spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        by_name.check(folder, spec)


def test_check_takes_what_build_takes_and_builds_nothing() -> None:
    by_name.check("graphs.families", "layered:seed=0")  # its default is 0
    by_name.check("graphs.families", "resnet:resnet-50,batch=2,squeeze=0")
    by_name.check("placers", "annealing:seconds=inf")  # its default is infinite
    by_name.check("envs.costs.cost_models", "roofline:efficiency=nowhere.toml")  # opened by `build` only
    with pytest.raises(InputError, match=r"nowhere\.toml does not exist"):
        by_name.build("envs.costs.cost_models", "roofline:efficiency=nowhere.toml")


def test_sizes_that_do_not_go_together_are_refused_by_one_sentence() -> None:
    with pytest.raises(InputError, match="resnet has no 51 layers; there are: 26, 38, 50, 101, 152"):
        by_name.build("graphs.families", "resnet:layers=51")
    with pytest.raises(
        InputError, match="'resnet:groups=3' cannot be built: ValueError: in_channels must be divisible"
    ):
        by_name.build("graphs.families", "resnet:groups=3")
    with pytest.raises(InputError, match=r"cannot be built: TypeError: empty\(\)") as caught:
        by_name.build("graphs.families", "rnnlm:batch=99999999999999999999")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "metis,,heft", ",heft", "heft,", " ", "metis:seeds=2,,repair=no"])
def test_an_empty_spec_in_a_list_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="one is empty"):
        by_name.specs(text)


def test_a_long_list_of_names_is_cut_short() -> None:
    sentence = by_name.unknown("op", "op41x", [f"op{i}" for i in range(342)])
    assert "did you mean 'op41'?" in sentence
    assert sentence.endswith("op38, op39 and 302 more")
    assert by_name.unknown("op", "a", []).endswith("there are: none")
