"""Products of matrices: y[n, m] = sum over k of x[n, k] w[k, m], in batches, and with something added."""

from graphs.notation.operator import Operator, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import broadcast

KINDS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm")
EXAMPLES = (
    "aten.mm(x(6, 4), x(4, 8))",
    "aten.bmm(x(2, 6, 4), x(2, 4, 8))",
    "aten.addmm(x(8), x(6, 4), x(4, 8))",
    "aten.addmm(x(6, 1), x(6, 4), x(4, 8), beta=0.5, alpha=2)",
    "aten.baddbmm(x(2, 1, 8), x(2, 6, 4), x(2, 4, 8))",
)


def build() -> Description:
    """Of `mm`, `bmm`, `addmm` and `baddbmm`."""
    return Description(_operator)


def _operator(signature: Signature) -> Operator | None:
    *added, left, right = [read.shape for read in signature.reads]
    batch = ["b"] * (len(left) - 2)
    sizes = dict(zip([*batch, "n", "k", "m"], [*left, right[-1]], strict=True))
    reads = [tensor(left, *batch, "n", "k"), tensor(right, *batch, "k", "m")]
    if added:  # once, however k is divided
        reads.insert(0, broadcast(added[0], [*batch, "n", "m"], signature.shape, apart=frozenset("k")))
    return Operator(sizes, tuple(reads), (tensor(signature.shape, *batch, "n", "m"),))
