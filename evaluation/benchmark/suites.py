"""Of which problems the benchmark consists: suites of graphs and clusters, by the specs that they were made from.

Op placement has the suites of `graphs.files.suites`. Whole plans, which may divide the batch, have pipelines, replicas
and several servers, and unequal devices: computers at home and in laboratories, of devices of the catalogue. In
`large`, every op that need not share a device is placed by itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphs.files.suites import SUITES as OP_SUITES
from graphs.files.suites import Pairs
from graphs.op_groups.grouping import Grouping

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


SUITES: dict[str, Suite] = {
    **{name: Suite((OP_SUITES[name].__doc__ or "").partition("\n")[0], OP_SUITES[name]) for name in PLACEMENT_SUITES},
    "pipelines": Suite("models of many equal layers on the GPUs of one server", pipelines, None, True),
    "replicas": Suite("models that fit on one device, where the batch is worth dividing", replicas, None, True),
    "servers": Suite("models on several servers, between which the network is slow", servers, None, True),
    "unequal": Suite("computers at home and in laboratories, whose devices are not alike", unequal, None, True),
    "large": Suite("graphs of 5,000 to 50,000 units", large, None),
}
