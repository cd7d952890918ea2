"""PyTorch's own names that are used here, though no version of it promises them.

One that another version lacks is found before a model runs, and said in one sentence. Names that are imported are not
in the list: whoever imports them fails at once, and says which it was. Nor are those of `graphs/capture`: what cannot
be recorded is exported, and a warning says why.
"""

from importlib import import_module
from typing import Any

from graphs.foundation.errors import InputError

TRIED = ("2.13",)
"""The versions of PyTorch with which the tests have passed; pyproject.toml takes no earlier one."""

PARALLELIZE, RUN = "parallelize", "run"

NAMES = {
    PARALLELIZE: (
        "torch._C.DisableTorchFunction",
        "torch._C._FunctionBase._set_sequence_nr",
        "torch._C._are_functorch_transforms_active",
        "torch._C._current_graph_task_id",
        "torch._C._get_function_stack_at",
        "torch._C._is_torch_function_all_disabled",
        "torch._C._len_torch_function_stack",
        "torch.Tensor._version",
        "torch._foreach_copy_",
        "torch.UntypedStorage._cdata",
        "torch.autograd.Variable._execution_engine.queue_callback",
        "torch.nn.Module._compiled_call_impl",
        "torch.overrides._pop_mode",
        "torch.overrides._push_mode",
        "torch.utils.checkpoint.CheckpointFunction",
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
    ),
    RUN: (
        "torch._foreach_add_",
        "torch._fused_adam_",
        "torch.autograd.Variable._execution_engine.queue_callback",
        "torch.autograd.Variable._execution_engine.run_backward",
        "torch.distributed.distributed_c10d._resolve_process_group",
        "torch.ops._c10d_functional.wait_tensor.default",
    ),
}


def check_names(what: str) -> None:
    """Raise InputError if PyTorch lacks a name that something, a key of `NAMES`, needs."""
    if sentence := missing_name(what):
        raise InputError(sentence)


def missing_name(what: str) -> str:
    """A sentence about the first name that PyTorch lacks, or ""."""
    missing = next((name for name in NAMES[what] if not _exists(name)), None)
    if missing is None:
        return ""
    version = import_module("torch").__version__
    return f"PyTorch {version} has no {missing}, which {what} needs; install one that was tried: {', '.join(TRIED)}"


def _exists(name: str) -> bool:
    """Whether there is such a module, or an attribute of one."""
    first, *rest = name.split(".")
    found: Any = import_module(first)
    path = first
    for part in rest:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = import_module(path)  # a submodule that nobody has imported yet
            except ImportError:
                return False
    return True
