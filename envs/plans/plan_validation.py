"""Validation of a plan: each check raises one sentence that names the op or the stage, and the remedy."""

import numpy as np

from envs.plans.blocks import check_blocks
from envs.plans.schedule import AS_READY, Schedule
from envs.plans.stages import Devices, device_sets, stage_edges, stages_of
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints, OpGraph, Phase
from graphs.op_graph.optimizers import NONE
from graphs.problem import Problem

MOST_COPIES = 5_000_000  # of ops, in micro-batches and replicas: a few GB of an expanded graph


def check_devices(problem: Problem, devices: Devices) -> None:
    """Raise InputError for unknown devices, two of the same op, tied ops apart, and ops where the graph forbids them.

    `devices` are those of each op, (ops,).
    """
    graph, cluster, (sets, which) = problem.graph, problem.cluster, device_sets(devices)
    for number, several in enumerate(sets):
        if wrong := _wrong(problem, several):
            op = graph.names[np.flatnonzero(which == number)[0]]
            raise InputError(f"op {op!r} is placed on {wrong}")
    first = problem.units.first_op[graph.units]
    apart = np.flatnonzero(which != which[first])
    if len(apart):
        op, anchor = int(apart[0]), int(first[apart[0]])
        raise InputError(
            f"op {graph.names[op]!r} must share a device with {graph.names[anchor]!r}, but they are on "
            f"{_named(problem, devices[op])} and {_named(problem, devices[anchor])}; give both the same"
        )
    if problem.allowed is not None:
        is_on = np.array([[device in several for device in range(len(cluster))] for several in sets])
        forbidden = np.argwhere(is_on[which] & ~problem.allowed[graph.units])
        if len(forbidden):
            op, device = forbidden[0].tolist()
            may = np.flatnonzero(problem.allowed[graph.units[op]])
            raise InputError(
                f"op {graph.names[op]!r} is placed on {cluster.devices[device].name!r}; the graph allows "
                f"{', '.join(cluster.devices[device].name for device in may)}"
            )


def check_schedule(problem: Problem, devices: Devices, schedule: Schedule, *, of_replicas: bool = True) -> None:
    """Raise InputError for stages that are none, or run backwards, and for what the schedule says of unknown ones.

    `devices` are those of each op, (ops,), and have been checked; they are replicas, or
    shards. Also for replicas that do not divide what they share, for an unknown order of passes or, where it says which
    weights are read, none, and for more copies of ops than can be timed.
    """
    copies = schedule.micro_batches * sum(map(len, devices))
    if copies > MOST_COPIES:
        raise InputError(
            f"the plan has {copies:,} copies of ops, {schedule.micro_batches:,} micro-batches of each; at most "
            f"{MOST_COPIES:,} are timed: take fewer micro-batches"
        )
    if schedule.stages:
        _check_given_stages(problem, devices, schedule.stages)
    stage = stages_of(problem.graph, devices, schedule.stages)
    missing = [each for each in schedule.recompute if not 0 <= each <= stage.max()]
    if missing:
        raise InputError(
            f"the schedule recomputes stage {missing[0]}, but the plan has stages 0 to {stage.max()}; "
            "name stages of the plan"
        )
    if schedule.order != AS_READY:
        schedule.order.loaded()
    elif schedule.update == "micro_batch" and schedule.micro_batches > 1:
        raise InputError(
            "each micro-batch updates the weights, but devices run what is ready; name an order of passes, such as "
            "early_backward_a, so that it is known which passes read which version"
        )
    if schedule.zero:
        _check_zero(problem, schedule)
    if schedule.offload:
        _check_offload(problem, devices, schedule)
    if schedule.stages or schedule.order != AS_READY or schedule.recompute:
        check_forward(problem.graph, stage)
    check_blocks(problem.graph, stage, schedule)
    replicas = {int(number): len(several) for number, several in zip(stage, devices, strict=True)}
    group = schedule.shard_group or 1
    if schedule.zero:
        parts = [min(replicas[number], schedule.shard_group or replicas[number]) for number in stage.tolist()]
        _check_shared(problem.graph, stage, np.array(parts))
    if odd := [number for number, count in sorted(replicas.items()) if count > 1 and count % group]:
        raise InputError(
            f"the {replicas[odd[0]]} replicas of stage {odd[0]} cannot be divided into groups of {group}; give "
            "shard_group a number that divides them, or 0 for all"
        )
    if schedule.shares:
        _check_shares(schedule, [replicas[number] for number in range(len(replicas))])
    _check_samples(problem, schedule, replicas if of_replicas else {})
    if schedule.sharing == "turns":
        for op, several in enumerate(devices):
            if schedule.micro_batches % len(several):
                raise InputError(
                    f"the {len(several)} replicas of stage {stage[op]} take turns, and do not divide "
                    f"{schedule.micro_batches} micro-batches; take a multiple of {len(several)}"
                )


