"""Suites: problems to compare placers on, each a graph and the cluster that it is placed on, by the suite's name.

Two are those of papers: the papers give the models; batch sizes, and the sizes that they leave open, are those of the
families' configurations. Three measure how a policy generalizes to graphs, families and clusters that it never saw,
and a last one, of few problems from every family, what more simulations gain. All of them consist of placelab's own
families and clusters: what is installed in addition changes no suite.
"""

from collections.abc import Callable, Iterable, Sequence

from graphs.files.splits import split
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

Pairs = tuple[tuple[str, str], ...]  # specs of a graph and a cluster

KEPT_ASIDE = ("nasnet", "wavenet", "xlnet")  # families that no policy under evaluation may be trained on
AT_MOST = 4  # test graphs of a family: cifar10, nmt and ptb list 16 each, and would outweigh the others
P100S = ("p100:devices=2", "p100:devices=4")
OTHER_CLUSTERS = (
    "p100:devices=8", "v100:devices=4", "cpu_gpu:gpus=2", "p2_8xlarge:links=placeto,devices=4",
    "p100_switches:switches=2,devices=4", "v100_servers:servers=2,devices=4,gbps=25", "dgx_a100:servers=1,devices=8",
)  # fmt: skip


def gdp12() -> Pairs:
    """The twelve workloads of GDP's table (Zhou et al. 2019), with the numbers of P100 GPUs given there."""
    return (
        ("rnnlm:rnnlm-2", "p100:devices=2"), ("rnnlm:rnnlm-4", "p100:devices=4"),
        ("gnmt:gnmt-2", "p100:devices=2"), ("gnmt:gnmt-4", "p100:devices=4"), ("gnmt:gnmt-8", "p100:devices=8"),
        ("transformer_xl:transformer-xl-2", "p100:devices=2"), ("transformer_xl:transformer-xl-4", "p100:devices=4"),
        ("transformer_xl:transformer-xl-8", "p100:devices=8"), ("inception_v3:inception-v3", "p100:devices=2"),
        ("amoebanet:amoebanet", "p100:devices=4"), ("wavenet:wavenet-2x18", "p100:devices=2"),
        ("wavenet:wavenet-4x36", "p100:devices=4"),
    )  # fmt: skip


def placeto() -> Pairs:
    """The three models of Placeto's table (Addanki et al. 2019), on two and four GPUs of a p2.8xlarge."""
    graphs = ("inception_v3:inception-v3", "nmt:nmt", "nasnet:nasnet")
    return _crossed(graphs, ("p2_8xlarge:links=placeto,devices=2", "p2_8xlarge:links=placeto,devices=4"))


def heldout() -> Pairs:
    """The test graphs of every family that policies are trained on, at most four of each, on two and four P100."""
    families = [name for name in by_name.built_in("graphs.families") if name not in KEPT_ASIDE]
    return _crossed(_tests(families), P100S)


def newfamilies() -> Pairs:
    """All graphs of the families that are kept aside from training altogether, on two and four P100."""
    return _crossed([*split(KEPT_ASIDE, "train"), *split(KEPT_ASIDE, "test")], P100S)


def clusters() -> Pairs:
    """The test graphs of four families on other clusters: more GPUs, faster ones, a processor, unequal links."""
    return _crossed(_tests(("rnnlm", "transformer", "inception", "resnet")), OTHER_CLUSTERS)


def curves() -> Pairs:
    """Of every family, kept aside or not, the first test graph on four P100 and the second on two."""
    tests = (split([family], "test") for family in by_name.built_in("graphs.families"))
    return tuple(pair for first, second, *_ in tests for pair in ((first, P100S[1]), (second, P100S[0])))


SUITES: dict[str, Callable[[], Pairs]] = {
    suite.__name__: suite for suite in (gdp12, placeto, heldout, newfamilies, clusters, curves)
}


def suite_specs(names: str) -> Pairs:
    """Graph and cluster of each problem of a suite, or of several with commas between them; each problem once.

    None for an empty text. Raises InputError for an unknown suite.
    """
    pairs: dict[tuple[str, str], None] = {}
    for name in by_name.specs(names) if names else ():
        if name not in SUITES:
            raise InputError(by_name.unknown("suite", name, SUITES))
        pairs |= dict.fromkeys(SUITES[name]())
    return tuple(pairs)


def _tests(families: Iterable[str]) -> list[str]:
    """The first test graphs of each family, so that families have similar weights."""
    return [spec for family in families for spec in split([family], "test")[:AT_MOST]]


def _crossed(graphs: Iterable[str], clusters: Sequence[str]) -> Pairs:
    return tuple((graph, cluster) for graph in graphs for cluster in clusters)
