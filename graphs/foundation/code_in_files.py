"""Files that name code: opening a file runs nobody's code.

A plan, a journal, a submission, a policy or a run folder may come from anybody, and what they name (an order, a
network, a graph) is looked up among what is installed. "FILE.py:function" in them is refused, unless the user has named
the same function in this process, as an argument or in a recipe that he starts, or allows it with `allow_code`, which
prints what runs.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from graphs.foundation.errors import InputError
from graphs.foundation.plain_text import printable

_CODE = re.compile(r"(?P<file>.*?\.py):(?P<function>\w+)", re.DOTALL)  # wherever it stands: a knob may be a spec, too

_Function = tuple[Path, str]  # of a file, resolved
_allowed: ContextVar[set[_Function] | None] = ContextVar("allowed", default=None)  # what was said to run; None: nothing
_named: set[_Function] = set()  # by the user, in this process


def named_by_user(spec: str) -> None:
    """Remember a function that the user named, if the spec is one."""
    if (called := _called(spec)) and called not in (_allowed.get() or ()):
        _named.add(called)


def named_in_file(spec: str) -> str:
    """A spec that stands in a file that was opened. Raises InputError if it names code that the user does not allow."""
    called = _called(spec)
    if called is None:
        return spec
    said = _allowed.get()
    if said is not None and called not in said:
        said.add(called)
        file = printable(str(called[0]))
        print(f"placelab: running {called[1]} of {file}, which a file that was opened names", file=sys.stderr)
    if said is None and called not in _named:
        raise InputError(
            f"it names code, {spec!r}, and a file that is opened runs none: if you know what that code does, allow it "
            "with --allow-code (in Python allow_code=True), or name the same function yourself"
        )
    return spec


def _called(spec: str) -> _Function | None:
    """The function that a spec names, or None."""
    code = _CODE.match(spec)
    return (Path(code["file"]).resolve(), code["function"]) if code else None


@contextmanager
def code_allowed() -> Iterator[None]:
    """Files that are opened inside may name code, which runs; what it is is printed to stderr."""
    token = _allowed.set(set())
    try:
        yield
    finally:
        _allowed.reset(token)