def _check_zero(problem: Problem, schedule: Schedule) -> None:
    """Raise InputError for what cannot be combined with weights, or what belongs to them, that are held in parts."""
    if schedule.sharing != "split" or schedule.update != "step":
        what = "replicas that take turns" if schedule.sharing != "split" else "an update after each micro-batch"
        raise InputError(f"ZeRO cannot be combined with {what}; take the default")
    if schedule.zero == 3 and schedule.order == AS_READY and schedule.micro_batches > 1:
        raise InputError(
            "weights are gathered for each pass, but devices run what is ready; name an order of passes, such as "
            "early_backward_a, so that it is known which pass is the next"
        )
    if problem.graph.has_sparse_gradient.any():
        raise InputError(
            f"{problem.graph.name!r} looks rows up with sparse=True, and ZeRO has parts of dense gradients; use "
            "sparse=False"
        )
    if schedule.zero < 3 and problem.graph.is_training and problem.optimizer == NONE:
        raise InputError(
            "how much of the weights of the problem is optimizer state is not known; name the optimizer, such as adam"
        )


def _check_offload(problem: Problem, devices: Devices, schedule: Schedule) -> None:
    """Raise InputError for updates that cannot run on CPUs. `devices` are those of each op, (ops,)."""
    graph = problem.graph
    if not graph.is_training:
        raise InputError(f"{graph.name!r} updates no weights, and the schedule offloads updates; leave out offload")
    if not problem.cluster.is_cpu.any():
        raise InputError(
            f"updates are offloaded to CPUs, and cluster {problem.cluster.name!r} has none; list the CPU of each "
            "server among its devices, such as server-cpu@pcie4x16, or leave out offload"
        )
    if schedule.sharing != "split" or schedule.update != "step":
        what = "replicas that take turns" if schedule.sharing != "split" else "an update after each micro-batch"
        raise InputError(f"offload cannot be combined with {what}; take the default")
    if graph.has_sparse_gradient.any():
        raise InputError(
            f"{graph.name!r} looks rows up with sparse=True, and dense gradients are offloaded; use sparse=False"
        )
    if problem.optimizer == NONE:
        raise InputError(
            "how much of the weights of the problem is optimizer state is not known, and that is offloaded; name the "
            "optimizer, such as adam"
        )
    if not schedule.zero and max(map(len, devices)) > 1:
        raise InputError(
            "replicas would each have all of the optimizer's state on their CPU, and update all weights there; say "
            "zero 1, 2 or 3, so that each has a part, or leave out offload"
        )


def _check_shared(graph: OpGraph, stage: Ints, parts: Ints) -> None:
    """Raise InputError for a weight that stages share, and hold in other parts; (ops,) the stage and parts of each."""
    op, weight = graph.weight_uses[graph.phase[graph.weight_uses[:, 0]] == Phase.FORWARD].T
    least, most = np.full(len(graph.weights), np.iinfo(np.int64).max), np.zeros(len(graph.weights), np.int64)
    np.minimum.at(least, weight, parts[op])
    np.maximum.at(most, weight, parts[op])
    apart = np.flatnonzero(least[weight] < most[weight])
    if len(apart):
        of_weight = op[weight == weight[apart[0]]]
        first, other = of_weight[0], of_weight[parts[of_weight] != parts[of_weight[0]]][0]
        raise InputError(
            f"ops {graph.names[first]!r} and {graph.names[other]!r} share a weight, which the replicas of their stages "
            f"{stage[first]} and {stage[other]} would hold in {parts[first]} and {parts[other]} parts (ZeRO); give "
            "both stages as many replicas"
        )


def _check_shares(schedule: Schedule, replicas: list[int]) -> None:
    """Raise InputError unless each stage, which has so many replicas, (stages,), has a share for each of them."""
    if len(schedule.shares) > len(replicas):
        raise InputError(
            f"the schedule gives {len(schedule.shares)} stages shares, the plan has {len(replicas)}; give one for each"
        )
    for stage, (shares, count) in enumerate(zip(schedule.shares, replicas, strict=False)):
        if shares and len(shares) != count:
            raise InputError(
                f"stage {stage} has {count} replica{'s' * (count > 1)}, and the shares "
                f"{':'.join(map(str, shares))}; give one for each"
            )


