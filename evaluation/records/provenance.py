"""Provenance: the versions, machine and command of a result, so that it can be reproduced.

A journal says it once for all records that follow, and again where another command, placelab or machine goes on.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from graphs.foundation import by_name
from graphs.foundation.machine import library_versions, processor_name
from placers import default
from placers.contract.placer import Placer

WEIGHTS = "policy.safetensors"
CHECKPOINT = re.compile(r"[:,]checkpoint=([^,]+)")


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """With what results were made; each result has its seed itself."""

    versions: dict[str, str]  # of placelab and what it computes with, by package
    cpu: str
    command: str  # that made them, with its flags
    policies: dict[str, str] = {}  # placer -> sha256 of the weights of the policy that it asks, if they are in a file
    suite: str = ""  # sha256 of all problems together

    @classmethod
    def now(cls, placers: Iterable[Placer] = (), problems: Collection[str] = ()) -> Provenance:
        """That of what this process makes with some placers on problems, given by their digits (`identity`)."""
        found = {placer.name: policy_sha256(placer) for placer in placers}
        return cls(
            versions=library_versions(),
            cpu=processor_name(),
            command=command(),
            policies={name: digits for name, digits in found.items() if digits},
            suite=problems_sha256(problems) if problems else "",
        )


def command() -> str:
    """The command of this process, as it was typed: `placelab ...` or `python ...`."""
    if Path(sys.argv[0]).stem == "placelab":
        return shlex.join(["placelab", *sys.argv[1:]])
    return shlex.join(["python", *sys.orig_argv[1:]])


def problems_sha256(digits: Iterable[str]) -> str:
    """One hash of the digits of several problems, whatever their order."""
    return hashlib.sha256("\n".join(sorted(digits)).encode()).hexdigest()


def policy_sha256(placer: Placer) -> str:
    """The hash of the file of the policy that a placer asks, itself or in its search; "" if there is none.

    Of several policies it is that of their files one after another.
    """
    start: Any = getattr(placer, "start", placer)  # of one that is fine-tuned
    inner = getattr(start, "policy", None)
    folders = policy_folders(inner if isinstance(inner, str) and inner else start.name)
    files = [file for folder in folders if (file := folder / WEIGHTS).is_file()]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else ""


def policy_folders(spec: str) -> tuple[Path, ...]:
    """The folders that the spec of a learned placer names, or that is given in their place."""
    if spec.partition(":")[0] == "default":
        return default.RELEASED, default.OF_PROGRAMS
    if by_name.own(spec):
        return ()
    named = CHECKPOINT.search(spec)
    return (Path(named[1]),) if named else () if ":" in spec else (Path(spec),)
