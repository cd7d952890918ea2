"""What the command lines of the studies have in common."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated

import cyclopts

from evaluation.record import Failure
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

WriteOnly = Annotated[bool, cyclopts.Parameter(negative="")]


def run(study: Callable[..., Path], name: str, about: str | None) -> None:
    """Run a study's command line: an input error is one sentence with exit code 2; 130 is an interruption."""
    app = cyclopts.App(name=name, help=about, result_action="return_value", suppress_keyboard_interrupt=False)
    app.default(study)
    try:
        if (path := app(sys.argv[1:])) is not None:  # None after --help
            print(path)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        print(str(stop) or "interrupted; the same command resumes", file=sys.stderr)
        sys.exit(130)


def names_in(names: str, what: str, known: Collection[str]) -> list[str]:
    """The comma-separated names in a text; `what` says in an InputError what kind of name is unknown."""
    found = [name for name in names.split(",") if name]
    for name in found:
        if name not in known:
            raise InputError(by_name.unknown(what, name, known))
    return found


def command_of(study: str, **options: object) -> str:
    """The command line that writes a study's document with these options."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return shlex.join(["python", "-m", f"evaluation.studies.{study}", *words])


def report(failures: Iterable[Failure]) -> None:
    """Print the failures to stderr."""
    for failure in failures:
        print(f"{failure.placer} on {failure.problem}: {failure.reason}", file=sys.stderr)
