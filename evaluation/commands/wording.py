"""Messages that name keywords, as Python has them, name flags on the command line."""

import re
from collections.abc import Collection

_QUOTED = re.compile(
    r"`(?P<name>[a-z_]+)(?:=(?P<value>[^`]*))?`"
)  # `groups`, `training=False`, `cost_model='roofline'`
_FIRST = re.compile(r"(?P<name>[a-z_]+)(?= is |: )")  # as in "budget is -1; expected ...", "data: m.py is no ..."


def in_flags(sentence: str, keywords: Collection[str]) -> str:
    """A sentence about a verb's keywords, in its flags: "`training=False`" becomes "--no-training".

    A keyword is recognised in backquotes, with or without a value, and as the subject that a sentence begins with.
    Whatever else is in backquotes, such as a command or a name in a file, stays as it is.
    """

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], match.groupdict().get("value")
        if name not in keywords:
            return match[0]
        dashed = name.replace("_", "-")
        if value == "False":
            return f"--no-{dashed}"
        if value in (None, "True"):
            return f"--{dashed}"
        return f"--{dashed} {'none' if value == 'None' else value.strip(chr(39))}"

    first = _FIRST.match(sentence)
    if first and first["name"] in keywords:
        sentence = flag(first) + sentence[first.end() :]
    return _QUOTED.sub(flag, sentence)
