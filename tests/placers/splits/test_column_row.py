"""Which products Megatron-LM's rule divides: of layers with dropout, and with products that come together."""

import pytest

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from placers.splits.column_row import columns_and_rows

WIDE = "transformer:layers=4,width=1280,heads=20,sequence=1024,batch=4,vocabulary=50257"


def divided(spec: str, shards: int = 4) -> float:
    """The share of a step's FLOPs that is divided."""
    graph = training_step(capture(*by_name.build("graphs.families", spec), name=spec))
    split = columns_and_rows(graph, shards)
    share: float = graph.flops[[bool(index) for index in split]].sum() / graph.flops.sum()
    return share


@pytest.mark.parametrize("knobs", ["", ",attention=eager,activation=gelu_new", ",attention=megatron,separate=true"])
def test_dropout_leaves_nothing_whole_that_is_divided_without(knobs: str) -> None:
    assert divided(f"{WIDE}{knobs},dropout=0.1") == divided(f"{WIDE}{knobs}")
