"""Learning curves: all runs on one axis, and running means that are means."""

import base64
import gzip
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.drawing.learning_curves import Curve, Metrics, learning_curves, running_mean

METRICS: Metrics = [
    {"update": i, "simulations": 32 * i, "ratio": 1 + 1 / (1 + i), "fitting": None} for i in range(1000)
]
RATIO = Curve("ratio", "ratio (lower is better)")


def test_a_learning_curve_says_what_is_better_and_stays_small() -> None:
    chart = learning_curves({"one": [METRICS]}, [RATIO], levels={"metis": 1.5, "heft": 1.51})
    assert all(text in chart for text in ("ratio (lower is better)", "simulations", "metis", "heft", "running mean"))
    assert len(chart) < 60_000


def test_equal_curves_are_equal_text() -> None:
    assert learning_curves({"one": [METRICS]}, [RATIO]) == learning_curves({"one": [METRICS]}, [RATIO])


def test_several_runs_share_an_axis_and_have_a_legend() -> None:
    chart = learning_curves(
        {"<one>": [METRICS], "two": [METRICS[:10]], "three": [[]]}, [RATIO, Curve("fitting", "fitting")]
    )
    assert [*re.findall(r'data-models="(run\d)"', chart)] == ["run0", "run1", "run2"]
    assert "&lt;one&gt;" in chart
    assert "<one>" not in chart.partition("<script")[0]
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', chart, re.DOTALL)
    panels = json.loads(data.replace("<\\/", "</"))["doc"]["roots"][0]["attributes"]["children"]
    ranges = {json.dumps(panel["attributes"]["x_range"].get("id")) for panel in panels}
    assert len(panels) == 2
    assert len(ranges) == 1, "one horizontal axis"


def test_seeds_are_drawn_as_their_mean_and_a_band_from_the_least_to_the_largest() -> None:
    seeds: list[Metrics] = [
        [{"simulations": 10 * i, "best": value - i} for i in range(lines)] for value, lines in ((9, 4), (6, 3), (3, 4))
    ]
    seeds[1] = [*seeds[1][:1], {"simulations": 10, "best": None}, *seeds[1][2:]]
    chart = learning_curves({"three": seeds}, [Curve("best", "best", "best")])
    arrays = re.findall(r'\["(x|y|y1|y2)",{"type":"ndarray","array":{"type":"bytes","data":"(.*?)"}', chart)
    drawn = [(name, np.frombuffer(gzip.decompress(base64.b64decode(data))).tolist()) for name, data in arrays]
    assert ("x", [0, 20]) in drawn, "lines that all seeds have"
    assert [pair for pair in drawn if pair[0] != "x"] == [("y1", [3, 1]), ("y2", [9, 7]), ("y", [6, 4])]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=200))
def test_a_running_mean_is_over_a_tenth_of_the_points_everywhere(values: list[float]) -> None:
    means, before = running_mean(np.array(values))
    assert len(means) == len(values) - 2 * before
    assert 2 * before <= len(values) / 10
    for at, mean in enumerate(means.tolist()):
        assert mean == pytest.approx(np.mean(values[at : at + 2 * before + 1]), abs=1e-9)
