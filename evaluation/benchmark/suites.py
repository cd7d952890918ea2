"""Of which problems the benchmark consists: suites of graphs and clusters, by the specs that they were made from.

`SUITES` are those of placelab-bench-1, on the machine of list scheduling, and `TRUE_SUITES` those of placelab-bench-2,
run as programs run them: with hosts that issue ops, in mixed precision, at the measured shares of GPUs' peaks.

Op placement has the suites of `graphs.files.suites`. Whole plans, which may divide the batch, have pipelines, replicas
and several servers, and unequal devices: computers at home and in laboratories, of devices of the catalogue. In
`large`, every op that need not share a device is placed by itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from graphs.files.suites import SUITES as OP_SUITES
from graphs.files.suites import Pairs
from graphs.op_groups.grouping import Grouping
from graphs.runtime import IDEAL
from graphs.transforms.mixed_precision import AS_IT_IS

GROUPS = 128  # of ops, as `placelab compare --suite` ties them
PLACEMENT_SUITES = ("gdp12", "placeto", "heldout", "newfamilies", "clusters")

GPT2 = "transformer:gpt2,batch=32"
LLAMA = "llama:layers=12,width=1024,heads=16,inner=2752,sequence=512,batch=32"
BERT = "bert:bert-large,batch=32"
VIT = "vit:vit-base,batch=64"
RESNET = "resnet:resnet-152,batch=64"
SMALLER = "transformer:layers=8,width=512,heads=8,sequence=256,batch=32"
SMALL_VIT = "vit:layers=12,width=512,heads=8,image=224,batch=64"
SMALL_RESNET = "resnet:layers=50,image=224,batch=128"

UNEQUAL = (
    "mixed:servers=rtx3090x3+rtx3060,link=pcie4x8",
    "mixed:servers=rtx4070@pcie4x16+rtx3060ti@pcie3x4",
    "mixed:servers=rtx5090@pcie5x16+rtx3080@pcie4x4",
    "v100_a100:network=10gbe",
    "mixed:servers=rtx4090/a100-40gb/m1-max/laptop-cpu/laptop-cpu/server-cpu,link=pcie4x16,network=10gbe",
)


@dataclass(frozen=True)
class Suite:
    """Problems of one kind."""

    about: str
    pairs: Callable[[], Pairs]  # specs of graphs and clusters
    groups: Grouping = GROUPS
    whole_plans: bool = False  # whether plans may divide the batch: the graph then knows what does not grow with it
    runtime: str = IDEAL.name  # how plans are run
    cost_model: str = ""  # "": the one that follows from each graph
    precision: str = AS_IT_IS  # that of models
    reserve: str = "none"  # what is kept of the memory of GPUs, as `placelab place` takes it
    room: float = 0.0  # memory over what the plan needs that needs least, of all that a short search finds; 0: all


def _crossed(graphs: Iterable[str], clusters: Iterable[str]) -> Pairs:
    clusters = tuple(clusters)
    return tuple((graph, cluster) for graph in graphs for cluster in clusters)


def pipelines() -> Pairs:
    """Models of many equal layers on the GPUs of one server."""
    return _crossed((GPT2, LLAMA, BERT, VIT, RESNET), ("p100:devices=4", "dgx_a100:servers=1,devices=8"))


def replicas() -> Pairs:
    """Models that fit on one device, where the batch is worth dividing."""
    return _crossed((SMALLER, SMALL_VIT, SMALL_RESNET), ("p100:devices=2", "p100:devices=8", "v100:devices=4"))


def servers() -> Pairs:
    """The same models on several servers, between which the network is slow."""
    several = ("v100_servers:servers=2,devices=4,gbps=25", "dgx_a100:servers=2,devices=8", "dapple:testbed=B")
    return _crossed((GPT2, LLAMA, BERT, VIT, RESNET), several)


def unequal() -> Pairs:
    """Computers at home and in laboratories, whose devices are not alike."""
    return _crossed((GPT2, BERT, SMALLER, SMALL_RESNET), UNEQUAL)


def large() -> Pairs:
    """From 5,000 to 50,000 units."""
    return (
        ("gnmt:gnmt-4", "v100:devices=4"),
        ("gnmt:layers=8,steps=24,hidden=1024,batch=128", "p100:devices=8"),
        ("gnmt:gnmt-8", "dgx_a100:servers=1,devices=8"),
        ("rnnlm:layers=16,steps=256,hidden=1024,batch=64", "v100_servers:servers=2,devices=4,gbps=25"),
    )


def _of_groups(*clusters: str) -> Callable[[], Pairs]:
    """Models of four kinds on each cluster, their ops tied into groups."""
    graphs = ("rnnlm:rnnlm-2", "inception_v3:inception-v3", "transformer_xl:transformer-xl-2", "nasnet:nasnet")
    return partial(_crossed, graphs, clusters)


def _of_ops() -> Pairs:
    """6,006 units."""
    return _crossed(("gnmt:gnmt-4",), ("dgx_a100:servers=1,devices=8", "v100_servers:servers=2,devices=8,gbps=25"))


def _of_layers() -> Pairs:
    """Models of many equal layers on eight GPUs of a server, and on two cards of a computer at home."""
    return _crossed((GPT2, BERT), ("dgx_a100:servers=1,devices=8", "mixed:servers=rtx4090@pcie4x16+rtx3080@pcie4x4"))


SUITES: dict[str, Suite] = {
    **{name: Suite((OP_SUITES[name].__doc__ or "").partition("\n")[0], OP_SUITES[name]) for name in PLACEMENT_SUITES},
    "pipelines": Suite("models of many equal layers on the GPUs of one server", pipelines, None, True),
    "replicas": Suite("models that fit on one device, where the batch is worth dividing", replicas, None, True),
    "servers": Suite("models on several servers, between which the network is slow", servers, None, True),
    "unequal": Suite("computers at home and in laboratories, whose devices are not alike", unequal, None, True),
    "large": Suite("graphs of 5,000 to 50,000 units", large, None),
}

_measured = partial(Suite, cost_model="roofline:efficiency=measured", reserve="cuda")  # the shares of GPUs' peaks
TRUE_SUITES: dict[str, Suite] = {
    "loop": _measured(
        "mixed precision in a user's own loop, which issues one op after another",
        _of_groups("dgx_a100:servers=1,devices=4", "mixed:servers=rtx4090@pcie4x16+rtx3080@pcie4x4"),
        runtime="parallelize", precision="bf16-mixed",
    ),
    "processes": _measured(
        "single precision, with a process for each device",
        _of_groups("p100:devices=8", "v100_servers:servers=2,devices=4,gbps=25"), runtime="run",
    ),
    "tight": _measured(
        "5% more memory than the plan needs that needs least, of all that a short search finds",
        _of_groups("v100:devices=4", "dgx_h100:servers=1,devices=8"), runtime="run", reserve="none", room=1.05,
    ),
    "units": _measured(
        "6,006 ops that are placed by themselves, with a process for each device", _of_ops, None, runtime="run",
    ),
    "layers": _measured(
        "models of many equal layers in mixed precision, whose plans may divide the batch",
        _of_layers, None, whole_plans=True, runtime="torch-pipelining", precision="bf16-mixed",
    ),
}  # fmt: skip
BENCHMARKS = {"placelab-bench-1": SUITES, "placelab-bench-2": TRUE_SUITES}