def _check_samples(problem: Problem, schedule: Schedule, replicas: dict[int, int]) -> None:
    """Raise InputError unless micro-batches, and replicas that split them, divide the samples, if they are known.

    `replicas` are how many each stage has, by its number.
    """
    samples = problem.graph.samples
    if samples % schedule.micro_batches:
        raise InputError(
            f"{schedule.micro_batches} micro-batches do not divide the {samples} samples of {problem.graph.name!r}; "
            "take a number that does, or another `batch`"
        )
    each = samples // schedule.micro_batches
    for number, count in sorted(replicas.items()):
        shares = schedule.shares[number] if number < len(schedule.shares) else ()
        if shares and each % sum(shares):
            raise InputError(
                f"the replicas of stage {number} take {':'.join(map(str, shares))} of the {each} samples of a "
                f"micro-batch, which are not {sum(shares)} equal parts; give shares whose sum divides {each}"
            )
        if schedule.sharing == "split" and not shares and each % count:
            raise InputError(
                f"the {count} replicas of stage {number} do not divide the {each} samples of a micro-batch; take fewer "
                "micro-batches, another number of replicas, or another `batch`"
            )


def check_forward(graph: OpGraph, stage: Ints) -> None:
    """Raise InputError unless every stage, (ops,), is only fed by those before it in the forward pass."""
    pairs, example = stage_edges(graph, stage)
    backwards = np.flatnonzero(pairs[:, 0] > pairs[:, 1])
    if len(backwards) == 0:
        return
    later, earlier = pairs[backwards[0]].tolist()
    producer, consumer = (graph.names[op] for op in graph.edges[example[backwards[0]]])
    fact = f"op {producer!r} of stage {later} feeds op {consumer!r} of stage {earlier}"
    path = _path(pairs, earlier, later)
    if path:
        circle = " -> ".join(map(str, [*path, earlier]))
        raise InputError(f"stages wait for each other, {circle}: {fact}; put the ops of such stages into one")
    raise InputError(f"stages run backwards: {fact}; number stages in the order in which they run")


def _wrong(problem: Problem, devices: tuple[int, ...]) -> str:
    """Why an op cannot be on these devices, or nothing."""
    cluster = problem.cluster
    if not devices:
        return "no device; give each op at least one"
    unknown = [device for device in devices if not 0 <= device < len(cluster)]
    if unknown:
        return f"device {unknown[0]}; cluster {cluster.name!r} has devices 0 to {len(cluster) - 1}"
    twice = [device for position, device in enumerate(devices) if device in devices[:position]]
    if twice:
        return f"{cluster.devices[twice[0]].name!r} twice; give each of its replicas a device of its own"
    return ""


def _check_given_stages(problem: Problem, devices: Devices, stages: tuple[int, ...]) -> None:
    """Raise InputError unless stages are numbered 0, 1, ..., and ops of a stage, or of a unit, are together."""
    graph = problem.graph
    if len(stages) != len(graph):
        raise InputError(
            f"the schedule gives {len(stages)} ops a stage, {graph.name!r} has {len(graph)} ops; give one for each"
        )
    found = sorted(set(stages))
    if found != list(range(len(found))):
        raise InputError(
            f"the schedule has stages {', '.join(map(str, found[:8]))}{', ...' if len(found) > 8 else ''}; "
            "number them 0, 1, 2, ... without gaps"
        )
    stage, (_, which) = np.array(stages, np.int64), device_sets(devices)
    first_of_stage = np.unique(stage, return_index=True)[1][stage]
    if len(apart := np.flatnonzero(which != which[first_of_stage])):
        op, anchor = int(apart[0]), int(first_of_stage[apart[0]])
        raise InputError(
            f"ops {graph.names[anchor]!r} and {graph.names[op]!r} of stage {stage[op]} are on "
            f"{_named(problem, devices[anchor])} and {_named(problem, devices[op])}; a stage is on the same devices"
        )
    first = problem.units.first_op[graph.units]
    if len(apart := np.flatnonzero(stage != stage[first])):
        op, anchor = int(apart[0]), int(first[apart[0]])
        raise InputError(
            f"ops {graph.names[anchor]!r} and {graph.names[op]!r} are tied, but in stages {stage[anchor]} and "
            f"{stage[op]}; put them into the same"
        )


def _path(pairs: Ints, begin: int, end: int) -> list[int]:
    """Stages that feed each other from one to another, or none."""
    came_from: dict[int, int] = {begin: begin}
    ahead = [begin]
    for stage in ahead:
        for following in pairs[pairs[:, 0] == stage, 1].tolist():
            if following not in came_from:
                came_from[following] = stage
                ahead.append(following)
    if end not in came_from:
        return []
    path = [end]
    while path[-1] != begin:
        path.append(came_from[path[-1]])
    return path[::-1]


def _named(problem: Problem, devices: tuple[int, ...]) -> str:
    return ", ".join(repr(problem.cluster.devices[device].name) for device in devices)
