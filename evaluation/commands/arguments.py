"""Arguments of the public functions: text, paths and objects alike, each checked before any work begins.

A parameter's annotation is a name of `ARGUMENTS`, which holds the type of its flag on the command line and what is made
of a value: both take the same. Keywords that several verbs share, or that are too many for a signature, are the keys of
a `TypedDict` of `OPTIONS`: `**options: Unpack[ProblemOptions]` takes each of them.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast, get_args

from graphs.foundation import by_name
from graphs.foundation.errors import InputError

if TYPE_CHECKING:
    from torch.fx import GraphModule
    from torch.nn import Module

    from envs.costs.costs import CostModel
    from envs.plans.placer_result import PlacerResult
    from envs.plans.plan import Plan
    from graphs.cluster import Cluster
    from graphs.foundation.engine import Workers
    from graphs.op_graph import OpGraph
    from graphs.op_groups.grouping import Grouping
    from placers.contract.placer import Placer

# Text, so that they need no import; help() shows them in full.
GraphLike: TypeAlias = "str | Path | OpGraph | GraphModule | tuple[Module, Any] | tuple[Module, Any, dict[str, Any]]"
ClusterLike: TypeAlias = "str | Path | Cluster"
PlacerLike: TypeAlias = "str | Path | Placer"
CostModelLike: TypeAlias = "str | CostModel"
PlanLike: TypeAlias = "str | Path | Plan | PlacerResult"
PathLike: TypeAlias = "str | Path"
Groups: TypeAlias = "int | Literal['auto', 'modules'] | None"
Changes: TypeAlias = "str | Sequence[str]"
Folders: TypeAlias = "str | Path | Sequence[str | Path]"


class Declared(str):
    """An annotation of a verb; `repr`, which help() prints, has types in place of the names of this module."""

    __slots__ = ()

    def __repr__(self) -> str:
        return re.sub(r"\w+", lambda name: SHOWN.get(str(name[0]), str(name[0])), str(self))


class RuntimeOptions(TypedDict, total=False):
    """How plans are run."""

    runtime: str
    order: str
    host: str


class TimingOptions(RuntimeOptions, total=False):
    """What is placed together, how it is run, in which precision, and what ops cost."""

    groups: Groups
    precision: str
    cost_model: CostModelLike


class ProblemOptions(TimingOptions, total=False):
    """What a problem is made with, in addition to a graph and a cluster."""

    optimizer: str
    reserve: str
    batch: int | None
    training: bool


class PlanOptions(ProblemOptions, total=False):
    """What a problem is made with, and how its plans run the batch."""

    micro_batches: int | None


class WorkerOptions(TypedDict, total=False):
    """Processes that share the work."""

    workers: int
    cluster_address: str


class TrainOptions(RuntimeOptions, WorkerOptions, total=False):
    """What is trained on otherwise than a recipe says, and what it is computed with."""

    precision: str
    device: str


class CompareOptions(PlanOptions, WorkerOptions, total=False):
    """What `compare` takes in addition to problems, placers and a budget."""

    seconds: float | None
    objective: str
    seeds: int
    robust: bool
    journal: PathLike | None
    plans: PathLike | None


class RunOptions(RuntimeOptions, total=False):
    """What `run` takes in addition to a model, a plan, devices and steps."""

    groups: Groups
    cost_model: CostModelLike
    batch: int | None
    data: str
    seed: int
    limit: int
    chart: PathLike | None
    trace: PathLike | None


class LoopOptions(TypedDict, total=False):
    """How a user's own loop runs a plan."""

    defer_weight_gradients: bool | None
    side_streams: bool | None
    replay: tuple[Any, ...] | Mapping[str, Any] | None
    cuda_graphs: bool | None


Taken: TypeAlias = Callable[[str, Any], Any]  # name and value -> the value as verbs expect it; raises InputError

CacheAction: TypeAlias = Literal["show", "clear"]
PlanChoice: TypeAlias = Literal["placement", "all", "run"]  # what a plan may be, where no placer is named
ExportFormat: TypeAlias = Literal[
    "device_map", "vllm", "llama_cpp", "torchtitan", "megatron", "deepspeed", "fsdp", "schedule_csv", "chakra"
]  # fmt: skip

AUTO: Literal["auto"] = "auto"
GROUPS = 256  # op groups, unless a number is given; a search ends with as many, but begins with 16
# Unless one is named. What is planned is behind no placement that is found in as many simulations.
PLACERS: dict[str, str] = {"placement": "annealing:policy=default", "all": "planner:placements={budget}",
                           "run": "planner:placements={budget},runnable=true"}  # fmt: skip
