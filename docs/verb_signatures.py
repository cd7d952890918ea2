"""An extension of Griffe, for mkdocstrings: verbs with `**options` are shown with the keywords that these stand for."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

COMMANDS = "evaluation.commands."


class VerbSignatures(griffe.Extension):
    """Takes the signatures of verbs from the running functions, which have them in full."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace the parameters of a verb."""
        if not func.path.startswith(COMMANDS) or not any(each.name == "options" for each in func.parameters):
            return
        verb = getattr(importlib.import_module(func.module.path), func.name)
        kinds = griffe.ParameterKind
        func.parameters = griffe.Parameters(*(
            griffe.Parameter(
                each.name, annotation=str(each.annotation), kind=kinds(each.kind.description),
                default=None if each.default is each.empty else repr(each.default),
            )
            for each in inspect.signature(verb).parameters.values()
        ))  # fmt: skip
