"""Frozen layers on the command line: captured without what trains them, and planned as such."""

from pathlib import Path

import pytest

import placelab
from graphs.formats.graph_file import load_graph_file
from graphs.foundation.errors import InputError

MODEL = "vit:layers=3,width=32,heads=2,image=32,batch=16"


def test_a_frozen_model_is_captured_saved_and_planned(tmp_path: Path) -> None:
    file = tmp_path / "frozen.graph.json"
    placelab.capture(MODEL, freeze=2, out=file)
    graph = load_graph_file(file)
    assert graph.name.endswith(", 2 layers frozen")
    assert graph.frozen.any()
    placed = placelab.place(file, cluster="pipetransformer", placer="pipetransformer:first=2")
    assert placed.timeline.fits
    assert {len(devices) for devices in placed.plan.devices} <= {8, 16}


@pytest.mark.parametrize(
    ("freeze", "training", "says"),
    [
        (4, True, r"4 layers of .* cannot be frozen; it has 3"),
        (-1, True, "freeze"),
        (1, False, "`freeze=1` is about training"),
    ],
)
def test_what_cannot_be_frozen_is_said_in_one_sentence(freeze: int, training: bool, says: str) -> None:
    with pytest.raises(InputError, match=says):
        placelab.capture(MODEL, freeze=freeze, training=training)
