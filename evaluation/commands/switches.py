"""Switches that several verbs have in addition to their own keywords: each is a context that the verb runs inside."""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from evaluation.commands.arguments import Declared, as_declared
from graphs.foundation.code_in_files import code_allowed

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Switch:
    """A keyword that is on or off."""

    name: str
    default: bool
    about: str  # its lines of a docstring
    inside: Callable[[], AbstractContextManager[None]]  # what the verb runs in, with another value than the default


def _without_cache() -> AbstractContextManager[None]:
    from graphs.capture.cache import without_cache  # imported late: --help must not wait for it

    return without_cache()


CACHE = Switch(
    "cache", True,
    "    cache: use what was captured before, where nothing has changed since; `--no-cache` captures again.\n",
    _without_cache,
)  # fmt: skip
CODE = Switch(
    "allow_code", False,
    "    allow_code: run code that opened files name as `FILE.py:function`, such as a plan's order or a policy's\n"
    "        network, and print what runs; without it they are refused, since they may be anybody's.\n",
    code_allowed,
)  # fmt: skip


def switched(*switches: Switch) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """What gives a verb these switches as keywords, after its own."""

    def with_switches(verb: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(verb)
        keywords = [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=Declared("bool")
            )
            for each in switches
        ]

        @functools.wraps(verb)
        def inside(*args: P.args, **given: P.kwargs) -> R:
            with ExitStack() as stack:
                for each in switches:
                    if as_declared(each.name, given.pop(each.name, each.default), "bool") != each.default:
                        stack.enter_context(each.inside())
                return verb(*args, **given)

        about = "".join(each.about for each in switches)
        if verb.__doc__:  # every verb's docstring ends with its arguments; Python -OO leaves it out
            inside.__doc__ = f"{inspect.getdoc(verb)}\n{about}"
        inside.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *keywords])  # type: ignore[attr-defined]
        return inside

    return with_switches
