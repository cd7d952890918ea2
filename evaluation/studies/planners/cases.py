"""The cases: published profiles on DAPPLE's testbeds, and captured models on equal and on unequal devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from envs.costs.costs import AUTO, timed
from graphs.another_batch import with_batch
from graphs.foundation.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem

PROFILED, CAPTURED = SOURCES = ("published profiles", "captured models")
TESTBEDS = ("A", "B", "C")


@dataclass(frozen=True)
class Profile:
    """A profile that was published, and the batch that it is planned for."""

    file: str  # in the folder of profiles
    samples: int  # of the profile
    batch: int  # of a step, on sixteen devices
    source: str  # of the batch


PROFILES = {
    "BERT-48": Profile("dapple/bert-48-pbs-2.txt", 2, 64, "DAPPLE, table V"),
    "VGG-19": Profile("dapple/vgg-19-pbs-32.txt", 32, 2048, "DAPPLE, table V"),
    "GNMT-8": Profile("pipedream/gnmt.txt", 64, 1024, "DAPPLE, table V, of GNMT-16"),
    "Inception-v3": Profile("pipedream/inception_v3.txt", 128, 2048, "that of ResNet-50"),
    "ResNet-50": Profile("pipedream/resnet50.txt", 128, 2048, "DAPPLE, table V"),
    "VGG-16": Profile("pipedream/vgg16.txt", 128, 2048, "that of VGG-19"),
}
MODELS = {
    "GPT-2": "transformer:gpt2,batch=32",
    "Llama": "llama:layers=12,width=1024,heads=16,inner=2752,sequence=512,batch=32",
    "BERT": "bert:bert-large,batch=32",
    "ViT": "vit:vit-base,batch=64",
    "ResNet-152": "resnet:resnet-152,batch=64",
    "GNMT-4": "gnmt:gnmt-4",
}
CLUSTERS = {
    "four P100": "p100:devices=4",
    "V100, 2 servers of 4": "v100_servers:servers=2,devices=4",
    "3090 and 3060": "rtx3090_rtx3060",
    "2 V100 and an A100": "v100_a100",
    "home fleet": "home_fleet",
}


@dataclass(frozen=True)
class Case:
    """A model on a cluster."""

    source: str
    model: str
    cluster: str  # what it is called
    problem: Callable[[], Problem]

    @property
    def name(self) -> str:
        """Of the file of its measurements."""
        return "-".join((self.model, self.cluster)).replace(",", "").replace(" ", "_")


def cases(profiles: Path | None) -> list[Case]:
    """All, without those of profiles if no folder of these is given. Raises InputError for a file that is missing."""
    found = [
        Case(CAPTURED, model, cluster, partial(_captured, spec, where))
        for model, spec in MODELS.items() for cluster, where in CLUSTERS.items()
    ]  # fmt: skip
    if profiles is None:
        return found
    for path in (profiles / profile.file for profile in PROFILES.values()):
        if not path.is_file():
            raise InputError(f"{path} is missing; --data is a folder with dapple/ and pipedream/")
    return [
        Case(PROFILED, model, f"testbed {testbed}", partial(_profiled, profiles, profile, testbed))
        for model, profile in PROFILES.items() for testbed in TESTBEDS
    ] + found  # fmt: skip


def _captured(spec: str, cluster: str) -> Problem:
    return timed(Problem(load_graph(spec, with_law=True), load_cluster(cluster)), AUTO)


def _profiled(folder: Path, profile: Profile, testbed: str) -> Problem:
    graph = load_graph(f"{folder / profile.file}:batch={profile.samples}")
    return timed(Problem(with_batch(graph, profile.batch), load_cluster(f"dapple:testbed={testbed}")), AUTO)
