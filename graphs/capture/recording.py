"""Recording: run a module once on tensors without data, and write down every ATen operation.

What is written is what `torch.export` with its decompositions would write, at a small part of its time. A
`TorchDispatchMode` sees each operation below autograd, and

- decomposes it by the exporter's table, or as PyTorch does if it is a composite one;
- writes an operation in place as its functional twin, "add" for "add_": who reads that tensor later reads the twin;
- leaves everything else as it is.

The op graphs are equal, but for the modules in the names of some ops: those in a `no_grad` or `autocast` block, and of
a reentrant checkpoint, keep their module, which the exporter forgets; a module that is registered under two names has
the first, where the exporter takes the one that the code used.

Not everything can be recorded so: a view that is read after the tensor behind it has changed, values that decide what
is computed, unless they are known (`graphs.capture.known_values`), tensors of other classes than torch.Tensor.
`Unrecorded` is raised then, or whatever the module's code raises on tensors without data.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from graphs.capture.autocast import Autocast
from graphs.capture.by_values import Copies
from graphs.capture.checkpoints import checkpoints_seen
from graphs.capture.exporting import decomposition_of, decompositions, exporter_settings
from graphs.capture.function_calls import ModulePath
from graphs.capture.functional_twins import is_view, split_results, twin_of
from graphs.capture.gradient_flow import detaches
from graphs.capture.gradient_rules import trained
from graphs.capture.known_values import KnownValues
from graphs.capture.lifetimes import Lifetimes, freed_at_once
from graphs.capture.nested import results_and_states, tensors_in, with_tensors
from graphs.capture.one_device import home_of
from graphs.capture.output_shapes import OutputShapes, of_attention
from graphs.capture.own_functions import functions_seen
from graphs.capture.program import TracedProgram
from graphs.capture.recorded_calls import PLAIN_TENSORS, RecordedCalls, Unrecorded, at_line, current_line
from graphs.capture.recorded_gradients import RecordedGradients
from graphs.capture.recorded_tensors import changed_by, given_tensors, inputs_among
from graphs.capture.stand_ins import StandIns, put_into, unchanged
from graphs.capture.traced_nodes import base_of
from graphs.op_graph import Call

aten = torch.ops.aten

_QUESTIONS = (aten._local_scalar_dense.default, aten.equal.default)  # about values


def record(
    module: nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    compiling: Collection[type[nn.Module]] = (),
    by_values: bool = False,
) -> TracedProgram:
    """The module's forward pass; nothing is computed, and the module stays as it is.

    Libraries that ask PyTorch whether a compiler runs them (`torch.compiler.is_compiling`) are told so in the parts of
    the classes `compiling`. With `by_values` it is computed, for code that asks for values (`capture.by_values`).

    Raises Unrecorded for what cannot be recorded, TooLargeError for what is not computed, and what the module raises.
    """
    given = given_tensors(module, (args, kwargs))
    stand_ins = Copies(module, given) if by_values else StandIns(home_of(given))
    names = {parameter: name for name, parameter in module.named_parameters()}
    before: dict[str, Tensor] = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    with unchanged(module):
        calls = RecordedCalls(path := ModulePath(module))
        recorder = calls.recorder = Recorder(stand_ins, path, calls, KnownValues(module, tensors_in((args, kwargs))))
        placed = {recorder.placed(stand_ins(parameter)): parameter for parameter in names}
        args, kwargs = with_tensors((args, kwargs), stand_ins)
        put_into(module, stand_ins)
        below_autograd = torch._C._AutoDispatchBelowAutograd()  # no gradients are prepared, though the code may ask
        with (
            exporter_settings(compiling=compiling),
            recorder.autocast.entered_as_named(),
            stand_ins.mode(),
            torch.enable_grad(),
            below_autograd,
            recorder,
            calls,
            functions_seen(recorder.gradients.own_function),
            checkpoints_seen(recorder.gradients.checkpoint),
            freed_at_once(),
        ):
            returned = module(*args, **kwargs)
            recorder.lifetimes.close()
        changed = changed_by(module, before, stand_ins, recorder.placeholders, recorder.read)
        answers = recorder.known.told([before[name] for name in changed])
    results, states = results_and_states(returned)
    return TracedProgram(
        nodes=list(recorder.graph.nodes),
        outputs=recorder.read(results),
        parameters=placed,
        calls=recorder.calls,
        memories=recorder.lifetimes.freed,
        names=names,
        inputs=inputs_among(recorder.placeholders, stand_ins),
        **recorder.gradients.found,
        hooks=calls.hooks,
        trained=recorder.read(trained(returned, results, recorder.requires)),
        changed=changed,
        returned=returned,
        states=recorder.read(states) + recorder.asked,
        by_values=stand_ins.data,
        answers=answers,
    )


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes every operation on tensors into `graph`, an `fx.Graph`."""

    def __init__(self, stand_ins: StandIns, path: Callable[[], str], calls: RecordedCalls, known: KnownValues) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.calls = Graph(), dict[Node, Call]()
        self._stand_ins, self._path, self._function_calls = stand_ins, path, calls
        self.lifetimes = Lifetimes(self.graph)
        # id of a tensor -> its node, its memory, the version of it, and what is told when the tensor is freed
        self._node: dict[int, tuple[Node, int, int, weakref.ref[Tensor]]] = {}
        self.placeholders: dict[int, Node] = {}  # id of a tensor that existed already -> its node
        self.gradients = RecordedGradients(self.requires, self._read, stand_ins.mode)
        self.asked: list[Node] = []  # what asks for the value of a tensor, which must have been computed
        self.known = known
        self._lifted = set[Node]()  # tensors that the code makes of numbers, which no device has to be asked for
        self._shapes, self.autocast = OutputShapes(), Autocast(stand_ins.home)
        self._whole: dict[int, Node] = {}  # memory -> the node of all that lies in it
        self._versions: dict[int, int] = {}  # memory -> how often it was written in place

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs an operation, on tensors without data, and writes it down."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():  # what decompositions call is no call of the module's
            if func.namespace == "prim":  # what is asked of a tensor, such as its device
                return func(*args, **kwargs)
            return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.autocast.is_entered:
            with self:
                cast = self.autocast.run(func, args, kwargs)
            if cast is not NotImplemented:
                return cast
        decomposed = decomposition_of(func)
        if decomposed is not None:
            with self:
                out = decomposed(*args, **kwargs)
            if out is not NotImplemented:
                self._part_from(args, out, func)
                return out
        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs)
        if func in _QUESTIONS:
            args = self._mapped(args, self.ask)
            with _disable_current_modes():
                return func(*args)
        reads, reads_by_name = self._mapped(args, self._read), self._mapped(kwargs, self._read)
        written = func
        if func is aten.lift_fresh.default:  # of a constant, which in-place operations must not change
            written = aten.clone.default
        if func is not aten.lift_fresh.default or self._stand_ins.are_meta:
            args, kwargs = self._mapped(args, self._stand_in), self._mapped(kwargs, self._stand_in)
        if self._stand_ins.are_meta and _is_factory(func):
            kwargs = kwargs | {"device": self._stand_ins.home}
        out = self._shapes.run(func, args, kwargs) if self._stand_ins.are_meta else func(*args, **kwargs)
        self._stand_ins.computed(func, args, kwargs, out)
        if func is aten.scaled_dot_product_attention.default and self._stand_ins.are_meta:
            out = of_attention(out, args)
        if not isinstance(out, (Tensor, tuple, list)):
            return out  # a question about a tensor
        name = written.overloadpacket.__name__
        node = self.graph.create_node("call_function", written, reads, reads_by_name, name=name)
        self._lifted |= {node} if func is aten.lift_fresh.default else set()
        self._write(node, out, self._memory_of(args[0]) if is_view(written) else None)
        return out

    def _in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        twin, written = twin_of(func)
        given = dict(enumerate(args)) | kwargs
        changed = [self._stand_in(given[each]) for each in written if isinstance(given[each], Tensor)]
        if twin is None or len(changed) < len(written):
            raise Unrecorded(f"{func} changes tensors in a way that is not known here")
        if any(tensor.is_leaf and tensor.requires_grad for tensor in changed) and torch.is_grad_enabled():
            raise Unrecorded("a parameter is changed in place")
        with self:
            out = twin(*args, **{name: value for name, value in kwargs.items() if name not in written})
        if kwargs.keys() & set(written):
            results, returned = ([out], changed[0]) if isinstance(out, Tensor) else (list(out), tuple(changed))
        else:
            results, returned = (
                ([out], changed[0]) if isinstance(out, Tensor) else split_results(out, len(func._schema.returns))
            )
        for tensor, result in zip(changed, results, strict=True):
            self.known.note_written(self._read(tensor))  # which may be a buffer that nothing has read so far
            if result.dtype != tensor.dtype:  # what is written takes the type of what it is written to
                with self:
                    result = aten._to_copy.default(result, dtype=tensor.dtype)
            self._replace(tensor, result, func, args, kwargs)
        return returned

    def _replace(self, tensor: Tensor, new: Tensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """From now on, who reads `tensor` reads `new`, which `func` has made of it."""
        node, memory = self._read(new), self._memory_of(tensor)
        if torch.Tag.inplace_view in func.tags:  # which changes no value
            func(*args, **kwargs)
        else:
            self._versions[memory] = self._versions.get(memory, 0) + 1
            if self._stand_ins.data:
                tensor.copy_(new)
                self._change(tensor, node, memory)
        if new.shape != tensor.shape:
            raise Unrecorded(f"{func} changes the shape of a tensor")
        if self.requires(tensor) and not detaches(func) and not torch.is_grad_enabled():
            self.gradients.requires_grad.add(node)  # what is read later has the gradient of what the tensor was before
            self.gradients.unseen.append(current_line())
        self._note(tensor, node, memory)

    def _change(self, tensor: Tensor, node: Node, memory: int) -> None:
        """All that lies in a memory, after a tensor in it, or a view of one, has got the value of a node."""
        whole = self._whole[memory]
        held = whole.meta["val"]
        if held.shape == tensor.shape and held.stride() == tensor.stride():
            self._whole[memory] = node
            return
        place = tensor.shape, tensor.stride(), tensor.storage_offset()
        self._whole[memory] = self._added(aten.as_strided_scatter.default, whole, node, *place)
        self._describe(self._whole[memory], held)

    def _added(self, operation: Any, *reads: Any) -> Node:
        return self.graph.create_node("call_function", operation, reads, name=operation.overloadpacket.__name__)

    # ---- nodes -------------------------------------------------------------------------------------------

    def _write(self, node: Node, out: Any, memory: int | None) -> None:
        """Note what a node returns; of a view, the memory that it lies in."""
        self._describe(node, out)
        if isinstance(out, Tensor):
            self._note(out, node, memory)
        elif isinstance(out, (tuple, list)):
            for position, part in enumerate(out):
                self._write(self.graph.call_function(operator.getitem, (node, position)), part, memory)

    def _describe(self, node: Node, out: Any) -> None:
        """Say of a node what it returns, where in the module's code it comes from, and whether it sends gradients."""
        node.meta["val"] = self._stand_ins.described(out)
        node.meta["nn_module_stack"] = {"": (self._path(), None)}
        self.gradients.note(node, out)
        if self._function_calls.current is not None:
            self.calls[node] = self._function_calls.current

    def _note(self, tensor: Tensor, node: Node, memory: int | None) -> None:
        if memory is None:
            memory = len(self._whole)
            self._whole[memory] = node
        key = id(tensor)
        earlier = self._node.get(key)
        freed = weakref.ref(tensor, lambda _: self.lifetimes.release(self._node.pop(key)[1]))
        self._node[key] = node, memory, self._versions.get(memory, 0), freed
        self.lifetimes.hold(memory, node)
        if earlier is not None:
            self.lifetimes.release(earlier[1])

    def _memory_of(self, tensor: Tensor) -> int:
        """A number that a tensor, its views and what it is a view of have in common."""
        return self._node[id(tensor)][1]

    def _part_from(self, args: tuple[Any, ...], out: Any, func: Any) -> None:
        """What an operation returns is new, though its decomposition makes views ("unsafe_split"), if it says so."""
        if not is_view(func) and func in decompositions():
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, Tensor) and not any(tensor is argument for argument in args):
                    self._note(tensor, self._read(tensor), None)

    def placed(self, tensor: Tensor) -> Node:
        """The node of a tensor that exists already: a stand-in, or a constant."""
        if id(tensor) not in self._node:
            node = self.graph.placeholder(f"input_{len(self._node)}")
            node.meta["val"] = self._stand_ins.described(tensor)
            if tensor.requires_grad:
                self.gradients.requires_grad.add(node)
            self.placeholders[id(tensor)] = node
            self.known.note(node, self._stand_ins.original(tensor))
            self._note(tensor, node, None)
        return self._node[id(tensor)][0]

    def ask(self, tensor: Tensor) -> Tensor:
        """Note that the module's code reads the value of a tensor; returns what has that value, if it is known."""
        node, value = self._read(tensor), self._stand_in(tensor)
        if not self._stand_ins.data:
            if (known := self.known.answer(node, at_line())) is None:
                return value
            value = known
        if node.op == "call_function" and base_of(node) not in self._lifted:  # which no operation need read
            asking = self._added(aten._local_scalar_dense.default, node)
            self._write(asking, torch.empty((), dtype=tensor.dtype), None)
            self.asked.append(asking)
        return value

    def read(self, outputs: Iterable[Tensor]) -> list[Node]:
        """The nodes of what a module returns."""
        return [self._read(tensor) for tensor in outputs]

    def require(self, tensor: Tensor, *, required: bool) -> None:
        """Note that the module's code asks for the gradient of a tensor, or for none."""
        if id(tensor) not in self._node and tensor not in self._stand_ins:
            return  # of a transformation, as of torch.func
        self.gradients.require(self._read(tensor), required=required)

    def requires(self, tensor: object) -> bool:
        """Whether autograd would send a gradient back through a tensor."""
        if not isinstance(tensor, Tensor):
            return False
        known = self._node.get(id(tensor))
        return tensor.requires_grad if known is None else known[0] in self.gradients.requires_grad

    def _read(self, tensor: Tensor) -> Node:
        """The node whose output a tensor is now."""
        tensor = self._stand_in(tensor)
        if id(tensor) not in self._node:
            return self.placed(tensor)
        node, memory, version, _ = self._node[id(tensor)]
        if self._versions.get(memory, 0) == version:
            return node
        if not self._stand_ins.data:
            raise Unrecorded("a view of a tensor is read after the tensor has changed in place")
        place = tensor.shape, tensor.stride(), tensor.storage_offset()
        self._write(self._added(aten.as_strided.default, self._whole[memory], *place), tensor, memory)
        return self._node[id(tensor)][0]

    def _stand_in(self, tensor: Tensor) -> Tensor:
        """The tensor without data that stands for another one: a parameter that was kept elsewhere, or a constant."""
        if id(tensor) in self._node or tensor in self._stand_ins:
            return tensor
        if type(tensor) not in PLAIN_TENSORS:
            raise Unrecorded(f"it computes with a {type(tensor).__name__} that no operation has made")
        if self._stand_ins.are_meta and not tensor.is_meta and not tensor.dim():
            return tensor  # a single number may lie anywhere
        return self._stand_ins(tensor)

    def _mapped(self, value: Any, function: Callable[[Tensor], Any]) -> Any:
        """Arguments with each tensor replaced by what a function makes of it."""
        if isinstance(value, Tensor):
            return function(value)
        if isinstance(value, (tuple, list)):
            return type(value)([self._mapped(part, function) for part in value])
        if isinstance(value, dict):
            return {key: self._mapped(part, function) for key, part in value.items()}
        return value


@cache
def _is_factory(func: Any) -> bool:
    """Whether an operation makes a tensor of no other one; of a single number does not count."""
    takes = {str(argument.type) for argument in func._schema.arguments}
    return func is not aten.scalar_tensor.default and not any("Tensor" in kind for kind in takes)
