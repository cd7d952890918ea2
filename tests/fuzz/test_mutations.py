"""Whatever happened to a file, it gives a result, or one sentence: nothing else, and in particular no traceback."""

import random
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from graphs.foundation.errors import DoesNotFitError, InputError
from tests.fuzz.mutations import mutated
from tests.fuzz.specimens import SPECIMENS, Specimen

LONGEST = 20_000  # letters of a sentence: names of the file may be as long


def findings(specimen: Specimen, folder: Path, seeds: range) -> list[str]:
    """What came of mutated files that is neither a result nor a sentence."""
    path = folder / specimen.name
    specimen.made(path)
    fine, found = path.read_bytes(), []
    specimen.used(path)  # so that what is refused below is refused for what was changed
    for seed in seeds:
        raw = mutated(random.Random(seed), fine, specimen.mutations)
        path.write_bytes(raw)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                specimen.used(path)
        except (InputError, DoesNotFitError) as refusal:
            if len(str(refusal)) > LONGEST or "\n" in str(refusal).strip():
                found.append(f"seed {seed}: a sentence of {len(str(refusal))} letters: {str(refusal)[:200]!r}")
        except Exception as error:
            found.append(f"seed {seed}: {type(error).__name__}: {str(error)[:200]}")
        path.write_bytes(fine)
    return found


def check(name: str, folder: Path, count: int) -> None:
    if "onnx" in name and find_spec("onnx") is None:
        pytest.skip("the package onnx is not installed")
    first = zlib.crc32(name.encode())
    assert findings(SPECIMENS[name], folder, range(first, first + count)) == []


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_damaged_file_gives_a_result_or_a_sentence(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIMENS)
def test_thousands_of_damaged_files_give_a_result_or_a_sentence(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 1000)
