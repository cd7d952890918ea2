"""The table of configurations."""

import io

from rich.console import Console

from evaluation.reporting.published_models import configuration_table, configurations


def test_every_published_count_is_in_the_list() -> None:
    listed = dict(configurations())
    assert listed["vgg:vgg-19"] == 143.7e6
    assert listed["rnnlm:rnnlm-2"] is None
    assert len(listed) > 40


def test_a_row_shows_the_graph_next_to_what_was_published() -> None:
    console = Console(width=150, file=io.StringIO(), record=True)
    console.print(configuration_table([("vgg:vgg-19,image=64,batch=1", 40e6), ("layered:layered,depth=2", None)]))
    text = console.export_text()
    assert "vgg:vgg-19,image=64,batch=1" in text
    assert "49.3 M" in text
    assert "40.0 M (+23.2%)" in text
