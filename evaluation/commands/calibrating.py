"""The verb that measures what links, issuing ops and running cost on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.switches import CACHE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable

# Imported late, in the verb, as those of graph_verbs.
if TYPE_CHECKING:
    from evaluation.commands.arguments import ClusterLike, PathLike
    from evaluation.measuring.calibration import Calibration
    from graphs.cluster import Cluster
    from graphs.problem import Problem


@switched(CACHE)
@checked
def calibrate(
    cluster: ClusterLike = "",
    *,
    out: PathLike,
    processes: int | None = None,
    models: Sequence[str] = (),
    profile: PathLike | None = None,
    samples: int = 20,
    steps: int = 20,
    limit: int = 600,
) -> Calibration:
    """Measure with processes, one per device, what messages, issuing ops and running plans cost on this machine.

    Processes on CPUs have a core each and send with gloo, those on GPUs with NCCL. A CPU together with GPUs is measured
    as one process runs a plan on them: by copies, from pageable and from pinned memory. The cluster that is written
    has the latency and bandwidth of every link, the processor time of a message at each end, the seconds in which a
    thread issues an op to a GPU and, with models, those that what runs a plan adds to each op. A warning says if the
    machine was busy with something else.

    Args:
        cluster: a cluster file or a preset, whose links are measured; all else stays as it is. Without one, the
            processors of this machine, or its GPUs if it has several, or its GPU and the processor if it has one, with
            the speeds that they are found to have.
        out: the cluster to write, `*.toml` or `*.json`.
        processes: how many, if no cluster is given; without it one for each core, or each GPU.
        models: `file.py:callable` or family specs to run on each device by itself, with commas between them.
        profile: their profile, as `placelab profile` writes it: what a step takes longer is the runner's.
        samples: how many to take of each size of message.
        steps: how many steps to run of each model on each device.
        limit: seconds after which the processes are ended, for each pair of devices and each model.

    """
    check_writable(out, endings=(".toml", ".json"), inputs=[cluster, profile, *models])
    if bool(models) != (profile is not None):
        raise InputError(
            "what running costs is what a step takes longer than its ops: give `models` and, with `profile`, a file "
            "that `placelab profile MODEL --out FILE` wrote of them; or neither, to measure links alone"
        )
    if profile is not None:
        _check_threads(Path(profile))
    given, devices = _devices(cluster, processes)
    _check_models(given, devices, models)
    problems = {model: _problem(model, given, str(profile)) for model in models}
    from envs.costs.costs import timed
    from envs.running.processes import Workers
    from evaluation.measuring.calibration import Calibrator
    from graphs.devices.cluster_file import save_cluster

    with Workers(devices) as workers:
        calibrator = Calibrator(workers, samples, steps, limit)
        if not cluster:
            given = calibrator.this_machine(given)
            for model, problem in problems.items():
                problems[model] = timed(replace(problem, cluster=given, op_seconds=None), f"profiled:file={profile}")
        found = calibrator.measure(given, problems)
    save_cluster(found.cluster, Path(out))
    return found


def _devices(cluster: ClusterLike, processes: int | None) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, or one of its size, and each device as PyTorch calls it. Raises InputError for what is not here."""
    given = _given(cluster, processes) if cluster else _unknown(processes)
    if given.is_cpu.all():
        return given, ("cpu",) * len(given)
    if given.is_cpu[1:].any():
        raise InputError(
            f"cluster {given.name!r} has CPUs and GPUs, which a process measures that has one CPU: let that be the "
            "first device, and the only one of its kind"
        )
    from envs.running.processes import gpus

    asked, found = int((~given.is_cpu).sum()), gpus()
    if asked > len(found):
        have = f"{asked} GPU{'s' if asked > 1 else ''} and this machine {len(found)}"
        raise InputError(f"cluster {given.name!r} has {have}; give a cluster of CPUs, or none")
    return given, found[:asked]


def _given(cluster: ClusterLike, processes: int | None) -> Cluster:
    from graphs.files.load import load_cluster

    found = load_cluster(cluster)
    if processes not in (None, len(found)):
        raise InputError(f"processes is {processes}; cluster {found.name!r} has {len(found)} devices: leave it out")
    return found


def _unknown(processes: int | None) -> Cluster:
    """As many processors of this machine as there are to be processes, or its GPUs, or a processor and its only GPU."""
    from envs.running.processes import gpus
    from graphs.cluster import Cluster, Device
    from graphs.devices.topology import named_by_kind

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = len(gpus())
    count = processes or (found if found > 1 else cores)
    kinds = ["gpu" if 1 < count <= found else "cpu"] * count
    if processes is None and found == 1:
        kinds = ["cpu", "gpu"]
    devices = named_by_kind([Device(kind, kind, 1.0, 1.0, float("inf")) for kind in kinds])
    alike = Cluster.uniform("this machine", devices[0], len(devices), latency=0.0, bandwidth=1.0, shared_out=False)
    return replace(alike, devices=devices)


def _check_models(cluster: Cluster, devices: Sequence[str], models: Sequence[str]) -> None:
    """Raise InputError for models on a cluster that has more devices than processes."""
    if models and len(devices) < len(cluster):
        raise InputError(
            f"cluster {cluster.name!r} has CPUs and GPUs, on which no processes run a plan: leave out `models`, or "
            "calibrate the GPUs alone"
        )


def _check_threads(profile: Path) -> None:
    """Raise InputError for a profile of more threads than a process has."""
    from envs.costs.profile_file import load_profile

    machine = load_profile(profile).machine
    if machine.kind == "cpu" and machine.threads != 1:
        raise InputError(
            f"{profile} was measured with {machine.threads} threads, and each process computes with one: profile the "
            "models again, into another file, with `threads=1`"
        )


def _problem(model: str, cluster: Cluster, profile: str) -> Problem:
    """A model on the cluster, timed by its profile. Raises InputError for what cannot be run, or was not profiled."""
    from evaluation.commands.problems import problem_of
    from graphs.formats.graph_files import is_graph_file
    from graphs.runtime import IDEAL

    if is_graph_file(model):
        raise InputError(f"{model} is a graph, and a model is to be run: give file.py:callable or a family spec")
    return problem_of(model, cluster, groups=None, cost_model=f"profiled:file={profile}", runtime=IDEAL.name)
