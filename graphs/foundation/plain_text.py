"""Text that is shown: what files call things is anybody's, and a terminal obeys some characters."""

import re

# Control characters but for tabs and line ends, those that turn the direction of what follows, and other line ends.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with an escape, such as "\x1b", in place of each character that a terminal would obey."""
    return _OBEYED.sub(lambda character: character[0].encode("unicode_escape").decode(), text)
