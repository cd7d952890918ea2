"""Tables fit the width that they are shown in, and lose nothing by it."""

import io
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from evaluation.records.formatting import numbers, table
from tests.drawn import examples

ROWS = [
    ("annealing:policy=default", "8.30 ms"),
    ("human_expert", "12.6 ms"),
    ("gpipe:micro_batches=8,stages=4", "1.5 GiB"),
]


def shown(width: int, *, rows: int = 3, columns: int = 6) -> list[str]:
    made = table("bert:layers=2@p100:devices=4", "placer", *numbers(*["over best"] * (columns - 1)))
    for placer, value in ROWS[:rows]:
        made.add_row(placer, Text(value), *["1.02 [1.00, 1.05]"] * (columns - 2))
    return lines_of(made, width)


def lines_of(made: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_table_that_fits_is_as_it_always_was() -> None:
    assert "  annealing:policy=default           8.30 ms   1.02 [1.00, 1.05]" in "\n".join(shown(140))


def test_a_narrow_table_breaks_lines_where_that_reads_well() -> None:
    assert [line.rstrip() for line in shown(75)] == [
        "bert:layers=2@p100:devices=4",
        "                  over",
        "placer            best    over best    over best    over best    over best",
        "─" * 74,
        "annealing:     8.30 ms         1.02         1.02         1.02         1.02",
        "policy=default         [1.00, 1.05] [1.00, 1.05] [1.00, 1.05] [1.00, 1.05]",
        "human_expert   12.6 ms         1.02         1.02         1.02         1.02",
        "                       [1.00, 1.05] [1.00, 1.05] [1.00, 1.05] [1.00, 1.05]",
        "gpipe:micro_   1.5 GiB         1.02         1.02         1.02         1.02",
        "batches=8,             [1.00, 1.05] [1.00, 1.05] [1.00, 1.05] [1.00, 1.05]",
        "stages=4",
        "",
    ]


@pytest.mark.parametrize("width", range(26, 60))
def test_a_value_stays_with_its_unit_and_an_interval_in_one_piece(width: int) -> None:
    made = table("", "memory", "gain")
    made.add_row("16.0 GiB of 24.0 GiB, 12.3 ms", "1.02 [1.00, 1.05]")
    said = [" ".join(line.split()) for line in lines_of(made, width)]
    for value in ("16.0 GiB", "24.0 GiB", "12.3 ms", "[1.00, 1.05]"):
        assert sum(value in line for line in said) == 1, said


def test_a_long_name_is_broken_before_an_interval_gets_a_line_of_its_own() -> None:
    made = table("", "placer", "gain")
    made.add_row("human_expert:groups=40,seeds=2", "1.02 [1.00, 1.05]")
    first, second = (" ".join(line.split()) for line in lines_of(made, 41)[-3:-1])
    assert (first, second) == ("human_expert:groups=40, 1.02 [1.00, 1.05]", "seeds=2")


def test_an_interval_gets_a_line_of_its_own_before_names_are_broken_further() -> None:
    made = table("", "placer", "gain")
    made.add_row("pipedream:stages=4", "1.02 [1.00, 1.05]")
    assert [line.rstrip() for line in lines_of(made, 31)][-3:] == [
        "pipedream:stages=4 1.02",
        " " * 19 + "[1.00, 1.05]",
        "",
    ]


@settings(max_examples=examples(60, 9), deadline=None)
@given(st.integers(40, 160), st.integers(1, 3), st.integers(3, 6))
def test_no_line_is_wider_and_no_cell_is_lost(width: int, rows: int, columns: int) -> None:
    lines = shown(width, rows=rows, columns=columns)
    assert max(map(len, lines)) <= width
    written = Counter("".join(lines))
    cells = "".join(f"{placer}{value}{'1.02[1.00,1.05]' * (columns - 2)}" for placer, value in ROWS[:rows])
    assert all(written[letter] >= count for letter, count in Counter(cells.replace(" ", "")).items())


def test_it_may_be_shown_wide_after_it_was_shown_narrow() -> None:
    made = table("", "placer", *numbers(*["over best"] * 5))
    made.add_row("annealing:policy=default", *["1.02 [1.00, 1.05]"] * 5)
    wide = lines_of(made, 140)
    assert lines_of(made, 70) != wide
    assert lines_of(made, 140) == wide
