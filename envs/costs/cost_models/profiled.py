"""Profiled: an op takes as long as it took when it was run alone on a real device (`placelab profile`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from envs.costs.cost_models.roofline import Roofline
from envs.costs.costs import Costs
from envs.costs.op_times import known_seconds
from envs.costs.profile_file import REMEDY, Profile, load_profile
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem

CONFIGURATIONS = ("file=FILE.profile.json",)


@dataclass(frozen=True, eq=False)
class Profiled:
    """Times from profiles, one for each kind of device; a profile holds for every device of its kind.

    A profile says how long a device is busy with an op, from one start to the next. The simulator adds the launch
    itself, so the seconds here are the measured time without the cluster's `launch_seconds`. For a part of the batch
    they change as the roofline's do: weights are read whole for however few samples. A profile also says what the host
    takes to issue the ops, which the runtime's host of that name takes, unless the cluster says it.
    """

    grows_with: ClassVar[Roofline] = Roofline()

    source: str  # what a refusal calls the profiles
    profiles: Sequence[Profile]
    otherwise: str = "refuse"

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds, and the host of the devices.

        Raises InputError, naming ops and the remedy, for ops that were not profiled, and for products in TF32, whose
        tensors are as those of what was measured in single precision.
        """
        if "tf32" in problem.graph.precisions:
            raise InputError(
                f"{self.source} does not say how long products take in TF32: it was measured with the model's own "
                "tensors, under the settings that PyTorch has; leave out `precision='tf32'`, or take the roofline"
            )
        times: dict[str, Floats] = {profile.machine.kind: profile.seconds(problem.graph) for profile in self.profiles}
        remedy = (
            "`placelab profile MODEL --out FILE` measures the ops of a model on the machine it runs on; give several "
            "files as file=ONE+OTHER, or take the roofline's times with otherwise=roofline"
        )
        seconds = known_seconds(
            problem, times, source=self.source, remedy=remedy, otherwise=self.otherwise, with_launch=True
        )
        kinds = {device.kind for device in problem.cluster.devices}
        hosts = [profile.host(problem.graph.name) for profile in self.profiles if profile.machine.kind in kinds]
        return Costs(seconds, {host.name: host for host in hosts if host is not None})


def build(*, file: str = "", otherwise: str = "refuse") -> Profiled:
    """Profiles, file=ONE+OTHER for several kinds of devices; of an op that is not there "refuse" or "roofline"."""
    if not file:
        raise InputError(f"profiled: expected file=FILE; {REMEDY}")
    profiles = [load_profile(Path(each)) for each in file.split("+")]
    kinds = [profile.machine.kind for profile in profiles]
    if len(set(kinds)) < len(kinds):
        raise InputError(f"profiled: {file} has two profiles of the same kind of device; give one for each kind")
    return Profiled(file, profiles, otherwise)
