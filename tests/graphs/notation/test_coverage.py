"""What is described covers the work of all families."""

import pytest

from graphs.files.load import load_graph
from graphs.foundation import by_name
from tests.contracts.test_families import SMALL
from tests.graphs.notation.coverage import coverage, described_ops
from tests.oracle.toys import random_graph

FAMILIES = by_name.built_in("graphs.families")
LARGE = {"amoebanet", "nasnet"}  # whose operators others have too


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=pytest.mark.slow if each in LARGE else ()) for each in FAMILIES]
)
def test_at_least_99_per_cent_of_the_work_of_a_family_is_described(family: str) -> None:
    found = coverage(load_graph(f"{family}:{SMALL[family]}" if family in SMALL else family))
    print(f"{family:16} {found.flops:7.2%} of FLOPs {found.bytes_accessed:8.2%} of bytes; not {found.missing}")
    assert found.flops >= 0.99
    assert found.bytes_accessed >= 0.99


def test_without_signatures_nothing_is_known() -> None:
    assert not described_ops(random_graph(9, 1)).any()
