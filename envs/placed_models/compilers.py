"""What PyTorch's compilers do with a model that is run by a plan: leave it alone, or say in one sentence why not."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from graphs.foundation.errors import InputError

try:
    from torch._C._dynamo.eval_frame import set_fullgraph_compiled_frame_count as _counted
except ImportError:  # of versions that ask for no such count

    def _counted(value: int) -> int:
        return value


class NotScriptedError(InputError, AttributeError):
    """The model is given to `torch.jit.script`, which reads what its forward function does not have."""


@cache
def hide_from_compilers(forward: type[Callable[..., Any]]) -> None:
    """Let torch.compile leave models alone whose forward function is of a class: what decides is no code to compile."""
    reason = "a model that is run by a plan is not compiled: compile its parts, before it is given to parallelize"
    forward.__call__ = torch.compiler.disable(forward.__call__, reason=reason)  # type: ignore[method-assign, no-untyped-call]


def check_compiler() -> None:
    """Raise InputError within `torch.export`, and where `torch.compile` is to make one graph of the model."""
    if torch.compiler.is_exporting():
        raise InputError(
            "a model that is run by a plan is not exported, for its program would have the plan's copies in it; "
            "export the model before it is given to parallelize"
        )
    graphs = _counted(-1)  # of `fullgraph=True`, so far; -1 of none
    _counted(graphs)
    if graphs == 0:
        raise InputError(
            "a model that is run by a plan is not compiled, so that there is no full graph of it; leave out "
            "`fullgraph=True`, or compile its parts before it is given to parallelize"
        )
