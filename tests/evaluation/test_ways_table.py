"""docs/running.md says which plans run where as the code has it."""

from tests.evaluation.ways_table import CHANGED, DOCUMENT, KINDS, NO, TABLE, YES, table


def test_the_document_says_which_plans_run_where() -> None:
    found = table()
    assert TABLE.findall(DOCUMENT.read_text()) == [found], "python -m tests.evaluation.ways_table writes it"
    cells = [line.strip("| ").split(" | ") for line in found.splitlines()[2:]]
    assert [kind for kind, *_ in cells] == [*KINDS]
    assert all(set(ways) <= {YES, CHANGED, NO} and ways[-1] == YES for _, *ways in cells)  # chakra takes all
