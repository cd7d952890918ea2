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
    as_run: bool = False
    """Whether each row is run as its framework runs it."""
    by_another: bool = False
    """Whether a GPU is timed by another one's shares, as if it had not been measured: of steps of one GPU alone."""


IDEAL = {"runtime": "ideal"}
MEASURED = {"cost_model": "roofline:efficiency=measured"}

VARIANTS = (
    Variant("the ideal machine, at its peak", {**IDEAL, "cost_model": "roofline"}),
    Variant("the ideal machine, typical shares", {**IDEAL, "cost_model": "roofline:efficiency=typical"}),
    Variant("the ideal machine, measured shares", {**IDEAL, **MEASURED}),
    Variant("measured shares, run as its framework does", MEASURED, as_run=True),
    Variant("shares of another GPU, run as its framework does", MEASURED, as_run=True, by_another=True),
)
