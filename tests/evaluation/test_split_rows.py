"""What tensors are divided by: rows of hand-made networks, folded layers, the table, the chart, where it is shown."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import placelab
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.drawing import split_plots
from evaluation.drawing.split_plots import save_split_chart, split_chart
from evaluation.drawing.timeline_plots import save_steps
from evaluation.tables.folding import FoldedLine, folded
from evaluation.tables.plan_table import schedule_sentence
from evaluation.tables.split_rows import DividedTensor, SplitRow, SplitRows, split_rows
from evaluation.tables.split_table import split_table
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from tests.envs.expansion.divided_graphs import Net, convolutions, mlp
from tests.envs.expansion.test_divided_bytes import problem
from tests.evaluation.some_records import to_text

TRANSFORMER = "transformer:layers=5,width=16,heads=2,sequence=6,batch=8,vocabulary=12"


def planned(given: Problem, spec: str) -> Plan:
    placer: Placer = by_name.build("placers", spec)
    return placer.place(given).plan


def said(row: SplitRow) -> tuple[str, str, str, str, str]:
    """A row as the table has it."""
    weights, gradients = ("; ".join(map(str, several)) for several in (row.weights, row.gradients))
    return row.name, row.divided_by, weights, str(row.output), gradients


def by_hand(net: Net, devices: int, mesh: tuple[int, ...], **divided: tuple[str, ...]) -> tuple[Problem, Plan]:
    """A plan that divides ops whose names begin so, the longest that fits, and leaves all others whole."""
    graph, whole = net.graph, ("",) * len(mesh)
    names = sorted(divided, key=len, reverse=True)
    split = tuple(
        next((divided[each] for each in names if name.replace(".", "_").startswith(each)), whole)
        for name in graph.names
    )
    plan = Plan((tuple(range(devices)),) * len(graph), split=split, mesh=mesh)
    given = problem(graph, devices)
    plan.check(given)
    return given, plan


def table_text(rows: SplitRows) -> str:
    return to_text(split_table(rows), 200)


def words(chart: str) -> list[str]:
    root = ElementTree.fromstring(chart)
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_a_perceptron_by_columns_and_rows_keeps_what_is_between_divided() -> None:
    given = problem(mlp([8, 16, 4], 4).graph, 2)
    rows = split_rows(given, planned(given, "tensor_parallel:others=whole"))
    assert rows.axes == {"A": "2"}
    assert [said(row) for row in rows.rows] == [
        ("x", "whole", "", "4 8", ""),
        ("mm0", "A o", "16/A 8", "4 16/A", ""),
        ("relu0", "A o", "", "4 16/A", ""),
        ("mm1", "A i", "4 16/A", "4 4 +A", ""),
        ("relu1", "whole", "", "4 4", ""),
    ]


def test_gradients_are_said_where_they_are_partial_or_divided_otherwise() -> None:
    batch = by_hand(mlp([8, 16, 4], 4), 4, (2, 2), x=("n", "n"), mm=("n", "n"), relu=("n", "n"), mm0_update=("o", ""),
                    mm1_update=("", ""))  # fmt: skip
    rows = {row.name: row for row in split_rows(*batch).rows}
    assert said(rows["mm0"])[1:] == ("A n, B n", "16/A 8 read whole", "4/AB 16", "16 8 +AB")
    assert said(rows["mm1"])[1:] == ("A n, B n", "4 16", "4/AB 4", "4 16 +AB")
    otherwise = by_hand(mlp([8, 16, 4], 4), 2, (2,), mm1=("o",), mm1_grad=("n",), mm1_grad_weight=("i",),
                        mm1_update=("i",))  # fmt: skip
    rows = {row.name: row for row in split_rows(*otherwise).rows}
    assert said(rows["mm1"])[1:] == ("A o", "4 16/A read as 4/A 16", "4 4/A", "4/A 16")
    assert said(rows["mm0"])[1:] == ("whole", "16 8", "4 16", "")


def test_a_window_has_a_halo_and_axes_of_their_own_have_their_own_colour() -> None:
    given, plan = by_hand(convolutions(2, [2, 4], 8), 2, (2,), conv0=("h",), conv0_update=("",))
    [_, row] = split_rows(given, plan).rows
    assert row.divided_by == "A h with a halo of 2"
    assert str(row.output) == "2 4 8/A 8"
    assert list(map(str, row.gradients)) == ["4 2 3 3 +A"]
    replicas = Plan(((0, 1),) * 3 + ((1,),) * (len(given.graph) - 3))
    rows = split_rows(given, replicas)
    assert rows.axes == {"R": "2"}
    assert [row.divided_by for row in rows.rows] == ["R n on gpu:0, gpu:1"] * 2
    assert "R: 2" in words(split_chart(rows))


def test_ops_on_different_devices_say_on_which_they_are() -> None:
    net = mlp([8, 16, 4], 4)
    first = {op for op, name in enumerate(net.names) if name.startswith(("x", "mm0", "relu0"))}
    devices = tuple((0, 1, 2) if op in first else (3, 4, 5) for op in range(len(net.names)))
    split = tuple(("o",) if name in ("mm0", "mm1", "mm0.update") else ("",) for name in net.names)
    rows = split_rows(problem(net.graph, 6), Plan(devices, split=split, mesh=(3,)))
    assert [row.divided_by for row in rows.rows] == [
        "whole on gpu:0 to gpu:2", "A o on gpu:0 to gpu:2", "whole on gpu:0 to gpu:2", "A o on gpu:3 to gpu:5",
        "whole on gpu:3 to gpu:5",
    ]  # fmt: skip


def test_unequal_parts_and_meshes_are_named() -> None:
    given, plan = by_hand(mlp([8, 16, 4], 4), 6, (2, (3.0, 1.0, 1.0)), mm0=("n", "o"), mm0_update=("", "o"))  # type: ignore[arg-type]
    rows = split_rows(given, plan)
    assert rows.axes == {"A": "2", "B": "3:1:1"}
    assert rows.summary == "3 of 12 ops divided over a mesh of 2 x 3:1:1 devices"
    assert str(rows.rows[1].output) == "4/A 16/B"


@pytest.mark.parametrize(
    ("spec", "said"), [("shares=3:1", "; shares of replicas: 3:1"), ("zero=3", "; held in parts between uses: ZeRO-3")]
)
def test_what_the_boxes_do_not_show_of_replicas_is_in_the_summary(spec: str, said: str) -> None:
    given = problem(mlp([8, 16, 4], 4).graph, 2)
    assert split_rows(given, planned(given, f"parallel:{spec}")).summary.endswith(f" by the batch alone{said}")


def test_a_plan_that_divides_nothing_is_refused() -> None:
    given = problem(mlp([8, 16, 4], 4).graph, 2)
    with pytest.raises(InputError, match="has each op on one device, so nothing is divided"):
        split_rows(given, Plan.of([0] * len(given.graph)))


def row(name: str, by: str = "n") -> SplitRow:
    return SplitRow(name, "A", (by,), (0,), (), DividedTensor(()), ())


def shown(names: list[str]) -> list[tuple[str, int, int]]:
    return [(line.label, line.times, line.depth) for line in folded([row(name) for name in names])]


def test_layers_that_repeat_are_one_and_are_called_from_the_first_to_the_last() -> None:
    layers = [f"net.layers.{layer}{op}" for layer in range(3) for op in (f"/norm_{layer}", f".ff/mm_{layer + 7}")]
    assert shown(["embed", *layers, "head/mm"]) == [
        ("embed", 1, 0),
        ("net.layers.0 to net.layers.2", 3, 0),
        ("norm_0", 1, 1),
        ("ff/mm_7", 1, 1),
        ("head/mm", 1, 0),
    ]


def test_what_differs_in_what_it_says_stays_apart() -> None:
    rows = [row("layers.0/mm"), row("layers.1/mm", "k"), row("layers.2/mm", "k"), row("layers.3/mm", "k")]
    assert folded(rows) == (FoldedLine(("layers.0/mm",), rows[0]), FoldedLine(("layers.1/mm",), rows[1], times=3))


def test_blocks_within_stages_and_steps_of_time_are_folded_from_the_inside() -> None:
    blocks = [f"stages.{stage}.blocks.{block}/{op}" for stage in range(2) for block in range(3) for op in "ab"]
    assert shown(blocks) == [
        ("stages.0 to stages.1", 2, 0),
        ("blocks.0 to blocks.2", 3, 1),
        ("a", 1, 2),
        ("b", 1, 2),
    ]
    steps = [f"{module}_{step}" for step in range(4) for module in ("cell.0/mm", "cell.1/mm", "out/mm", "cat")]
    assert shown(steps) == [("cell, out, cat", 4, 0), ("cell.0/mm_0", 2, 1), ("out/mm_0", 1, 1), ("cat_0", 1, 1)]


def test_ops_without_weights_that_are_divided_alike_are_named_together() -> None:
    given, plan = by_hand(mlp([8, 16, 4], 4), 2, (2,), mm=("n",), relu=("n",), mm0_update=("",), mm1_update=("",))
    net = [row.name for row in split_rows(given, plan).rows]
    assert net == ["x", "mm0", "relu0", "mm1", "relu1"]
    captured = placelab.place(TRANSFORMER, cluster="p100x2", placer="tensor_parallel:others=whole")
    names = [row.name for row in split_rows(captured.problem, captured.plan).rows]
    assert "layers.0.attention/div, clone" in names


def test_the_table_and_the_chart_say_the_same_of_a_transformer_on_one_screen() -> None:
    given = placelab.place(TRANSFORMER, cluster="p100x4", placer="parallel:tp=2")
    rows = split_rows(given.problem, given.plan)
    text, chart = table_text(rows), words(split_chart(rows))
    assert "What is divided by what: axis A: 2, B: 2" in text
    assert "layers.0 to layers.4  5 times" in text
    assert "layers.0 to layers.4  x 5" in chart
    assert len(text.splitlines()) < 60
    lines = [line.row for line in folded(rows.rows) if line.row is not None]
    for line in lines:
        assert line.divided_by in text
        assert line.divided_by in chart
        for weight in line.weights:
            assert str(weight) in text
        assert line.output is not None
        for tensor in (line.output, *line.gradients, *(weight.stored for weight in line.weights)):
            assert str(tensor) in text
            assert {f"+{axis}" for axis in tensor.partial} <= set(chart)
            for each in tensor.dimensions:  # every index is named
                assert (f"{each.index} / {each.axes}" if each.axes else each.index) in chart
                assert str(each.size) in chart
    assert {"A: 2", "B: 2", "whole", "+ partial sums"} <= set(chart)


def test_it_is_shown_with_plans_that_have_a_split_and_written_where_asked_for(tmp_path: Path) -> None:
    plan = tmp_path / "a.plan.json"
    placed = placelab.place(TRANSFORMER, cluster="p100x2", placer="tensor_parallel:others=whole", out=plan)
    assert "What is divided by what: axis A: 2" in to_text(placed, 200)
    assert placed.timeline.expansion is not None
    summary = split_rows(placed.problem, placed.plan).summary
    assert summary in schedule_sentence(placed.timeline.expansion)
    for ending in ("svg", "png", "html"):
        path = tmp_path / f"splits.{ending}"
        placelab.simulate(TRANSFORMER, plan, cluster="p100x2", splits=path)
        assert path.stat().st_size > 1000
    assert summary in (tmp_path / "splits.html").read_text()
    with pytest.raises(InputError, match=r"must end in .png or .svg or .html"):
        placelab.simulate(TRANSFORMER, plan, cluster="p100x2", splits=tmp_path / "splits.pdf")
    content = placed.to_json()
    assert content["mesh"] == (2,)
    assert content["split"]["layers.0.feed_forward.0/addmm_2"] == ("m",)
    assert "mesh" not in placelab.place(TRANSFORMER, cluster="p100x2", placer="data_parallel").to_json()


def test_a_page_with_a_gantt_chart_has_it_too_if_there_is_a_split(tmp_path: Path) -> None:
    given, plan = by_hand(mlp([8, 16, 4], 4), 2, (2,), mm0=("o",), relu0=("o",), mm1=("i",))
    save_steps({"": simulate(given, plan)}, tmp_path / "split.html")
    assert "What tensors are divided by" in (tmp_path / "split.html").read_text()
    save_steps({"": simulate(given, Plan(plan.devices))}, tmp_path / "replicas.html")
    assert "What tensors are divided by" not in (tmp_path / "replicas.html").read_text()


def test_long_charts_end_with_how_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_plots, "MOST", 5)
    rows = SplitRows("long", {"A": "2"}, tuple(row("mm", "n" * (1 + number)) for number in range(67)), "all ops")
    assert "and 62 more lines" in words(split_chart(rows))
    assert "And 7 more lines; `placelab simulate GRAPH PLAN --splits FILE` draws all" in table_text(rows)
    with pytest.raises(InputError, match="a chart of splits is"):
        save_split_chart(rows, tmp_path / "chart.pdf")
