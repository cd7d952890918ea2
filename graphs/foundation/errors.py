"""The errors that a user's input can cause, each with its exit code, and the sentence for an unknown name."""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

MOST_NAMED = 40  # names of what exists that a sentence lists


class InputError(ValueError):
    """Something given by the user is wrong; the message names it, and what is expected instead."""

    exit_code = 2


class UserCodeError(InputError):
    """Code in a user's own file raised an error; the message gives its line, type and message."""


class DoesNotFitError(RuntimeError):
    """No plan fits the devices' memory; the message says what is needed and what there is."""

    exit_code = 3


class DiffersError(RuntimeError):
    """A plan that was run and checked does not compute what the model does; the message says by how much."""

    exit_code = 4


@contextmanager
def located(where: object) -> Iterator[None]:
    """Put where it was found, such as a file, before the message of an InputError that is raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def unknown(what: str, name: str, existing: Iterable[str]) -> str:
    """The sentence for an unknown name: what was asked for, the nearest one, and what exists, if not too many."""
    options = list(existing)
    nearest = difflib.get_close_matches(name, options, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ";"
    return f"unknown {what} {name!r}{hint} there are: {listed(options, MOST_NAMED) or 'none'}"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, and how many there are in addition to `most`: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_distinct(what: str, given: Iterable[tuple[str, str]]) -> None:
    """Raise InputError for two of the same name and content."""
    twice = [name for (name, _), count in Counter(given).items() if count > 1]
    if twice:
        raise InputError(f"{what} {twice[0]!r} is given twice; give each {what} once")


def reason(error: BaseException) -> str:
    """What an error of code that is not ours says, in one line: its type and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".removesuffix(": ")
