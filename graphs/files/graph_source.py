"""Graph sources: what a graph is given as, opened and checked once; a model is captured when its graph is asked for.

OpGraph, "net.graph.json", "net.onnx:batch=8"          LoadedGraph    taken as it is
"rnnlm:layers=4", "my.py:net"                          NamedModel     captured, unless the cache has it
(module, args), (module, args, kwargs)                 GivenModule    captured
torch.fx.GraphModule of a rank's step                  LoadedGraph    by its nodes (`graphs.capture.one_rank_step`)
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, Union

from graphs.capture import cache
from graphs.capture.training_step import training_step
from graphs.formats import name_of
from graphs.formats.graph_files import GRAPH_FILES, is_graph_file, read_graph
from graphs.formats.msr import is_workload, load_workload
from graphs.foundation import by_name
from graphs.foundation.errors import InputError, check_distinct
from graphs.foundation.progress import waiting
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.transforms.mixed_precision import AS_IT_IS, check_precision, in_precision, precision_named

# Imported for their types alone: torch takes seconds to import.
if TYPE_CHECKING:
    from torch import nn
    from torch.fx import GraphModule

    from graphs.capture.examples import Example

Graph: TypeAlias = Union[OpGraph, str, os.PathLike[str], tuple[Any, ...], "GraphModule"]
"""A graph, its name, (module, args), or what `torch.fx` has traced."""

_FAMILIES = "graphs.families"
_GRAPHS = (
    f"a graph is also given as a file, *.graph.json or {', '.join(f'*{ending}' for ending in GRAPH_FILES)}, or as "
    "file.py:callable"
)


class GraphSource(Protocol):
    """Where a graph comes from."""

    @property
    def name(self) -> str:
        """How messages call it: the text that was given, or the name of the graph or of the module's class."""
        ...

    @property
    def problem(self) -> Problem | None:
        """The problem in a file that lists devices in addition to its graph, as workloads do; None for all others."""
        ...

    def check_has_modules(self) -> None:
        """Raise InputError for a graph, which has no modules that ops could be tied by."""
        ...

    def in_precision(self, word: str) -> GraphSource:
        """The same in a precision (`graphs.transforms.mixed_precision`).

        Raises InputError for an unknown one, and for one that asks for other types of tensors than a graph has.
        """
        ...

    def module(self) -> nn.Module:
        """The model. Raises InputError for a graph, and as `graphs.capture.examples.example_of`."""
        ...

    def graph(self, *, training: bool = True, with_law: bool = False) -> OpGraph:
        """The graph: of a model that of a whole training step, or without `training` that of its forward pass.

        A model is captured again, with another batch, for a graph `with_law`: it then knows exactly what does not grow
        with the batch (`graphs.capture.second_batch`). Raises InputError for a model that cannot be captured.
        """
        ...


def graph_source(what: Graph | GraphSource) -> GraphSource:
    """The source that is meant; a graph file is read, and of a model all is checked that needs no capture.

    Raises InputError for an unknown name, a file that is missing or damaged, a knob that is unknown or has a wrong
    value, and an object that is no graph and no module with its inputs.
    """
    if isinstance(what, LoadedGraph | NamedModel | GivenModule):
        return what
    if isinstance(what, OpGraph):
        return LoadedGraph(what, what.name)
    if isinstance(what, tuple):
        return GivenModule(what)
    if is_traced(what):
        from graphs.capture.one_rank_step import rank_graph  # with torch

        return LoadedGraph(graph := rank_graph(what), graph.name)
    text = _text(what)
    return LoadedGraph(read_graph(text), text, Path(text)) if is_graph_file(text) else NamedModel(text)


def is_traced(what: object) -> TypeGuard[GraphModule]:
    """Whether it is a `torch.fx.GraphModule`, which needs no inputs to say what it computes."""
    torch = sys.modules.get("torch")  # without which there is none
    return torch is not None and isinstance(what, torch.fx.GraphModule)


def graph_sources(graphs: Iterable[Graph]) -> list[GraphSource]:
    """Several sources. Raises InputError, too, for a graph that is given twice, before any file is read."""
    graphs = list(graphs)
    named = [graph for graph in graphs if not (isinstance(graph, tuple) or is_traced(graph))]
    check_distinct("graph", [(g.name, g.fingerprint) if isinstance(g, OpGraph) else (_text(g), "") for g in named])
    return [graph_source(graph) for graph in graphs]


@dataclass(frozen=True, eq=False)
class LoadedGraph:
    """A graph, as it was given or read from a file."""

    loaded: OpGraph
    name: str
    file: Path | None = None  # that it was read from

    @cached_property
    def problem(self) -> Problem | None:
        """That of a workload."""
        if self.file is None or not is_workload(self.file):
            return None
        return load_workload(self.file).problem(name_of(self.file))

    def check_has_modules(self) -> None:
        """It has none."""
        raise InputError(
            f"{self.name}: a graph has no modules to tie its ops by; give the model that it was captured from, or a "
            "number of op groups"
        )

    def in_precision(self, word: str) -> LoadedGraph:
        """With products in TF32. Raises InputError for other types of tensors than the graph has."""
        asked = precision_named(word)
        if word == self.loaded.captured_in:
            return self
        if asked.tensors or asked.autocast:
            raise InputError(
                f"{self.name}: a graph keeps the types of tensors that it was captured with; give `precision={word!r}` "
                "with its model, or to the verb that captures it: `placelab capture MODEL --precision bf16 --out FILE`"
            )
        return replace(self, loaded=in_precision(self.loaded, word))

    def module(self) -> nn.Module:
        """The names that the graph has of it. Raises InputError for a graph without."""
        from graphs.op_groups.named_modules import named_modules  # with torch, seconds to import
        from graphs.op_groups.whole_modules import check_calls

        check_calls(self.loaded)
        return named_modules(self.loaded)

    def graph(self, *, training: bool = True, with_law: bool = False) -> OpGraph:  # noqa: ARG002 - it knows its law, or not
        """The graph as it is. Raises InputError for a training step unless `training`."""
        if self.loaded.is_training and not training:
            raise InputError(
                f"{self.loaded.name!r} is a training step already; leave out `training=False`, or give it to the verb "
                "that captured its model"
            )
        return self.loaded


