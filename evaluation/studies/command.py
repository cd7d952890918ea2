"""What the command lines of the studies have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import cyclopts

from evaluation.record import Failure
from graphs.foundation import by_name
from graphs.foundation.errors import InputError


def run(study: Callable[..., Path], name: str, about: str | None) -> None:
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
        print(str(stop) or "interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)


def names_in(names: str, what: str, known: Collection[str]) -> list[str]:
    """The names in a text, with commas between them. Raises InputError, saying what is meant, for an unknown one."""
    found = [name for name in names.split(",") if name]
    for name in found:
        if name not in known:
            raise InputError(by_name.unknown(what, name, known))
    return found


def report(failures: Iterable[Failure]) -> None:
    """Say who failed, to stderr."""
    for failure in failures:
        print(f"{failure.placer} on {failure.problem}: {failure.reason}", file=sys.stderr)
