"""The drawings of docs/splits.md; `python -m tests.evaluation.split_drawings` writes them into the document."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.tables.split_rows import split_rows
from evaluation.tables.split_table import split_table
from graphs.foundation import by_name
from graphs.notation.affine import variable
from graphs.notation.operator import Access, tensor
from placers.contract.placer import Placer
from tests.envs.expansion.divided_graphs import ITEM, Net, mlp
from tests.envs.expansion.plan_drawings import DOCUMENT as PLANS
from tests.envs.expansion.plan_drawings import document as written
from tests.envs.expansion.test_divided_bytes import moved_bytes, problem
from tests.evaluation.some_records import to_text

DOCUMENT = PLANS.parent / "splits.md"
DEVICES, ROWS, COLUMNS = 4, 8, 8
PASSED = (  # what is made, by which index; what is read, by which; the name of what is sent
    ("rows", "n", "the same rows", "n", "nothing"),
    ("all of it", "", "rows", "n", "nothing"),
    ("rows", "n", "rows and one on each side", "window", "halos"),
    ("rows", "n", "columns", "i", "all-to-all"),
    ("rows", "n", "all of it", "", "all-gather"),
    ("partial sums", "k", "rows", "n", "reduce-scatter"),
    ("partial sums", "k", "all of it", "", "all-reduce"),
)


def perceptron() -> str:
    """What tensor parallelism divides of a perceptron."""
    given = problem(mlp([512, 2048, 512], 64).graph, 4)
    placer: Placer = by_name.build("placers", "tensor_parallel:others=whole")
    text = to_text(split_table(split_rows(given, placer.place(given).plan)), 110)
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def passing() -> str:
    """What passes between two ops on the same devices."""
    rows = [f"{'each device makes':<20}{'each device needs':<28}{'sent':<17}moved, of all elements\n"]
    for made, by, needed, reads_by, sent in PASSED:
        moved = Fraction(round(_moved(by, reads_by) / ITEM), ROWS * COLUMNS)
        rows.append(f"{made:<20}{needed:<28}{sent:<17}{moved}\n")
    return "".join(rows)


def _moved(by: str, reads_by: str) -> float:
    """Bytes that pass from an op to the next, each divided by an index, over 4 devices."""
    net, shape = Net(ROWS), (ROWS, COLUMNS)
    x = net.add("x", {"n": ROWS, "i": COLUMNS, "k": DEVICES}, tensor(shape, "n", "i"), [], lambda: 0.0)  # type: ignore[arg-type, return-value]
    sizes, of_x = {"n": ROWS, "i": COLUMNS}, tensor(shape, "n", "i")
    if reads_by == "window":
        of_x = Access(shape, (variable("n") + variable("w") - 1, variable("i")), fill=0.0)
        sizes["w"], reads_by = 3, "n"
    net.add("y", sizes, tensor(shape, "n", "i"), [(of_x, x)], lambda a: a)
    devices = tuple(range(DEVICES))
    return moved_bytes(simulate(problem(net.graph, DEVICES), Plan((devices, devices), split=((by,), (reads_by,)))))


DRAWINGS: dict[str, Callable[[], str]] = {"perceptron": perceptron, "what passes": passing}


def document() -> str:
    """The document with its drawings as the code draws them."""
    return written(DOCUMENT, DRAWINGS)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
