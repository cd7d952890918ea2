"""Signatures of the public functions: with each of the options that several share as a parameter, and its default."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from evaluation.commands.arguments import DEFAULTS, OPTIONS, Declared, as_declared

P = ParamSpec("P")
R = TypeVar("R")


def checked(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb with its arguments converted as their annotations say; raises InputError for those that cannot be."""
    return _with_options(verb, as_declared)


def unchecked(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb with its arguments as they are given."""
    return _with_options(verb, lambda _, value, __: value)


def _with_options(verb: Callable[P, R], taken: Callable[[str, Any, str], Any]) -> Callable[P, R]:
    """The verb with each of its options as a parameter, its default among them, and its arguments as they are taken."""
    signature = _flat_signature(verb)

    @functools.wraps(verb)
    def with_all_arguments(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{verb.__name__}() {error}") from None
        for name, value in bound.arguments.items():
            bound.arguments[name] = taken(name, value, str(signature.parameters[name].annotation))
        bound.apply_defaults()
        return verb(*bound.args, **bound.kwargs)

    with_all_arguments.__signature__ = signature  # type: ignore[attr-defined]
    return with_all_arguments


def _flat_signature(verb: Callable[..., object]) -> inspect.Signature:
    """The verb's signature with each of its options as a parameter, in the order of its docstring.

    Python leaves docstrings out with -OO; options then come last.
    """
    signature, text = inspect.signature(verb), verb.__doc__ or ""
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            parameters.append(parameter)
            continue
        for name, kind in OPTIONS[parameter.annotation].__annotations__.items():
            keyword = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind.__forward_arg__)
            parameters.append(keyword.replace(default=DEFAULTS[name]))
    parameters.sort(key=lambda p: (p.kind, text.find(f"    {p.name}: ")))
    return _in_full(signature.replace(parameters=parameters))


def _in_full(signature: inspect.Signature) -> inspect.Signature:
    """The signature with annotations that help() shows in full."""
    parameters = [each.replace(annotation=Declared(each.annotation)) for each in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=Declared(signature.return_annotation))
