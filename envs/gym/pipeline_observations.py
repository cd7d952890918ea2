"""What an environment over pipelines shows: layers, devices, links, and what of the pipeline is decided so far."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.gym.pipeline_problem import PipelineProblem
from envs.pipelines.construction import Actions, Construction, Decision
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats

LAYER_COLUMNS = (
    "forward", "backward", "forward_fixed", "backward_fixed", "update",  # seconds, of those of a step on the fastest
    "sent", "returned",  # bytes, of the most that pass between two layers
    "weights", "held", "kept",  # bytes, of those of all layers
    "decided", "first", "recomputed", "replicas",  # so far; replicas of all devices
    "asked",  # the layers that the decision is about: the first of the stage begun, or those of the one that has ended
)  # fmt: skip
DEVICE_COLUMNS = (
    "speed",  # of the fastest
    "memory",  # m / (m + what all layers hold and keep)
    "used", "chosen",  # by stages, and for the one begun
    "stages", "seconds", "held",  # so far: of all layers, of those of a step there, of what all layers hold
)  # fmt: skip
PAIR_COLUMNS = ("seconds", "assigned")  # of the device's step; whether the layer is there
LINK_COLUMNS = ("outputs", "gradients")  # s / (s + a step on the fastest), s for the most that passes, or for all


class PipelineObserver:
    """Padded arrays, self-contained, all of whose values are between 0 and 1, in rows one after the other.

    `layers` (layers, LAYER_COLUMNS), `devices` (devices, DEVICE_COLUMNS), `pairs` (layers, devices, PAIR_COLUMNS),
    `links` (from, to, LINK_COLUMNS), `schedule` (micro-batches + orders + decisions,): what is chosen and what is asked
    for as one-hots, `layer_exists`, `device_exists`, and `mask` (actions,), as `action_masks` says.
    """

    def __init__(self, actions: Actions) -> None:
        self.actions = actions
        self._most = {"layers": actions.layers, "devices": actions.devices}
        layers, devices = actions.layers, actions.devices
        self._shapes = {
            "layers": (layers, len(LAYER_COLUMNS)),
            "devices": (devices, len(DEVICE_COLUMNS)),
            "pairs": (layers, devices, len(PAIR_COLUMNS)),
            "links": (devices, devices, len(LINK_COLUMNS)),
            "schedule": (actions.first_device + len(Decision),),
        }
        flags = {"layer_exists": layers, "device_exists": devices, "mask": len(actions)}
        self.space = spaces.Dict(
            {
                **{key: spaces.Box(0, 1, (int(np.prod(shape)),), np.float32) for key, shape in self._shapes.items()},
                **{key: spaces.Box(0, 1, (size,), np.int8) for key, size in flags.items()},
            }
        )

    def observe(self, problem: PipelineProblem, construction: Construction) -> dict[str, Any]:
        """Arrays as the space describes them. Raises InputError for more devices than there is room for."""
        layers, devices = len(problem.layers), len(problem.problem.cluster)
        if devices > self.actions.devices:
            raise InputError(
                f"cluster {problem.problem.cluster.name!r} has {devices} devices, this environment has room for "
                f"{self.actions.devices}; make it with a larger max_devices"
            )
        assigned = _assigned(construction)
        rows = {
            "layers": _layer_rows(problem, construction),
            "devices": _device_rows(problem, construction, assigned),
            "pairs": np.stack([_of_total(problem.seconds), assigned > 0], axis=-1),
            "links": _link_rows(problem),
            "schedule": _schedule(construction),
        }
        shown: dict[str, Any] = {key: _padded(values, self._shapes[key]) for key, values in rows.items()}
        shown["layer_exists"] = (np.arange(self.actions.layers) < layers).astype(np.int8)
        shown["device_exists"] = (np.arange(self.actions.devices) < devices).astype(np.int8)
        shown["mask"] = problem.with_room(construction).astype(np.int8)
        return shown


def _assigned(construction: Construction) -> Floats:
    """(layers, devices) the share of each layer that each device computes."""
    assigned = np.zeros((construction.layers, construction.devices))
    for stage in construction.stages:
        assigned[stage.first : stage.end, list(stage.devices)] = 1 / len(stage.devices)
    return assigned


def _layer_rows(problem: PipelineProblem, construction: Construction) -> Floats:
    """(layers, LAYER_COLUMNS)."""
    layers = problem.layers
    seconds = np.column_stack(
        [layers.forward, layers.backward, layers.forward_fixed, layers.backward_fixed, layers.update]
    )
    crossing = np.column_stack([layers.sent, layers.returned])
    sizes = np.column_stack([layers.weights, layers.held, layers.kept])
    state = np.zeros((len(layers), 5))
    state[: construction.begin, 0] = 1
    for number, stage in enumerate(construction.stages):
        state[stage.first, 1] = 1
        state[stage.first : stage.end, 2] = number in construction.recomputed
        state[stage.first : stage.end, 3] = len(stage.devices) / construction.devices
    if construction.decision == Decision.RECOMPUTE:
        state[construction.stages[-1].first : construction.begin, 4] = 1
    elif not construction.ended:
        state[construction.begin, 4] = 1
    return np.column_stack([seconds / max(seconds.sum(), 1e-30), _of_most(crossing), _of_total(sizes), state])


def _device_rows(problem: PipelineProblem, construction: Construction, assigned: Floats) -> Floats:
    """(devices, DEVICE_COLUMNS)."""
    step = problem.seconds.sum(axis=0)
    memory = problem.problem.cluster.memory_bytes
    total = problem.layers.held.sum() + problem.layers.kept.sum()
    finite = np.where(np.isinf(memory), 1.0, memory)
    chosen = np.isin(np.arange(len(step)), construction.chosen)
    is_there = assigned > 0
    hosted = [sum(device in stage.devices for stage in construction.stages) for device in range(len(step))]
    return np.column_stack(
        [
            step.min() / np.maximum(step, 1e-30),
            np.where(np.isinf(memory), 1.0, finite / np.maximum(finite + total, 1e-30)),
            is_there.any(axis=0),
            chosen,
            np.array(hosted) / construction.layers,
            (assigned * _of_total(problem.seconds)).sum(axis=0),
            is_there.T @ _of_total(problem.layers.held),
        ]
    )


def _link_rows(problem: PipelineProblem) -> Floats:
    """(devices, devices, LINK_COLUMNS); a device has no link to itself."""
    cluster, layers = problem.problem.cluster, problem.layers
    step = max(float(problem.seconds.sum(axis=0).min()), 1e-30)
    is_pair = ~np.eye(len(cluster), dtype=np.bool_)
    shown = np.zeros((*is_pair.shape, 2))
    for column, size in enumerate((np.maximum(layers.sent, layers.returned).max(), layers.weights.sum())):
        seconds = cluster.latency[is_pair] + size / cluster.bandwidth[is_pair]
        shown[is_pair, column] = seconds / (seconds + step)
    return shown


def _schedule(construction: Construction) -> NDArray[np.bool_]:
    """(micro-batches + orders + decisions,) one-hots of what is chosen, and of what is asked for."""
    actions = construction.actions
    chosen = [each == construction.micro_batches for each in actions.micro_batches]
    chosen += [each == construction.order for each in actions.orders]
    asked = [each == construction.decision and not construction.ended for each in Decision]
    return np.array(chosen + asked)


def _of_most(values: Floats) -> Floats:
    """Shares of the largest."""
    shares: Floats = values / max(float(values.max(initial=0.0)), 1e-30)
    return shares


def _of_total(values: Floats) -> Floats:
    """Shares of each column's total."""
    shares: Floats = values / np.maximum(values.sum(axis=0), 1e-30)
    return shares


def _padded(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Zeros after the values in every direction, in one row."""
    padded = np.zeros(shape, np.float32)
    padded[tuple(slice(size) for size in values.shape)] = values
    return np.clip(padded, 0.0, 1.0).ravel()
