"""What studies share: pieces of work, each a JSON file once it is done and then not done again; trainings that go on.

A study's folder holds `settings.json`, its size, and the pieces in `pieces/`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import cyclopts
import msgspec
from tqdm import tqdm

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.problem import Problem
from placers.learned.learned_placer import LearnedPlacer
from training.checkpoint import TRAINER
from training.recipe import Recipe
from training.train import train

Size = TypeVar("Size")
Kept = TypeVar("Kept", bound=msgspec.Struct)
SIZE, PIECES = "settings.json", "pieces"


def do_pieces(out: Path, size: object, works: Mapping[str, Callable[[], msgspec.Struct]]) -> None:
    """Do what is not done yet of a study of this size, by file name. Raises InputError if `out` is of another size."""
    keep_size(out, size)
    pieces = out / PIECES
    pieces.mkdir(exist_ok=True)
    left = [name for name in works if not (pieces / name).exists()]
    with tqdm(total=len(works), initial=len(works) - len(left), desc="study", unit="piece", disable=None) as bar:
        for name in left:
            bar.set_postfix_str(name.removesuffix(".json"))
            piece = works[name]()
            write_whole(pieces / name, msgspec.json.encode(piece))
            bar.update()


def keep_size(out: Path, size: object) -> None:
    """Make a study's folder, or go on with one. Raises InputError if `out` is of another size."""
    out.mkdir(parents=True, exist_ok=True)
    if (out / SIZE).exists() and load_size(out, type(size)) != size:
        raise InputError(f"{out / SIZE} is of a study of another size than this one; choose another --out")
    write_whole(out / SIZE, msgspec.json.format(msgspec.json.encode(size)))


def load_size(out: Path, size: type[Size]) -> Size:
    """The size of the study in a folder. Raises InputError for a folder without one, or with another study."""
    if not (out / SIZE).is_file():
        raise InputError(f"{out} holds no study ({SIZE} is missing)")
    try:
        return msgspec.json.decode((out / SIZE).read_bytes(), type=size)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(f"{out / SIZE} is of another study than this one, or damaged: {error}") from error


def load_pieces(out: Path, size: type[Size], piece: type[Kept]) -> tuple[Size, list[Kept]]:
    """What a study has done so far. Raises InputError for a folder without one, or a damaged piece."""
    settings = load_size(out, size)
    pieces = []
    for path in sorted((out / PIECES).glob("*.json")):
        try:
            pieces.append(msgspec.json.decode(path.read_bytes(), type=piece))
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InputError(f"{path} is damaged: {error}; delete it, and the study does it again") from error
    return settings, pieces


def names_in(names: str, what: str, known: Collection[str]) -> list[str]:
    """The names in a text, with commas between them. Raises InputError, saying what is meant, for an unknown one."""
    found = [name for name in names.split(",") if name]
    for name in found:
        if name not in known:
            raise InputError(by_name.unknown(what, name, known))
    return found


def trained(recipe: Recipe, problems: Sequence[Problem], folder: Path, seed: int) -> LearnedPlacer:
    """The placer that a recipe gives on problems; a run that was stopped in the folder goes on."""
    resume = (folder / TRAINER).exists()
    if folder.exists() and not resume:
        shutil.rmtree(folder)  # stopped before anything was learned
    return train(recipe, problems, out=folder, seed=seed, resume=resume)


def run(study: Callable[..., Path], name: str, about: str) -> None:
    """A study's command line; errors of input in a sentence, exit code 2, and 130 if interrupted."""
    app = cyclopts.App(name=name, help=about, result_action="return_value", suppress_keyboard_interrupt=False)
    app.default(study)
    try:
        path = app(sys.argv[1:])
        if path is not None:  # as after --help
            print(path)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        print(str(stop) or "interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
