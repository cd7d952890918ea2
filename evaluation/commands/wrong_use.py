"""The sentence for a command line that cannot be parsed."""

from __future__ import annotations

from collections.abc import Collection

import cyclopts

from evaluation.commands.verb_help import EXAMPLES, HEADINGS
from graphs.foundation.errors import unknown


def wrong_use(error: cyclopts.CycloptsError, verb: str, verbs: Collection[str]) -> str:
    """What is wrong, and what to do instead; `verb` is empty where none was recognised."""
    return f"{_wrong(error, verb, verbs)} (see placelab {verb}{' ' if verb else ''}--help)"


def _wrong(error: cyclopts.CycloptsError, verb: str, verbs: Collection[str]) -> str:
    named = error.argument
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens:
        return unknown("command", error.unused_tokens[0], verbs)
    if isinstance(error, cyclopts.MissingArgumentError) and named is not None:
        if error.keyword or named.tokens:
            return f"{error.keyword or named.name} needs a value"
        what = named.name.removeprefix("--").upper() if named.index is not None else named.name
        return f"{verb} needs {what}, as in: {EXAMPLES[HEADINGS[verb]][verb][0]}"
    if isinstance(error, cyclopts.UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one word too many"
    if isinstance(error, cyclopts.CoercionError) and error.token is not None and named is not None:
        return unknown(f"value of {named.name}", error.token.value, named.get_choices() or ())
    return str(error)