# The least that makes sense, of each whole number.
LEAST = {"budget": 0, "seed": 0, "simulations": 0, "seeds": 1, "workers": 1, "groups": 1, "repeats": 1, "batch": 1,
         "micro_batches": 1, "freeze": 0, "processes": 1, "threads": 1, "samples": 1, "steps": 1,
         "limit": 1, "trials": 1, "port": 1}  # fmt: skip
TAKEN = (
    TimingOptions,
    ProblemOptions,
    PlanOptions,
    CompareOptions,
    RunOptions,
    WorkerOptions,
    TrainOptions,
    LoopOptions,
)
OPTIONS = {f"Unpack[{each.__name__}]": each for each in TAKEN}
DEFAULTS: dict[str, object] = {
    "groups": AUTO, "optimizer": AUTO, "precision": AUTO, "batch": None, "training": True, "cost_model": AUTO,
    "order": AUTO, "runtime": AUTO, "host": AUTO, "reserve": AUTO, "objective": "step-time", "micro_batches": None,
    "seconds": None, "seeds": 1, "workers": 1, "cluster_address": "", "robust": False, "journal": None,
    "plans": None, "data": "",
    "seed": 0, "limit": 600, "chart": None, "trace": None, "device": "cpu", "defer_weight_gradients": None,
    "side_streams": None, "replay": None, "cuda_graphs": None,
}  # fmt: skip


def workers_of(options: WorkerOptions) -> Workers:
    """How many processes of this machine share the work, or the address of a scheduler whose workers do."""
    return options["cluster_address"] or options["workers"]


def of_problem(options: PlanOptions) -> ProblemOptions:
    """Those options that a problem is made with."""
    return cast(
        "ProblemOptions", {key: value for key, value in options.items() if key in ProblemOptions.__annotations__}
    )


def tied_into(groups: Groups) -> Grouping:
    """The number of op groups, `auto` replaced; "modules" for one of each, and None for every op by itself."""
    return GROUPS if groups == AUTO else groups


def path_or_none(file: PathLike | None) -> Path | None:
    """A file as a path, if one is given."""
    return None if file is None else Path(file)


def as_declared(name: str, value: Any, annotation: str) -> Any:
    """A value converted as an annotation says. Raises InputError, naming the parameter, if it cannot be."""
    what, is_sequence, may_lack = _parsed(annotation)
    if value is None and what != "Groups":
        if may_lack:
            return None
        raise InputError(f"{name} is None; give a value, or leave it out")
    taken = ARGUMENTS[what][1]
    return [taken(name, each) for each in _listed(name, value)] if is_sequence else taken(name, value)


def flag_type(annotation: str) -> Any:
    """The type of a flag on the command line, from the annotation of its parameter."""
    what, is_sequence, may_lack = _parsed(annotation)
    text = list[ARGUMENTS[what][0]] if is_sequence else ARGUMENTS[what][0]  # type: ignore[misc]
    return text | None if may_lack else text


def _parsed(annotation: str) -> tuple[str, bool, bool]:
    """The name of an argument's kind, and whether it is a sequence and whether it may be None."""
    what = annotation.removesuffix(" | None")
    element = what.removeprefix("Sequence[").removesuffix("]")
    return element, element != what, what != annotation


def _listed(name: str, value: Any) -> list[Any]:
    """The elements of a sequence; text is split at its commas."""
    is_model = isinstance(value, tuple) and value and _is_module(value[0])  # with its example inputs
    if is_model or isinstance(value, str) or not isinstance(value, Sequence):
        value = [value]
    found: list[Any] = []
    for one in value:
        several = isinstance(one, str) and "," in one and not Path(one).exists()
        found += by_name.specs(one) if several else [one]
    if any(one == "" for one in found):
        raise InputError(f"{name}: one of the entries is empty; leave it out")
    return found


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise InputError(f"{name}: expected a file, as text or a Path, got {_described(value)}")
    return Path(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | Path):
        raise InputError(f"{name}: expected text, got {_described(value)}")
    return str(value)


def _whole(name: str, value: Any) -> int:
    """A whole number, also as text."""
    least = LEAST[name]
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool) or number < least:
        shown = repr(value) if number is None or isinstance(value, bool) else number
        raise InputError(f"{name} is {shown}; expected a whole number >= {least}")
    return number


