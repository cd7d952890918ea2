"""The pictures of the documentation are drawn from what the studies' documents say."""

import math
import re

import pytest

from evaluation.studies.pictures import placement
from evaluation.studies.pictures.__main__ import PICTURES
from evaluation.studies.pictures.answers import ANSWERS
from evaluation.studies.pictures.document_tables import ROOT, Measured, rows_of
from graphs.foundation.errors import InputError

DRAWN = ROOT / "docs/pictures"
WITHOUT_FIGURE = {
    "Large graphs", "Speed", "What the ideal machine hides", "Whole plans by a policy",
}  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "value", "low", "high"),
    [
        ("1.184 [1.161, 1.210]", 1.184, 1.161, 1.210),
        ("103.61", 103.61, 103.61, 103.61),
        ("-0.15", -0.15, -0.15, -0.15),
        ("1,139.52", 1139.52, 1139.52, 1139.52),
        ("1.75 [1.52, 2.06] where it fits", 1.75, 1.52, 2.06),
        ("2.09, 2.25 [1.6, 3.1]", 2.09, 1.6, 3.1),
    ],
)
def test_a_cell_is_a_number_with_its_interval(cell: str, value: float, low: float, high: float) -> None:
    assert Measured.of(cell) == Measured(value, low, high)


@pytest.mark.parametrize("cell", ["does not fit", "-", "", "met in 2.5 of 3"])
def test_a_cell_without_a_number_is_none(cell: str) -> None:
    assert math.isnan(Measured.of(cell).value)


def test_tables_are_found_by_their_columns() -> None:
    [first, *others] = rows_of("docs/results/archive/splits.md", ("model", "data_parallel", "split_search"))
    assert first["model"] == "VGG-19"
    assert len(others) == 6
    with pytest.raises(InputError, match="no table with the columns nobody"):
        rows_of("docs/results/archive/splits.md", ("nobody",))


def test_the_small_graph_takes_what_the_page_says() -> None:
    page = (ROOT / "docs/concepts/placement.md").read_text()
    seconds = [placement.step(each).step_seconds for each in placement.PLACEMENTS.values()]
    assert [float(text) for text in re.findall(r": (\d+) seconds", page)] == seconds == [11.0, 8.0]


def test_every_picture_is_there_and_none_besides() -> None:
    assert {path.name for path in DRAWN.iterdir()} == set(PICTURES)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_picture_shows_the_rows_of_its_table_as_they_are_today(name: str) -> None:
    answer = ANSWERS[name]
    svg = (DRAWN / f"{name}.svg").read_text()
    for row in rows_of(answer.document, (answer.label, *answer.series)):
        assert f">{row[answer.label]}" in svg, "`make pictures` draws it again"
    assert answer.axis in svg
    assert svg == answer.picture().decode(), "`make pictures` draws it again"


def test_every_section_of_the_results_begins_with_its_figure() -> None:
    _, *sections = re.split(r"^## ", (ROOT / "docs/results.md").read_text(), flags=re.MULTILINE)
    for section in sections:
        title, _, text = section.partition("\n\n")
        assert text.startswith("![") or title in WITHOUT_FIGURE, title
