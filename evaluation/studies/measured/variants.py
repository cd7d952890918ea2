"""Variants: ways of asking placelab what a row takes. Another one is another line of `VARIANTS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """What is different of a prediction."""

    name: str
    place: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `placelab.place`: cost model, order, and whatever else it takes."""
    device: Mapping[str, str] = field(default_factory=dict)
    """Numbers of every device in place of the catalogue's, such as `launch`."""
    link: Mapping[str, str] = field(default_factory=dict)
    """Numbers of every link, likewise."""
    all_reduce: str = "nccl"
    """How replicas and shards sum up."""


TYPICAL = {"cost_model": "roofline:efficiency=typical"}
MEASURED = {"cost_model": "roofline:efficiency=measured"}

VARIANTS = (
    Variant("as by default"),
    Variant("typical shares", TYPICAL),
    Variant("typical shares, 35 us a launch", TYPICAL, device={"launch": "35us"}),
    Variant("typical shares, a host as Megatron-LM's", {**TYPICAL, "host": "megatron"}),
    Variant("measured shares", MEASURED),
    Variant("measured shares, a host as Megatron-LM's", {**MEASURED, "host": "megatron"}),
)
