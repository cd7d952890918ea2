"""docs/splits.md shows what the code draws, and its description of an operation is one."""

import re
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import placelab
from graphs import operators
from graphs.descriptions.descriptions import descriptions_of
from tests.contracts.test_operators import SHARES, check, divided
from tests.envs.expansion.plan_drawings import BLOCK
from tests.evaluation.split_drawings import DOCUMENT, DRAWINGS, document
from tests.graphs.notation.calls import aten_call
from tests.graphs.notation.in_parts import strategies
from tests.house.test_plugins import Install, install

__all__ = ["install"]  # the fixture

(EXAMPLE,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
POINT = "[placelab.operators]\nrunning_sums = running_sums\n"


class Sums(nn.Module):
    """Running sums of exponentials over the features that a layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        summed: Tensor = self.layer(x).logcumsumexp(1)
        return summed


@pytest.fixture
def installed(install: Install) -> Iterator[None]:
    """The example as a package's."""
    caches = (operators.kinds, operators._built, descriptions_of)
    install("running_sums", POINT, EXAMPLE)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def test_the_document_shows_what_the_code_draws() -> None:
    assert DOCUMENT.read_text() == document()
    assert {block["name"] for block in BLOCK.finditer(DOCUMENT.read_text())} == set(DRAWINGS)


@pytest.mark.usefixtures("installed")
def test_the_parts_of_the_operation_that_the_document_describes_make_the_whole() -> None:
    namespace: dict[str, object] = {}
    exec(compile(EXAMPLE, "docs/splits.md", "exec"), namespace)
    examples = namespace["EXAMPLES"]
    assert isinstance(examples, tuple)
    for expression, summed in zip(examples, ("d1", "d0"), strict=True):
        call = aten_call(expression)
        operator = operators.described(call.signature)
        assert operator is not None
        found = [each.variable for each in strategies(operator)]
        assert found == [name for name in operator.sizes if name != summed]
        for shares in SHARES:
            for name in found:
                check(call, operator, [name], divided(operator, [name], shares))


@pytest.mark.usefixtures("installed")
def test_without_opaque_it_is_found_to_be_wrong() -> None:
    namespace: dict[str, object] = {}
    exec(compile(EXAMPLE.replace(", opaque=frozenset({summed})", ""), "docs/splits.md", "exec"), namespace)
    description = namespace["build"]()  # type: ignore[operator]
    call = aten_call("aten.logcumsumexp(x(4, 6), 1)")
    operator = description.operator(call.signature)
    with pytest.raises(AssertionError, match="forward: "):
        check(call, operator, ["d1"], divided(operator, ["d1"], (1, 1)))


@pytest.mark.usefixtures("installed")
def test_an_operation_that_is_described_is_divided() -> None:
    placed = placelab.place((Sums(), (torch.zeros(8, 4),)), cluster="p100x2", placer="optcnn")
    [op] = [number for number, kind in enumerate(placed.problem.graph.kinds) if kind == "aten.logcumsumexp"]
    each = descriptions_of(placed.problem.graph)[op]
    assert each is not None
    assert each.batch == "d0"
    assert each.operator.opaque == {"d1"}
