"""PipeDream's and DAPPLE's layer profiles."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.formats.pipedream import LayerProfile, ProfiledLayer, load_layer_profile
from graphs.foundation.errors import InputError
from graphs.op_graph import Phase
from tests.graphs.formats.written_profiles import save_layer_profile

DATA = Path(__file__).parents[4] / "shared" / "data"
TOTALS = {  # layers, edges, forward and backward milliseconds, parameter bytes: from the README of the data
    "dapple/bert-48-pbs-2.txt": (53, 100, 129.197, 214.56, 2549805056),
    "dapple/vgg-19-pbs-32.txt": (26, 25, 51.41, 96.2, 548047022),
    "pipedream/gnmt.txt": (48, 58, 33.533, 55.883, 775063808),
    "pipedream/inception_v3.txt": (326, 362, 310.969, 399.769, 108645056),
    "pipedream/resnet50.txt": (177, 193, 201.45, 260.931, 102228128),
    "pipedream/vgg16.txt": (41, 41, 251.874, 438.633, 553430176),
}
SMALL = """node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=8.0, parameter_size=0.000
node2 -- LSTM(2, 4) -- forward_compute_time=3.190, backward_compute_time=5.348, activation_size=[6.0; 1.0], parameter_size=50.0, stage_id=1
\tnode1 -- node2
"""  # noqa: E501


@pytest.mark.parametrize("name", TOTALS)
def test_a_real_profile_has_the_totals_of_its_source_and_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    layers, edges, forward, backward, parameters = TOTALS[name]
    profile = load_layer_profile(path)
    assert (len(profile.layers), len(profile.edges)) == (layers, edges)
    assert sum(layer.forward_seconds for layer in profile.layers) == pytest.approx(forward / 1e3, rel=1e-6)
    assert sum(layer.backward_seconds for layer in profile.layers) == pytest.approx(backward / 1e3, rel=1e-5)
    assert sum(layer.parameter_bytes for layer in profile.layers) == pytest.approx(parameters, rel=1e-9)
    graph = profile.graph()
    assert graph.is_training
    assert graph.weights.sum() == pytest.approx(parameters, rel=1e-9)
    assert graph.measured_seconds.sum() == pytest.approx((forward + backward) / 1e3, rel=1e-5)
    save_layer_profile(profile, tmp_path / path.name)
    assert load_layer_profile(tmp_path / path.name) == profile


def test_a_profile_becomes_a_training_step(tmp_path: Path) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(SMALL)
    profile = load_layer_profile(path)
    assert profile.layers[1] == ProfiledLayer("node2", "LSTM(2, 4)", 3.19 / 1e3, 5.348 / 1e3, (6.0, 1.0), True, 50.0, 1)
    graph = profile.graph()
    assert graph.names == ("node1", "node2", "node1.backward", "node2.backward", "node2.update")
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 3], [3, 2], [3, 4]]
    assert graph.output_bytes.tolist() == [8, 7, 0, 8, 0]
    assert graph.phase.tolist() == [Phase.FORWARD] * 2 + [Phase.BACKWARD] * 2 + [Phase.UPDATE]
    assert graph.units.tolist() == [0, 1, 0, 1, 1]
    assert graph.weight_uses.tolist() == [[1, 0], [3, 0], [4, 0]]
    assert np.array_equal(graph.measured_seconds, [0, 3.19 / 1e3, 0, 5.348 / 1e3, 0])


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("3.190", "-1", "line 2: forward_compute_time is '-1'; expected a number >= 0"),
        ("50.0", "nan", "line 2: parameter_size is 'nan'"),
        ("[6.0; 1.0]", "[6.0; x]", "line 2: activation_size is 'x'"),
        ("\tnode1 -- node2", "\tnode1 -- node9", "names a layer that is not there: 'node9'"),
        ("node2 -- LSTM", "node1 -- LSTM", "line 2: layer 'node1' is given twice"),
        ("node1 -- Input0 -- ", "", "line 1: expected a layer or an edge"),
        (SMALL, "", "holds no layers"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    path = tmp_path / "graph.txt"
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(InputError, match=sentence.replace("[", r"\[")):
        load_layer_profile(path)


@pytest.mark.parametrize("indent", [" ", "  ", " \t", "\t\t"])
def test_an_edge_may_be_indented_by_any_white_space(indent: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(SMALL)
    (tmp_path / "b.txt").write_text(SMALL.replace("\tnode1 -- node2", f"{indent}node1 -- node2 "))
    expected = load_layer_profile(tmp_path / "a.txt")
    assert load_layer_profile(tmp_path / "b.txt") == LayerProfile("b", expected.layers, expected.edges)


def test_a_missing_file_and_a_cycle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_layer_profile(tmp_path / "none.txt")
    layers = tuple(ProfiledLayer(i, "ReLU", 0.0, 0.0, (1.0,), False, 0.0) for i in "ab")
    with pytest.raises(InputError, match="cyclic"):
        LayerProfile("loop", layers, (("a", "b"), ("b", "a"))).graph()


@given(st.text(alphabet=SMALL + "\x00\u2028", max_size=300), st.integers(0, len(SMALL)))
def test_a_damaged_file_gives_one_sentence(tmp_path_factory: pytest.TempPathFactory, text: str, at: int) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "graph.txt"
    path.write_text(SMALL[:at] + text + SMALL[at:])
    with contextlib.suppress(InputError):  # anything else would be a traceback
        assert len(load_layer_profile(path).graph()) >= 2


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e12), st.booleans()), min_size=1, max_size=5))
def test_any_profile_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[float, float, bool]]
) -> None:
    layers = tuple(
        ProfiledLayer(f"node{i}", "Conv2d(3, 64)", seconds, seconds / 3, (size,) * (2 if many else 1), many, size)
        for i, (seconds, size, many) in enumerate(drawn)
    )
    path = tmp_path_factory.mktemp("profile") / "graph.txt"
    save_layer_profile(LayerProfile("graph", layers, ()), path)
    again = load_layer_profile(path)
    for one, other in zip(again.layers, layers, strict=True):
        assert one.activation_bytes == other.activation_bytes
        assert one.forward_seconds == pytest.approx(other.forward_seconds, rel=1e-15)