def _seconds(name: str, value: Any) -> float:
    """Seconds, also as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not number > 0:
        raise InputError(f"{name} is {value!r}; expected a number > 0")
    return number


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} is {value!r}; expected True or False")
    return value


def _groups(name: str, value: Any) -> int | str | None:
    """A number of op groups, `auto`, `modules`, or nothing: every op by itself, but for those that the graph ties."""
    if value in (None, "none", "None"):
        return None
    if value in (0, "0"):
        raise InputError(f"{name} is 0; expected at least 1, or `none` to place every op by itself")
    if value in (AUTO, "modules"):
        return str(value)
    if isinstance(value, str) and not value.lstrip("-").isdecimal():
        raise InputError(f"{name} is {value!r}; expected a whole number, or one of auto, modules, none")
    return _whole(name, value)


def _changes(name: str, value: Any) -> list[str]:
    """Changes of a recipe; a comma belongs to the value of one, as in "problems.groups=[16,32]"."""
    return [_text(name, each) for each in (value if isinstance(value, list | tuple) else [value])]


def _folders(name: str, value: Any) -> list[Path]:
    """Folders, or a single one."""
    return [_path(name, each) for each in (value if isinstance(value, list | tuple) else [value])]


def _graph(name: str, value: Any) -> Any:
    if _is_module(value):
        from graphs.files.graph_source import is_traced  # with all that captures, which --help does not wait for

        if is_traced(value):
            return value
        raise InputError(
            f"{name}: a module alone does not say what it is called with; give (module, example inputs), such as "
            f"(model, (x,)), with keyword inputs as a dict"
        )
    if isinstance(value, tuple) and len(value) in (2, 3) and _is_module(value[0]):
        return value
    expected = "a graph file, a family spec, file.py:callable, an OpGraph or (module, inputs)"
    return _text_or(expected, "graph")(name, value)


def _plan(name: str, value: Any) -> Any:
    given = _text_or("a plan file or a Plan", "plan")(name, getattr(value, "result", value))  # of what `place` returned
    return Path(given) if isinstance(given, str) else given


def _one_of(choice: Any) -> Taken:
    """Takes one of the values of a `Literal`."""

    def taken(name: str, value: Any) -> Any:
        if value not in get_args(choice):
            raise InputError(by_name.unknown(name, str(value), get_args(choice)))
        return value

    return taken


def _text_or(expected: str, kind: str = "", *, method: str = "") -> Taken:
    """Takes text, a path as text, and objects of a kind, as `_types` has it, or with a method."""

    def taken(name: str, value: Any) -> Any:
        if isinstance(value, str | Path):
            return str(value)
        if isinstance(value, _types(kind)) or (method and callable(getattr(value, method, None))):
            return value
        raise InputError(f"{name}: expected {expected}; got {_described(value)}")

    return taken


def _types(kind: str) -> tuple[type, ...]:
    """The types of what may be given in place of text."""
    # imported late: with NumPy, which --help and `list` do without
    from envs.plans.placer_result import PlacerResult
    from envs.plans.plan import Plan
    from graphs.cluster import Cluster
    from graphs.op_graph import OpGraph

    return {"graph": (OpGraph,), "cluster": (Cluster,), "plan": (Plan, PlacerResult)}.get(kind, ())


def _is_module(value: Any) -> bool:
    """Whether a value is a module of PyTorch, without importing that."""
    return callable(getattr(value, "forward", None)) and callable(getattr(value, "named_parameters", None))


def _described(value: Any) -> str:
    return f"{value!r}" if isinstance(value, str | int | float | bool) else f"an object of type {type(value).__name__}"


_PLACERS = "the spec of a placer, the folder of a trained one, or an object with `place`"
# Annotation -> the type of its flag on the command line, and what is made of its value.
ARGUMENTS: dict[str, tuple[Any, Taken]] = {
    "GraphLike": (str, _graph),
    "ClusterLike": (str, _text_or("a cluster file, a preset such as p100x4, or a Cluster", "cluster")),
    "PlacerLike": (str, _text_or(_PLACERS, method="place")),
    "CostModelLike": (str, _text_or("the spec of a cost model, or an object with `costs`", method="costs")),
    "PlanLike": (Path, _plan),
    "PathLike": (Path, _path),
    "Groups": (int | Literal["auto", "modules", "none"] | None, _groups),
    "Changes": (list[str], _changes),
    "Folders": (list[Path], _folders),
    "CacheAction": (CacheAction, _one_of(CacheAction)),
    "PlanChoice": (PlanChoice, _one_of(PlanChoice)),
    "ExportFormat": (ExportFormat, _one_of(ExportFormat)),
    "int": (int, _whole),
    "float": (float, _seconds),
    "bool": (bool, _flag),
    "str": (str, _text),
}
_TEXTS = (*(name for name in ARGUMENTS if name.endswith("Like")), "Groups", "Changes", "Folders")
_CHOICES = ("CacheAction", "PlanChoice", "ExportFormat")
# Annotation -> the type that help() shows in its place; "Model" is of `parallelize`.
SHOWN: dict[str, str] = {name: globals()[name] for name in _TEXTS} | {"Model": "Module"}
SHOWN |= {name: f"Literal{list(get_args(globals()[name]))}" for name in _CHOICES}