class _Model(ABC):
    """A model, whose example inputs can be of any number of samples."""

    problem = None
    precision: str

    def check_has_modules(self) -> None:  # noqa: B027 - there is nothing to refuse
        """It has."""

    @abstractmethod
    def example(self, samples: int = 0) -> Example:
        """The module with its own inputs, or with inputs of `samples` samples."""

    def module(self) -> nn.Module:
        """That of the example."""
        return self.example().module

    def _capture(self, training: bool, samples: int = 0) -> OpGraph:
        """The model, captured now, with its own or another number of samples."""
        from graphs.capture.casting import traced_in  # with torch

        asked = precision_named(self.precision)
        traced = traced_in(self.example(samples), asked)
        if training and not samples:  # the second of two captures need not say so again
            traced.warn_of_eval()
        forward = traced.build()
        check_precision(forward, self.precision)
        return in_precision(training_step(forward) if training else forward, self.precision)


@dataclass(frozen=True)
class NamedModel(_Model):
    """A model by the spec of a family, or by a function in a user's file, which is not run before it is captured."""

    name: str
    precision: str = AS_IT_IS

    def in_precision(self, word: str) -> NamedModel:
        """Captured in it."""
        precision_named(word)
        return replace(self, precision=word)

    def __post_init__(self) -> None:
        if own := by_name.own(self.name):
            if not os.path.isfile(own.file):  # noqa: PTH113 - a name may be too long for a path
                raise InputError(f"{own.file}: no such Python file; expected path/to/file.py:callable")
            return
        family = self.name.partition(":")[0]
        if not by_name.exists(_FAMILIES, family):
            if self.name and os.path.exists(self.name):  # noqa: PTH110 - likewise
                kind = "a folder" if Path(self.name).is_dir() else "no graph file by its name"
                raise InputError(f"{self.name} is {kind}; {_GRAPHS}")
            raise InputError(f"{by_name.unknown('model family', family, by_name.names(_FAMILIES))}; {_GRAPHS}")
        if not cache.is_kept(self.name):  # to check its knobs takes the seconds that torch takes to be imported
            by_name.check(_FAMILIES, self.name)

    def example(self, samples: int = 0) -> Example:
        """As `graphs.capture.examples.example_of` makes it."""
        from graphs.capture.examples import example_of  # with torch

        return example_of(self.name, samples)

    def graph(self, *, training: bool = True, with_law: bool = False) -> OpGraph:
        """From the cache of captures, if nothing has changed since it was captured."""
        kind = self.precision
        if (graph := cache.kept(self.name, training=training, with_law=with_law, precision=kind)) is not None:
            return graph
        if not with_law:
            with waiting(f"capturing {self.name}"):
                capture = partial(self._capture, training)
                return cache.captured(self.name, capture, training=training, precision=kind)
        with cache.warned() as before:
            graph = self.graph(training=training)
        again = _of_two_batches(graph, partial(self._capture, training))
        with waiting(f"capturing {self.name} with another batch"):
            return cache.captured(self.name, again, training=training, with_law=True, before=before, precision=kind)


@dataclass(frozen=True, eq=False)
class GivenModule(_Model):
    """A module and its example inputs: its graph is called `Class:58.2M`, by its class and number of parameters."""

    given: tuple[Any, ...]
    precision: str = AS_IT_IS

    def in_precision(self, word: str) -> GivenModule:
        """Captured in it; the module itself stays as it is."""
        precision_named(word)
        return replace(self, precision=word)

    @property
    def name(self) -> str:
        """Its class."""
        return type(self.given[0]).__name__ if self.given else "()"

    @cached_property
    def _example(self) -> Example:
        from graphs.capture.examples import given_example  # with torch

        example = given_example(self.given, self.name, name=self.name)
        return replace(example, name=f"{self.name}{_size(example.module)}")

    def module(self) -> nn.Module:
        """The module itself, whose inputs are not looked at."""
        found: nn.Module = self.given[0]
        return found

    def example(self, samples: int = 0) -> Example:
        """Raises InputError for another tuple."""
        return self._example.resized(samples) if samples else self._example

    def graph(self, *, training: bool = True, with_law: bool = False) -> OpGraph:
        """Captured each time."""
        graph = self._capture(training)
        return _of_two_batches(graph, partial(self._capture, training))() if with_law else graph


def _size(module: nn.Module) -> str:
    """How many parameters a module has, which tells models of one class apart: ":58.2M", or "" for none."""
    from torch.nn.parameter import is_lazy  # with torch

    count = sum(each.numel() for each in module.parameters() if not is_lazy(each))
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= 0.9995 * size:
            return f":{count / size:.3g}{unit}"
    return f":{count}" if count else ""


def _of_two_batches(graph: OpGraph, again: Callable[[int], OpGraph]) -> Callable[[], OpGraph]:
    from graphs.capture.second_batch import with_law  # with torch

    return lambda: with_law(graph, again)


def _text(what: object) -> str:
    """The text of a path or a spec."""
    if isinstance(what, str | os.PathLike):
        return os.fspath(what)
    raise InputError(
        f"expected a graph, a graph file, a family such as rnnlm:layers=4 or file.py:callable, got "
        f"{type(what).__name__}; graphs.capture.forward.capture makes a graph of a torch module"
    )
