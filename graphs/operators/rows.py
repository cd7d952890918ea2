"""What is made of all values along a dimension: running sums, the place of the largest, and the largest ones.

That dimension is not divided, since each of its values counts for the result.
"""

from graphs.notation.affine import Affine, variable
from graphs.notation.operator import Access, Operator
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, argument, names, positive, sizes

KINDS = ("aten.argmax", "aten.cumsum", "aten.topk")
EXAMPLES = (
    "aten.argmax(x(4, 6, 8), -1)",
    "aten.argmax(x(4, 6, 8), 1, True)",
    "aten.cumsum(x(4, 6, 2), 1)",
    "aten.cumsum(x(4, 6), -2)",
    "aten.topk(x(4, 6, 8), 2)[0]",
    "aten.topk(x(4, 6, 8), 3, 1)[1]",
)

_WHERE = {"aten.argmax": 1, "aten.cumsum": 1, "aten.topk": 2}  # the position of the dimension among the arguments


def build() -> Description:
    """Of `argmax`, `cumsum` and `topk`."""
    return Description(_operator)


def _operator(signature: Signature) -> Operator | None:
    kind, shape = signature.function, signature.reads[0].shape
    given = argument(signature, _WHERE[kind], -1 if kind == "aten.topk" else None)
    if given is None or not shape:
        return None
    own, every = positive(given, len(shape)), sizes(shape)
    along, index = names(shape)[own], [variable(name) for name in names(shape)]
    opaque = frozenset({along})
    if kind == "aten.topk":
        every, index[own], opaque = every | {"k": signature.shape[own]}, variable("k"), opaque | {"k"}
    elif kind == "aten.argmax":
        index[own : own + 1] = [Affine()] if len(signature.shape) == len(shape) else []
    return Operator(every, (all_of(shape),), (Access(signature.shape, tuple(index)),), opaque=opaque)
