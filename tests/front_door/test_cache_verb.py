"""`placelab cache`, and the flag that captures again."""

import json
from pathlib import Path

import pytest

import graphs.capture.casting
import placelab
from evaluation.commands import command_line
from graphs.capture.cache import without_cache
from graphs.capture.examples import Example
from graphs.foundation.cache_folder import VARIABLE
from graphs.foundation.errors import InputError
from placelab.verbs import VERBS

SPEC = "rnnlm:layers=1,steps=2,hidden=4,batch=2,vocabulary=8"
CAPTURING = sorted(VERBS.keys() - {"bench", "cache", "list", "profile", "verify"})


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))


def output(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    with pytest.raises(SystemExit) as ended:
        command_line.run(VERBS, "about", [*words, "--json"])
    assert ended.value.code == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_what_is_kept_is_shown_and_cleared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "cache") == {
        "folder": str(tmp_path / "cache" / "captures"), "graphs": 0, "bytes": 0, "most_bytes": 2**30,
    }  # fmt: skip
    output(capsys, "show", SPEC)
    shown = output(capsys, "cache")
    assert shown["graphs"] == 1
    assert shown["bytes"] == sum(file.stat().st_size for file in (tmp_path / "cache" / "captures").iterdir())
    assert output(capsys, "cache", "clear")["graphs"] == 0
    assert placelab.cache().graphs == 0
    with pytest.raises(InputError, match="did you mean 'clear'"):
        VERBS["cache"]("clean")


def test_with_no_cache_a_model_is_captured_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = output(capsys, "show", SPEC)

    def never(example: Example) -> None:
        raise InputError(f"{example.name} is captured")

    monkeypatch.setattr(graphs.capture.casting, "traced_example", never)
    assert output(capsys, "show", SPEC) == first
    with pytest.raises(InputError, match="is captured"):
        VERBS["show"](SPEC, cache=False)
    with pytest.raises(InputError, match="is captured"), without_cache():
        placelab.show(SPEC)
    assert output(capsys, "show", SPEC) == first


@pytest.mark.parametrize("verb", CAPTURING)
def test_every_verb_that_captures_takes_the_flag(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.run(VERBS, "about", [verb, "--help"])
    assert "--no-cache" in capsys.readouterr().out
    with pytest.raises(InputError, match="cache is 'no'; expected True or False"):
        VERBS[verb](SPEC, cache="no")
