"""Plans of every kind for a model on a cluster: what a step takes, and whether it fits."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from envs.costs.costs import AUTO, timed
from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, SavedJob
from graphs.batch import samples_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.grouping import tie_ops
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem

PLACEMENT, DATA, PIPELINE, MIXTURE = KINDS = ("op placement", "data parallelism", "pipeline", "mixture")
MODELS = {  # what each is called, and its spec: a step has 64 samples, and does all of them at once on no device
    "Transformer": "transformer:layers=24,width=1024,heads=16,sequence=256,batch=64",
    "VGG-19": "vgg:layers=19,image=224,batch=64",
    "GNMT": "gnmt:layers=8,steps=8,hidden=1024,batch=256",
}
CLUSTERS = {  # by the number of devices
    "P100, one server": {1: "p100:devices=1", 2: "p100:devices=2", 4: "p100:devices=4", 8: "p100:devices=8"},
    "V100, two servers": {
        1: "v100_servers:servers=1,devices=1", 2: "v100_servers:servers=2,devices=1",
        4: "v100_servers:servers=2,devices=2", 8: "v100_servers:servers=2,devices=4",
    },
}  # fmt: skip
GROUPS = 256  # op groups, as `placelab place` makes them, that the search decides about
PER_STAGE = (2, 4)  # micro-batches
ORDERS = ("", ",order=early_backward_a")  # GPipe's own, and 1F1B


class Found(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A plan of one kind."""

    kind: str
    placer: str
    seconds: float  # of a step
    fits: bool
    peak_bytes: float  # of the fullest device
    micro_batches: int


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All plans for a model on a cluster."""

    model: str
    cluster: str
    devices: int
    samples: int  # of a step
    budget: int
    found: tuple[Found, ...]
    refused: tuple[str, ...] = ()  # sentences of placers without a plan


def jobs(out: Path, budget: int) -> list[SavedJob]:
    """A job per model and cluster."""
    return [
        SavedJob(
            out / PIECES / f"{budget}-{number}-{clusters}-{devices}.json".replace(",", "").replace(" ", "_"),
            partial(measured, model, clusters, devices, budget),
        )
        for number, model in enumerate(MODELS) for clusters in CLUSTERS for devices in CLUSTERS[clusters]
    ]  # fmt: skip


def measured(model: str, clusters: str, devices: int, budget: int) -> Measured:
    """All plans for a model on some devices of a cluster."""
    graph = load_graph(MODELS[model], with_law=True)
    problem = timed(Problem(graph, load_cluster(CLUSTERS[clusters][devices])), AUTO)
    tied = timed(Problem(tie_ops(graph, GROUPS), problem.cluster), AUTO)
    found, refused = [], []
    for kind, placer in rivals(devices):
        try:
            own = (tied, budget) if kind == PLACEMENT else (problem, 8)
            plan = by_name.build("placers", placer).place(own[0], budget=own[1]).plan
            timeline = simulate(problem, plan)
        except InputError as error:
            refused.append(f"{placer}: {error}")
            continue
        found.append(
            Found(
                kind=kind, placer=placer, seconds=timeline.step_seconds, fits=timeline.fits,
                peak_bytes=float(timeline.peak_bytes.max()), micro_batches=plan.schedule.micro_batches,
            )
        )  # fmt: skip
    return Measured(
        model=model, cluster=clusters, devices=devices, samples=samples_of(graph), budget=budget, found=tuple(found),
        refused=tuple(refused),
    )  # fmt: skip


def rivals(devices: int) -> list[tuple[str, str]]:
    """Kinds and placers on a number of devices; on one device, data parallelism accumulates gradients."""
    all_reduce = ("ring", "hierarchical")[: 2 if devices > 2 else 1]
    found = [(PLACEMENT, "annealing")]
    found += [(DATA, f"data_parallel:all_reduce={each}" if each != "ring" else "data_parallel") for each in all_reduce]
    for replicas in (number for number in range(1, devices) if devices % number == 0):
        kind, own = (PIPELINE, "") if replicas == 1 else (MIXTURE, f",replicas={replicas}")
        counts = [per_stage * devices // replicas for per_stage in PER_STAGE]
        found += [(kind, f"gpipe:micro_batches={count}{own}{order}") for count in counts for order in ORDERS]
    return found
