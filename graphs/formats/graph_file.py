"""An op graph on disk, `*.graph.json` or `*.graph.json.gz`.

    {"schema": "placelab.graph", "version": 2, "name": "two",
     "nodes": [{"name": "a", "kind": "aten.mm", "flops": 8, "bytes_accessed": 48, "output_bytes": 16},
               {"name": "b", "kind": "aten.relu", "bytes_accessed": 32, "output_bytes": 16}],
     "edges": [["a", "b"]], "weights": [16], "weight_uses": [["a", 0]]}

Costs are in FLOP and bytes, and zero if left out. An op is named by its name or by its position in `nodes`; `control`
holds the positions of the edges that only order their ops.

A node may hold more: `"measured_seconds": 0.002` on any device, or by name or kind of device, `{"gpu": 0.002, "cpu:0":
0.03}`; `"devices": ["gpu"]`, the names or kinds of the only devices where the op may run; `"transfer_bytes"`, what a
transfer of its output moves, if not `output_bytes`, which is what the output occupies; `"unsent_bytes"`, what else it
makes and holds as long as its output, such as a mask; `"working_bytes"`, what it needs while it runs; `"call": ["head",
"linear", 0]`, the call in the captured model that the op comes from: module, function, how many calls of it came before
there; `"precision": "bf16"`, in which it multiplies, if not in single precision (`graphs.op_graph.precision`). An edge
may have a message of its own, `["a", "b", 4096]`, in bytes, in place of its producer's output.

`"batch": {"samples": 32, "fixed": [["a", 0, 48, 16]]}` says how many samples a step has and, of the ops that have such
parts, how much of their FLOP, of the bytes that they access and of their output does not grow with the samples. Without
`fixed`, a rule says it (`graphs.transforms.batch`). `"frozen": [0]` are the positions in `weights` of those that are
not trained. `"weight_names": ["head.weight"]` are what the model calls them.

`"signatures"` lists the distinct ATen operations of the ops, with shapes and arguments (`graphs.notation.signatures`),
as they were with another number of samples if `"signatures_of_other_batch"` says so. A node of number `"signature"`
reads its tensors from `"sources"`: `["op", "a"]`, `["weight", 0]`, or `["input", 0]`, which is neither. Version 1 has
none.

`"autograd"` of a forward pass says what its backward pass does other than op by op (`graphs.op_graph.autograd`), by
positions: `"stops": [[0, 1]]` are edges through which no gradient is sent back, `"constant_uses": [[0, 0]]` uses of a
weight that give it none, `"inputs": [[0, 0]]` uses of a held tensor that give it one, `"outputs": [1]` the ops whose
outputs are trained. `"kept_alive": [[[0, 2], 5]]` are ops whose outputs lie in one memory, and the last op that runs
before it is freed.
"""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from graphs.foundation.by_name import unknown
from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from graphs.notation.signatures import Origin, Signature, Signatures, numbered, origin
from graphs.op_graph import RESIDENT, Bools, Call, Floats, Ints, OpGraph
from graphs.op_graph.autograd import Autograd
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.held_tensors import HeldTensors
from graphs.op_graph.precision import SINGLE, with_precisions
from graphs.op_groups.grouping import MERGED

VERSION = 2
ENDINGS = (".graph.json", ".graph.json.gz")
ANY = "any"  # the key of a time that holds on any device, where an op has others as well

