"""Study: the options that all studies have, and their command lines."""

from __future__ import annotations

import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar, get_type_hints

import cyclopts

from evaluation.records.record import Failure
from graphs.foundation import by_name
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import locked


@dataclass(frozen=True, kw_only=True)
class Study(ABC):
    """A study: its options are fields, those of a study in addition to these."""

    name: ClassVar[str]
    out: Path | None = None
    """The folder that keeps what is done; without it, one in runs/studies/."""
    document: Path | None = None
    """A folder for the document and its figures; without it, that of what is done."""
    workers: Workers = 1
    """Processes that share the work, or the address of a dask scheduler."""
    write_only: Annotated[bool, cyclopts.Parameter(negative="")] = False
    """Write the document from what is done, and do nothing else."""

    @property
    def folder(self) -> Path:
        """Where all that is done is kept."""
        return self.out or Path("runs/studies") / self.name

    def write(self) -> Path:
        """Do what is not done yet, and write the document.

        Raises InputError as the study, if nothing is done, and if another process does what is not done yet.
        """
        self.check()
        if not self.write_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder.resolve()):
                self.do()
        return self.save(self.document or self.folder)

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise InputError for options that make no sense."""

    @abstractmethod
    def do(self) -> None:
        """All that is not done yet."""

    @abstractmethod
    def save(self, folder: Path) -> Path:
        """Write the document. Raises InputError if nothing is done."""

    def command(self, *names: str, **others: object) -> str:
        """The command line that makes the document again, with the options of these names, and with others."""
        options = {name: getattr(self, name) for name in names} | others
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return shlex.join(["python", "-m", f"evaluation.studies.{self.name}", *words])

    def changed(self, *names: str) -> Mapping[str, object]:
        """Those of these options that are not as they are by default."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: getattr(self, name) for name in names if getattr(self, name) != usual[name]}


def run(study: type[Study]) -> None:
    """Run a study's command line: an input error is one sentence with exit code 2; 130 is an interruption."""

    def command(options: Study) -> Path:
        return options.write()

    # the types of options as each module in which one is declared knows them
    hints = get_type_hints(study, include_extras=True)
    study.__init__.__annotations__.update({field.name: hints[field.name] for field in fields(study)})
    command.__annotations__["options"] = Annotated[study, cyclopts.Parameter(name="*")]
    command.__defaults__ = (study(),)
    app = cyclopts.App(
        name=study.name, help=study.__doc__, result_action="return_value", suppress_keyboard_interrupt=False
    )
    app.default(command)
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


def report(failures: Iterable[Failure]) -> None:
    """Print the failures to stderr."""
    for failure in failures:
        print(f"{failure.placer} on {failure.problem}: {failure.reason}", file=sys.stderr)
