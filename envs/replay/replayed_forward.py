"""ReplayedForward: a model's training step is replayed in the order of its plan, inside the user's own loop.

The model returns what it has always returned. Its outputs are one node of autograd's graph, whose backward pass is the
other half of the step: it turns the gradients of outputs, which the user's loss has made, into those of weights. So
loss, optimizer, clipping, accumulation and hooks on weights are the user's.

What is replayed was captured once. What the model's code would do otherwise now is refused: for inputs of other sizes,
for those with other answers to what it asks of their values, in another mode, with hooks on its modules or on what
autograd saves, under autocast. In `eval()` and `torch.no_grad()` its own code runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_unflatten

from envs.placed_models.copies import Copier
from envs.replay.replayed_pass import ReplayedPass
from envs.replay.replayed_step import ReplayedStep
from envs.running.batches_as_planned import check_batch
from envs.running.captured_program import CapturedProgram
from envs.simulation.simulator import LaidOut
from graphs.capture.examples import Example
from graphs.foundation.errors import InputError
from graphs.problem import Problem

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ReplayedForward:
    """The training step of a model, replayed; made before its weights are moved."""

    def __init__(self, example: Example, laid: LaidOut) -> None:
        """The model, its example inputs, and the plan.

        Raises InputError for a model that cannot be captured or replayed, and for a plan that is not for it.
        """
        self._name = example.name
        if hooked := _hooked(example.module.named_modules()):
            raise InputError(f"{self._name}: {hooked}")
        self._program, self._laid = CapturedProgram.of(example), laid
        self._program.check(graph := laid.problem.graph)
        step = self._program.step
        if len(frozen := np.flatnonzero(graph.frozen & ~step.frozen)):
            raise InputError(
                f"{self._name}: the plan does not train the weight {step.weight_names[frozen[0]]!r}, and the model "
                "does; call `requires_grad_(False)` on it, or plan the model without `freeze`"
            )
        self._modes = [part.training for part in example.module.modules()]
        self._leaves, self._inputs_tree = self._example_leaves(example)
        returned, self._outputs_tree = tree_flatten(self._program.builder.program.returned)
        if (odd := _object(returned)) is not None:
            raise InputError(
                f"{self._name}: it returns an object of type {type(odd).__name__}, which is not made again by a "
                "replayed step; return tensors, alone or in tuples, lists and dicts"
            )
        self._returned = returned
        self._weights = {name: (each.shape, each.requires_grad) for name, each in self._program.weights.items()}
        program = self._program.builder.program
        self._has_gradient = [node in program.requires_grad for node in program.outputs]

    def begin(self, model: nn.Module, homes: Mapping[str, int], copier: Copier) -> None:
        """Say which model it is of, now that its weights are where they are kept: places by name."""
        self._model, self._step = model, ReplayedStep(self._program, self._laid, homes, copier)

    def of_copy(self, model: nn.Module, homes: Mapping[str, int], copier: Copier) -> ReplayedForward:
        """The same of a copy of the model, which need not be complete yet."""
        copied = ReplayedForward.__new__(ReplayedForward)
        vars(copied).update(
            {name: value for name, value in vars(self).items() if name not in ("_parts", "_hooks", "_held")}
        )
        copied.begin(model, homes, copier)
        return copied

    @cached_property
    def _parts(self) -> tuple[tuple[str, nn.Module], ...]:
        return tuple(self._model.named_modules())

    @cached_property
    def _hooks(self) -> list[dict[int, Any]]:
        """Those of all parts, from now on."""
        return [vars(part)[kind] for _, part in self._parts for kind in _HOOKS]

    @cached_property
    def _held(self) -> list[list[tuple[str, dict[str, Tensor], str]]]:
        """Where parameters and buffers are held."""
        return [_owners(self._model, "_parameters"), _owners(self._model, "_buffers")]

    @property
    def problem(self) -> Problem:
        """The problem as it is run."""
        return self._laid.problem

    def runs(self) -> bool:
        """Whether the model, as it is called now, makes a training step; else its own code is to run."""
        return torch.is_grad_enabled() and self._model.training

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the model returns. Raises InputError where its code would not do what was captured."""
        inputs = self._inputs(args, kwargs)
        self._check_surroundings()
        check_batch(self._program, inputs)
        weights, buffers = ({name: held[key] for name, held, key in each} for each in self._held)
        self._check_weights(weights)
        trained = [weights[name] for name in self._step.trained]
        outputs = _Replayed.apply(self, weights, buffers, inputs, *trained)  # type: ignore[no-untyped-call]
        made = iter(outputs)
        return tree_unflatten([next(made) if isinstance(each, Tensor) else each for each in self._returned],
                              self._outputs_tree)  # fmt: skip

    def __reduce__(self) -> NoReturn:
        raise InputError("a model whose step is replayed is not copied or saved as a whole; save its `state_dict`")

    # ---- what is checked -----------------------------------------------------------------------------------

    def _example_leaves(self, example: Example) -> tuple[list[Any], Any]:
        leaves, tree = tree_flatten((example.args, example.kwargs))
        if (odd := _object(leaves)) is not None:
            raise InputError(
                f"{self._name}: it is given an object of type {type(odd).__name__}, which is not known to be the same "
                "in each step; give tensors, alone or in tuples, lists and dicts"
            )
        return leaves, tree

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Tensor]:
        """The tensors in the arguments, by leaf."""
        order = self._program.example.kwargs
        if kwargs.keys() == order.keys():
            kwargs = {name: kwargs[name] for name in order}
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self._inputs_tree:
            raise InputError(
                f"{self._name} is called with other arguments than those that its step was captured with; call it with "
                "arguments like those of `replay`, or do not replay"
            )
        tensors = list[Tensor]()
        for given, captured in zip(leaves, self._leaves, strict=True):
            if isinstance(captured, Tensor) and isinstance(given, Tensor):
                if given.requires_grad:
                    raise InputError(f"{self._name}: an input requires a gradient, which a replayed step does not give")
                tensors.append(given)
            elif type(given) is not type(captured) or given != captured:
                raise InputError(
                    f"{self._name} is given {given!r}, and its step was captured with {captured!r}; give that, or do "
                    "not replay"
                )
        inputs = dict(enumerate(tensors))
        self._step.given.check(inputs)
        return inputs

    def _check_surroundings(self) -> None:
        for (_, part), was in zip(self._parts, self._modes, strict=True):
            if part.training is not was:
                now = "train" if part.training else "eval"
                raise InputError(
                    f"{self._name}: a {type(part).__name__} is in {now}() mode, and was not when its step was "
                    "captured; "
                    "call `parallelize` in the mode that is to be run"
                )
        if any(not getattr(hook, "runs_by_plan", False) for hooks in self._hooks for hook in hooks.values()):
            raise InputError(f"{self._name}: {_hooked(self._parts)}")
        if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))):
            raise InputError(
                f"{self._name}: its step was captured without autocast around it; enter that in its `forward`, and "
                "plan it so"
            )
        try:
            with disable_saved_tensors_hooks("they are set"):
                pass
        except RuntimeError as error:
            raise InputError(
                f"{self._name}: it is called where what autograd saves has hooks, such as of `torch.utils.checkpoint` "
                "or `save_on_cpu`, and a replayed step keeps what it has saved; call it outside, or do not replay"
            ) from error

    def _check_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, was in self._weights.items():
            if (weights[name].shape, weights[name].requires_grad) != was:
                raise InputError(
                    f"{self._name}: the weight {name!r} is not what it was when its step was captured; call "
                    "`parallelize` once weights are as they are to be trained"
                )

    # ---- what autograd calls -------------------------------------------------------------------------------

    def forward(
        self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], inputs: dict[int, Tensor]
    ) -> ReplayedPass:
        """The forward pass."""
        return self._step.forward(weights, buffers, inputs)

    def outputs(self, run: ReplayedPass) -> tuple[list[Tensor], list[Tensor]]:
        """All outputs, and those without a gradient."""
        made = self._step.outputs(run)
        return made, [each for each, has in zip(made, self._has_gradient, strict=True) if not has]

    def backward(self, run: ReplayedPass, gradients: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        """The gradients of trained weights."""
        if torch.is_grad_enabled():
            raise InputError(
                f"{self._name}: gradients of a replayed step are not differentiated; leave out `create_graph=True`, or "
                "do not replay"
            )
        if run.is_over:
            raise RuntimeError("a replayed step has one backward pass, which frees what it needs; call the model again")
        trained = self._program.loss_outputs
        odd = [position for position, given in enumerate(gradients) if given is not None and position not in trained]
        if odd:
            raise InputError(
                f"{self._name}: output {odd[0]} has a gradient, and in the plan the loss is made of "
                f"{', '.join(map(str, trained))} alone; plan the model so that it returns what the loss is made of"
            )
        return self._step.backward(run, gradients)


class _Replayed(Function):
    """The outputs of a model, from its trained weights."""

    @staticmethod
    def forward(
        ctx: Any,
        replayed: ReplayedForward,
        weights: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        inputs: dict[int, Tensor],
        *_: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.replayed, ctx.run = replayed, replayed.forward(weights, buffers, inputs)
        outputs, without = replayed.outputs(ctx.run)
        ctx.mark_non_differentiable(*without)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, None, None, *ctx.replayed.backward(ctx.run, gradients)


def _owners(model: nn.Module, kind: str) -> list[tuple[str, dict[str, Tensor], str]]:
    """Names of parameters or buffers, the dicts of modules that hold them, and the keys there; each tensor once."""
    named = model.named_parameters() if kind == "_parameters" else model.named_buffers()
    found = list[tuple[str, dict[str, Tensor], str]]()
    for name, _ in named:
        path, _, key = name.rpartition(".")
        found.append((name, vars(model.get_submodule(path))[kind], key))
    return found


def _object(leaves: Iterable[object]) -> object | None:
    """The first that is neither a tensor nor a constant; None if all are."""
    return next((leaf for leaf in leaves if not isinstance(leaf, Tensor | None | bool | int | float | str)), None)


def _hooked(parts: Iterable[tuple[str, nn.Module]]) -> str:
    """What is wrong if modules, by path, have hooks of their own; empty if they have none."""
    for path, part in parts:
        hooks = (hook for kind in _HOOKS if vars(part)[kind] for hook in vars(part)[kind].values())
        if not all(getattr(hook, "runs_by_plan", False) for hook in hooks):
            at = f"module {path!r}" if path else "the model"
            return f"{at} has a hook, which a replayed step does not call; remove it, or do not replay"
    return ""
