"""What PyTorch cannot trace is explained in one sentence: whose fault, in which line, and the remedy."""

import logging
import re
from pathlib import Path

import pytest

from graphs.capture import by_values
from graphs.capture.forward import traced_model
from graphs.foundation.errors import InputError, UserCodeError

FILE = Path(__file__).parents[1] / "fixtures" / "untraceable.py"


def lines() -> dict[str, int]:
    """The number of each line that is named in a comment."""
    numbered = enumerate(FILE.read_text().splitlines(), 1)
    return {name: number for number, line in numbered if (name := line.partition("# line: ")[2])}


def refused(function: str, kind: type[InputError]) -> str:
    """The sentence with which it is refused, with "LINE" in place of the file and the line that it names."""
    with pytest.raises(kind) as caught:
        traced_model(f"{FILE}:{function}").build()
    assert type(caught.value) is kind
    sentence = str(caught.value)
    named = re.search(r"\S*untraceable\.py:(\d+)", sentence)
    if named:
        assert int(named[1]) == lines()["if_" if function == "inside" else function]
        sentence = sentence.replace(named[0], "LINE")
    assert "\n" not in sentence
    assert sentence.startswith(f"untraceable:{function}: ")
    return sentence.removeprefix(f"untraceable:{function}: ")


@pytest.fixture(autouse=True)
def _too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module is run for its values."""
    monkeypatch.setattr(by_values, "MOST_BYTES", 0)


@pytest.mark.parametrize("function", ["if_", "inside", "steps", "mask", "numpy"])
def test_values_of_what_is_too_large_to_be_run(function: str) -> None:
    assert refused(function, InputError) == (
        "sizes or control flow depend on data at LINE, so that the module must be run to be captured, but its weights "
        "and inputs are 0.0 GiB, more than 0; give fewer samples or a smaller model of its kind, or keep sizes fixed "
        "(torch.where)"
    )


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("boxing", "an object of type Box cannot be copied, so that its tensors cannot be found (cannot pickle"),
        ("boxed", "an object of type Box cannot be copied, so that its tensors cannot be found (cannot pickle"),
        (
            "scripted",
            "PyTorch cannot trace this module: a part of it is a ScriptModule, which shows no operations; give the",
        ),
    ],
)
def test_what_the_tracer_cannot_follow(function: str, sentence: str) -> None:
    assert refused(function, InputError).startswith(sentence)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("reshaped", r"LINE: RuntimeError: .*\[4, 2\] X \[4, 4\] \(in its submodule 'layer', a Linear\)"),
        ("too_wide", r"RuntimeError: .*\[2, 8\] X \[4, 4\] \(in its submodule '1', a Linear\)"),
        ("no_indices", "RuntimeError: Expected tensor for argument #1 'indices' .* but got torch.float32 instead"),
        ("too_many", r"TypeError: Linear.forward\(\) takes 2 positional arguments but 3 were given"),
        (
            "named",
            r"TypeError: .* unexpected keyword argument 'x'; return \(model, \(inputs,\)\) if it takes one dict, .*",
        ),
        ("raising", "LINE: KeyError: 'mine'"),
        ("leaving", "LINE: SystemExit: 3"),
    ],
)
def test_a_module_that_fails_on_its_inputs_is_no_matter_of_tracing(function: str, sentence: str) -> None:
    expected = f"the module fails on its example inputs: {sentence}"
    assert re.fullmatch(expected, refused(function, UserCodeError))


@pytest.mark.parametrize("function", ["if_", "too_wide", "numpy"])
def test_nothing_of_the_exporters_is_printed(function: str, capfd: pytest.CaptureFixture[str]) -> None:
    refused(function, UserCodeError if function == "too_wide" else InputError)
    assert capfd.readouterr() == ("", "")
    assert not logging.root.manager.disable