Amount = Annotated[float, msgspec.Meta(ge=0)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
OpRef = Position | str
EdgeEntry = Annotated[list[Position | Amount | str], msgspec.Meta(min_length=2, max_length=3)]
PhaseName = Literal["forward", "backward", "update", "refresh"]
PHASES: tuple[PhaseName, ...] = ("forward", "backward", "update", "refresh")  # by number
_OF_ALL = ("gradient_precision", "captured_in", "master_weights")  # what files and graphs say alike


class NodeSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One op."""

    name: str
    kind: str
    flops: Amount = 0.0
    bytes_accessed: Amount = 0.0
    output_bytes: Amount = 0.0
    phase: PhaseName = "forward"
    mirror: OpRef | None = None  # the op whose device this one shares
    group: Position | None = None  # ops of one group share a device
    measured_seconds: Amount | dict[str, Amount] | None = None  # on any device, or by name or kind of device
    devices: list[str] = []  # names or kinds of those where the op may run; anywhere if empty
    transfer_bytes: Amount | None = None  # what a transfer of the output moves; output_bytes if left out
    unsent_bytes: Amount = 0.0  # of further results, which are held as long as the output and sent nowhere
    working_bytes: Amount = 0.0  # of what the op makes and frees while it runs
    precision: str = SINGLE  # in which it multiplies, "bf16"
    call: Call | None = None  # of the model's code, that the op comes from
    signature: Position | None = None  # its number in `signatures`
    sources: list[tuple[Literal["op", "weight", "input"], OpRef]] = []  # of what its signature reads


class BatchSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """How many samples a step has, and what does not grow with them."""

    samples: Position = 0  # 0 if not known
    fixed: list[tuple[OpRef, Amount, Amount, Amount]] | None = None  # op, FLOP, bytes accessed, output bytes


class HeldSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An input, a buffer or a constant, which ops read and none makes."""

    bytes: Amount
    ops: list[OpRef] = []  # that read it
    grows: bool = False  # with the batch
    name: str = ""  # of a buffer in its model


class GraphFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a graph file holds."""

    schema: Literal["placelab.graph"]
    version: int
    name: str
    nodes: list[NodeSection]
    edges: list[EdgeEntry] = []  # producer, consumer and, of an edge with a message of its own, its bytes
    control: list[Position] = []  # positions in `edges`
    weights: list[Amount] = []  # bytes
    weight_uses: list[tuple[OpRef, Position]] = []  # op, weight
    weight_names: list[str] = []  # of the parameters in their model
    weight_precisions: list[str] = []  # as of nodes
    gradient_precision: str = ""
    captured_in: str = ""  # the precision that was asked for
    master_weights: bool = False  # whether optimizers keep copies in single precision
    frozen: list[Position] = []  # positions in `weights`
    batch: BatchSection | None = None
    held: list[HeldSection] | None = None
    signatures: list[Signature] | None = None
    signatures_of_other_batch: bool = False
    autograd: Autograd | None = None  # of a forward pass
    members: Any = None  # what earlier versions wrote of merged op groups: refused
    member_of: Any = None


def save_graph(graph: OpGraph, path: Path) -> None:
    """Write a graph, compressed if the file's name ends in ".gz". Raises InputError for another ending."""
    if not path.name.endswith(ENDINGS):
        raise InputError(f"{path}: the name of a graph file ends in {' or '.join(ENDINGS)}")
    encoded = msgspec.json.encode(_content(graph))
    if path.suffix == ".gz":
        write_whole(path, gzip.compress(encoded, mtime=0))
    else:
        write_whole(path, msgspec.json.format(encoded, indent=1) + b"\n")


def load_graph_file(path: Path) -> OpGraph:
    """The graph in a file.

    Raises InputError, naming the file and the place in it, if it is missing, damaged or of another version, if an
    edge names an unknown op, or if the graph is not one (a cycle, a negative cost).
    """
    remedy = "`placelab capture MODEL --out FILE` writes one"
    content = read_document(path, GraphFile, version=VERSION, remedy=remedy, earlier={1: GraphFile})
    with located(path):
        return with_precisions(_graph(content))


def _content(graph: OpGraph) -> GraphFile:
    columns = zip(
        graph.names, graph.kinds, graph.flops.tolist(), graph.bytes_accessed.tolist(), graph.output_bytes.tolist(),
        graph.phase.tolist(), graph.mirror.tolist(), graph.group.tolist(), _measured(graph),
        graph.devices or ((),) * len(graph), graph.transfer_bytes.tolist() or [None] * len(graph),
        *(getattr(graph, key).tolist() or [0.0] * len(graph) for key in RESIDENT),
        graph.precisions or [SINGLE] * len(graph), graph.calls or [None] * len(graph), *_signed(graph), strict=True,
    )  # fmt: skip
    nodes = [
        NodeSection(
            name=name, kind=kind, flops=flops, bytes_accessed=accessed, output_bytes=output,
            phase=PHASES[phase], mirror=None if mirror < 0 else graph.names[mirror],
            group=None if group < 0 else group, measured_seconds=seconds, devices=list(devices), transfer_bytes=sent,
            unsent_bytes=unsent, working_bytes=working, precision=precision, call=call, signature=signature,
            sources=sources,
        )
        for (
            name, kind, flops, accessed, output, phase, mirror, group, seconds, devices, sent, unsent, working,
            precision, call, signature, sources,
        ) in columns
    ]  # fmt: skip
    return GraphFile(
        schema="placelab.graph",
        version=VERSION,
        name=graph.name,
        nodes=nodes,
        edges=[[*ends, *size] for ends, size in zip(graph.edges.tolist(), _messages(graph), strict=True)],
        control=np.flatnonzero(graph.control).tolist(),
        weights=graph.weights.tolist(),
        weight_uses=graph.weight_uses.tolist(),
        weight_names=list(graph.weight_names),
        weight_precisions=list(graph.weight_precisions),
        **{key: getattr(graph, key) for key in _OF_ALL},
        frozen=np.flatnonzero(graph.frozen).tolist(),
        batch=_batch(graph),
        held=_held(graph),
        signatures=list(graph.signatures.distinct) if graph.signatures else None,
        signatures_of_other_batch=graph.signatures is not None and graph.signatures.of_other_batch,
        autograd=graph.autograd,
    )


def _signed(graph: OpGraph) -> tuple[list[int | None], list[list[tuple[Any, int | str]]]]:
    """(ops,) the number of each op's signature, and (ops,) the sources of what it reads."""
    signatures, weights = graph.signatures, len(graph.weights)
    if signatures is None:
        return [None] * len(graph), [[]] * len(graph)
    found = [[origin(number, weights) for number in signatures.numbers(op)] for op in range(len(graph))]
    sources = [
        [(each.kind, graph.names[each.number] if each.kind == "op" else each.number) for each in one] for one in found
    ]
    return [None if number < 0 else number for number in signatures.of.tolist()], sources


def _held(graph: OpGraph) -> list[HeldSection] | None:
    held = graph.held
    if held is None:
        return None
    readers: list[list[int]] = [[] for _ in range(len(held))]
    for op, tensor in held.uses.tolist():
        readers[tensor].append(op)
    names = held.names or ("",) * len(held)
    columns = zip(held.bytes.tolist(), readers, held.grows.tolist(), names, strict=True)
    return [HeldSection(bytes=size, ops=list(ops), grows=grows, name=name) for size, ops, grows, name in columns]


def _batch(graph: OpGraph) -> BatchSection | None:
    law = graph.batch_law
    if law is None or not law.knows_ops:
        return None if law is None else BatchSection(samples=law.samples)
    parts = np.column_stack([getattr(law, key) for key in COSTS])
    fixed = [(graph.names[op], *parts[op].tolist()) for op in np.flatnonzero(parts.any(axis=1))]
    return BatchSection(samples=law.samples, fixed=fixed)


def _measured(graph: OpGraph) -> list[float | dict[str, float] | None]:
    """(ops,) the measured seconds of each op, as a file holds them; `ANY` is the key of those on any device."""
    columns = {ANY: graph.measured_seconds, **graph.measured_on}
    found: list[float | dict[str, float] | None] = []
    for op in range(len(graph)):
        known = {device: float(seconds[op]) for device, seconds in columns.items() if not np.isnan(seconds[op])}
        found.append(known.get(ANY) if known.keys() <= {ANY} else known)
    return found


def _messages(graph: OpGraph) -> list[list[float]]:
    """(edges,) the bytes of each edge's own message, if it has one."""
    if not len(graph.edge_bytes):
        return [[]] * len(graph.edges)
    return [[] if np.isnan(size) else [size] for size in graph.edge_bytes.tolist()]


def _graph(content: GraphFile) -> OpGraph:
    if content.members is not None or content.member_of is not None:
        raise InputError(MERGED)
    nodes = content.nodes
    index: dict[str, int] = {}
    for position, node in enumerate(nodes):
        if index.setdefault(node.name, position) != position:
            raise InputError(
                f"nodes[{position}].name: {node.name!r} is nodes[{index[node.name]}] already; op names must be unique"
            )
    producers, consumers = (_ops("edges[{}]", [edge[end] for edge in content.edges], index) for end in (0, 1))
    users = _ops("weight_uses[{}]", [op for op, _ in content.weight_uses], index)
    used = np.array([weight for _, weight in content.weight_uses], np.int64)
    resident: dict[str, Any] = {key: np.array([getattr(node, key) for node in nodes]) for key in RESIDENT}
    return OpGraph(
        content.name,
        tuple(node.name for node in nodes),
        tuple(node.kind for node in nodes),
        flops=np.array([node.flops for node in nodes]),
        bytes_accessed=np.array([node.bytes_accessed for node in nodes]),
        output_bytes=np.array([node.output_bytes for node in nodes]),
        edges=np.column_stack([producers, consumers]),
        control=_marked("control", content.control, "edge", len(content.edges)),
        weights=np.array(content.weights),
        weight_uses=np.column_stack([users, used]),
        phase=np.array([PHASES.index(node.phase) for node in nodes], np.int64),
        mirror=_ops("nodes[{}].mirror", [node.mirror for node in nodes], index),
        group=np.array([-1 if node.group is None else node.group for node in nodes], np.int64),
        **_times_in(nodes),
        devices=tuple(tuple(node.devices) for node in nodes) if any(node.devices for node in nodes) else (),
        transfer_bytes=_transfer_bytes(nodes),
        **resident,
        edge_bytes=_edge_bytes(content),
        calls=tuple(node.call for node in nodes),
        weight_names=tuple(content.weight_names),
        frozen=_marked("frozen", content.frozen, "weight", len(content.weights)),
        precisions=tuple(node.precision for node in nodes),
        weight_precisions=tuple(content.weight_precisions),
        **{key: getattr(content, key) for key in _OF_ALL},
        batch_law=_batch_law(content, index),
        held=_held_tensors(content, index),
        signatures=_signatures(content, index),
        autograd=content.autograd,
    )


def _signatures(content: GraphFile, index: Mapping[str, int]) -> Signatures | None:
    if content.signatures is None:
        return None
    nodes = content.nodes
    given = [(f"nodes[{i}].sources[{k}]", *each) for i, node in enumerate(nodes) for k, each in enumerate(node.sources)]
    read = [op if kind == "op" else 0 for _, kind, op in given]
    ops = _ops("source {} of the nodes", read, index).tolist()
    numbers = list[int]()
    for (place, kind, which), op in zip(given, ops, strict=True):
        if kind != "op" and not isinstance(which, int):
            raise InputError(f"{place}: expected the number of the {kind}, got {which!r}")
        if kind == "weight" and int(which) >= len(content.weights):
            raise InputError(f"{place}: there is no weight {which}; there are {len(content.weights)} weights")
        numbers.append(numbered(Origin(kind, op if kind == "op" else int(which)), len(content.weights)))
    return Signatures(
        tuple(content.signatures),
        np.array([-1 if node.signature is None else node.signature for node in nodes], np.int64),
        np.append(0, np.cumsum([len(node.sources) for node in nodes])),
        np.array(numbers, np.int64),
        content.signatures_of_other_batch,
    )


def _held_tensors(content: GraphFile, index: Mapping[str, int]) -> HeldTensors | None:
    if content.held is None:
        return None
    uses = [
        (op, tensor)
        for tensor, each in enumerate(content.held)
        for op in _ops(f"held[{tensor}].ops[{{}}]", each.ops, index).tolist()
    ]
    return HeldTensors(
        np.array([each.bytes for each in content.held]), np.array(uses, np.int64).reshape(-1, 2),
        np.array([each.grows for each in content.held]), tuple(each.name for each in content.held),
    )  # fmt: skip


def _batch_law(content: GraphFile, index: Mapping[str, int]) -> BatchLaw | None:
    if content.batch is None or content.batch.fixed is None:
        return None if content.batch is None else BatchLaw(content.batch.samples)
    given = content.batch.fixed
    parts = np.zeros((len(content.nodes), len(COSTS)))
    parts[_ops("batch.fixed[{}]", [op for op, *_ in given], index)] = [amounts for _, *amounts in given] or 0.0
    return BatchLaw(content.batch.samples, *parts.T)


def _times_in(nodes: Sequence[NodeSection]) -> dict[str, Any]:
    """The measured seconds of the ops: on any device, and on each that some op names."""
    given = [node.measured_seconds for node in nodes]
    if all(seconds is None for seconds in given):
        return {}
    known = [seconds if isinstance(seconds, dict) else {ANY: seconds} for seconds in given]
    devices = sorted({device for each in known for device in each} - {ANY})

    def column(device: str) -> Floats:
        return np.array([each.get(device) for each in known], np.float64)  # None becomes NaN

    return {"measured_seconds": column(ANY), "measured_on": {device: column(device) for device in devices}}


def _transfer_bytes(nodes: Sequence[NodeSection]) -> Floats:
    """(ops,) what a transfer of each output moves; none where every output moves as a whole."""
    if all(node.transfer_bytes is None for node in nodes):
        return np.zeros(0)
    sent = (node.output_bytes if node.transfer_bytes is None else node.transfer_bytes for node in nodes)
    return np.array(list(sent), np.float64)


def _edge_bytes(content: GraphFile) -> Floats:
    """(edges,) the bytes of each edge's own message, or NaN; none where no edge has one."""
    own, control = np.full(len(content.edges), np.nan), set(content.control)
    for i, edge in enumerate(content.edges):
        if len(edge) == 2:
            continue
        if isinstance(edge[2], str) or i in control:
            expected = "no bytes on a control edge" if i in control else "bytes, a number >= 0"
            raise InputError(f"edges[{i}][2]: expected {expected}, got {edge[2]!r}")
        own[i] = edge[2]
    return np.zeros(0) if np.isnan(own).all() else own


def _marked(key: str, positions: Sequence[int], what: str, count: int) -> Bools:
    """(count,) whether each edge or weight is in the list that is called `key`."""
    marked = np.zeros(count, np.bool_)
    for position in positions:
        if position >= count:
            raise InputError(f"{key}: there is no {what} {position}; there are {count} {what}s")
        marked[position] = True
    return marked


def _ops(place: str, named: Sequence[float | str | None], index: Mapping[str, int]) -> Ints:
    """(places,) positions of the ops that are named at "edges[{}]", or the like; -1 for None.

    Raises InputError, which says where, for an unknown op.
    """
    found = np.array(
        [-1 if op is None else index.get(op, len(index)) if isinstance(op, str) else op for op in named], np.float64
    )
    unknown_ones = np.flatnonzero((found >= len(index)) | (found != np.floor(found)))
    if len(unknown_ones):
        where, op = place.format(unknown_ones[0]), named[unknown_ones[0]]
        what = unknown("op", op, index) if isinstance(op, str) else f"there is no op {op}; there are {len(index)} ops"
        raise InputError(f"{where}: {what}")
    return found.astype(np.int64)
