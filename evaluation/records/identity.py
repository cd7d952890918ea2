"""What a result depends on, as hex digits: equal ones mean that the same work would be done again.

A problem is its graph, cluster, optimizer, objective, order, what its ops cost, and how that grows with the batch, if
the graph knows it, in bytes; a placer is all that its object holds: knobs, the weights of a policy, also of one within
it, and the content of files that it names. A class from outside of placelab counts with the file that defines it. What
has no lasting identity, such as a generator of random numbers, never equals anything: the work is then done again.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np

from envs.costs.costs import costs_of
from envs.simulation.simulator import RULES
from graphs.problem import STEP_TIME, Problem
from placers.contract.placer import Placer

SETTING = (bool, int, float, str, tuple)  # of a network
DIGITS = 32  # of a key; a problem's own are fewer
POLICY = ("meta.json", "policy.safetensors")  # what counts of a folder that a placer names
OURS = {"graphs", "envs", "placers", "training", "evaluation", "placelab"}  # whose changes change RULES


def key_of(problem: str, placer: str, seed: int, budget: int, *, robust: bool = False) -> str:
    """The key of a record, of a robust comparison or another one; problem and placer by their own digits."""
    return _digest(problem, placer, seed, budget, robust, RULES)[:DIGITS]


def problem_digits(problem: Problem) -> str:
    """Sixteen digits that change with anything that a plan for the problem, or its time, depends on, or with its name.

    Raises InputError as `costs_of` does.
    """
    law = problem.graph.batch_law
    if law is not None and not law.knows_ops:  # the samples alone do not change what a step takes
        law = None if problem.objective == STEP_TIME else law
    objective, order = problem.objective, problem.runtime.order
    return _digest(
        problem.name, problem.graph.fingerprint, problem.cluster.fingerprint, problem.optimizer, objective.name,
        order.name, objective.file or "", order.file or "", costs_of(problem).op_seconds,
        *(() if law is None else (law,)),
        *(() if problem.host is None else (problem.host,)),
        *(rule for rule in ("sends_at_end", "streams", "defer", "graphs") if getattr(problem.runtime, rule)),
        *(() if problem.runtime.copies == "barrier" else (problem.runtime.copies,)),
        *(() if problem.runtime.overlap else ("sums at end",)),
        *(() if problem.all_reduce == "ring" else (problem.all_reduce,)),
    )[:16]  # fmt: skip


def placer_digits(placer: Placer) -> str:
    """Digits that change with anything that the placer's plans depend on, but for its code in placelab."""
    return _digest(placer.name, placer)


def _digest(*parts: object) -> str:
    return _Content(parts).digest.hexdigest()


class _Content:
    """A hash that objects of any kind are added to."""

    def __init__(self, parts: tuple[object, ...]) -> None:
        self.digest = hashlib.sha256()
        self._within: list[int] = []  # objects that are being added: one may hold itself
        self._files: set[str] = set()
        for part in parts:
            self.add(part)

    def add(self, value: Any) -> None:
        """Add an object by its type and content."""
        self._tag(type(value).__qualname__)
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | Path):
            self._tag(repr(value))
            if isinstance(value, str | Path) and 0 < len(str(value)) < 4096 and "\0" not in str(value):
                self._add_file(Path(value))
        elif id(value) not in self._within:
            self._within.append(id(value))
            self._add_within(value)
            self._within.pop()

    def _add_file(self, path: Path) -> None:
        """What a path leads to, if that is a file or the folder of a policy."""
        for file in (path, *(path / name for name in POLICY)):
            try:
                if file.is_file():
                    self._tag(file.read_bytes())
            except OSError:  # no path at all, or one that may not be read: the placer will say so
                return

    def _add_within(self, value: Any) -> None:
        if isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, np.ndarray):
            self._tag(f"{value.dtype} {value.shape}")
            self._tag(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Mapping):
            for held in chain.from_iterable(value.items()):
                self.add(held)
        elif isinstance(value, Set):
            self.add(sorted(map(repr, value)))
        elif isinstance(value, Sequence):
            for held in value:
                self.add(held)
        elif isinstance(value, CodeType):
            self._tag(value.co_code)
            self.add([constant for constant in value.co_consts if not isinstance(constant, CodeType)])
        elif hasattr(value, "detach") and hasattr(value, "cpu"):  # a tensor, which numpy may not know the type of
            self._tag(str(value.dtype))
            self.add(value.detach().cpu().double().numpy())
        elif isinstance(value, partial):
            self.add([value.func, value.args, value.keywords])
        elif hasattr(value, "state_dict"):
            self._add_module(value)
        elif callable(value) and hasattr(value, "__qualname__"):
            self._add_function(value)
        else:
            self._add_object(value)

    def _add_module(self, module: Any) -> None:
        """A policy: its architecture, weights, and its other settings."""
        self._tag(repr(module))
        self.add(dict(module.state_dict()))
        for part in module.modules():
            self._add_class(type(part))
            held = {key: value for key, value in vars(part).items() if key[0] != "_" and key != "training"}
            self.add({key: value for key, value in held.items() if isinstance(value, SETTING) or is_dataclass(value)})

    def _add_function(self, function: Any) -> None:
        self._tag(f"{getattr(function, '__module__', '')} {function.__qualname__}")
        self.add(getattr(function, "__code__", None))
        self.add([getattr(function, "__defaults__", None), getattr(function, "__kwdefaults__", None)])
        self.add([cell.cell_contents for cell in getattr(function, "__closure__", None) or ()])
        if not isinstance(owner := getattr(function, "__self__", None), list | type(sys)):
            self.add(owner)  # of a method; what a list holds that results are appended to decides nothing

    def _add_object(self, value: Any) -> None:
        self._add_class(type(value))
        held = dict(getattr(value, "__dict__", {}))
        if is_dataclass(value):  # also what is kept in slots
            held = {field.name: getattr(value, field.name) for field in fields(value)} | held
        if not held:
            self._tag(repr(value))  # with its address, if it has no better one
        self.add(held)

    def _add_class(self, kind: type) -> None:
        self._tag(f"{kind.__module__} {kind.__qualname__}")
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if file and kind.__module__.partition(".")[0] not in OURS and file not in self._files:
            self._files.add(file)
            self._add_file(Path(file))

    def _tag(self, content: str | bytes) -> None:
        """With its length, so that no two sequences of contents look alike."""
        encoded = content.encode(errors="surrogatepass") if isinstance(content, str) else content
        self.digest.update(len(encoded).to_bytes(8, "little") + encoded)
