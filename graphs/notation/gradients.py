"""Gradients: the operators of the backward pass, over the variables of the forward operator.

The gradient of what an operator reads has the index of what it reads, and reads the gradient of what the operator
writes by the index of that. So a backward operator is divided along the variables of its forward operator, and the
roles of slices and partial sums are exchanged. Of a product y[b, o] = sum over i of x[b, i] w[o, i]:

    divided    y        x        w          gradient of x    gradient of w
    b          slice    slice    whole      slice            partial sum
    o          slice    whole    slice      partial sum      slice
    i          partial  slice    slice      slice            slice
"""

from collections.abc import Sequence
from dataclasses import replace

from graphs.foundation.errors import InputError
from graphs.notation.operator import Operator


def gradient(operator: Operator, of: Sequence[int]) -> Operator:
    """The operator that computes the gradients of the reads at these positions.

    It reads the gradients of all results, then the results, then all that the operator reads; which of the latter two
    it makes use of is not said. What was filled in outside of a tensor has no gradient. Raises InputError for an
    operator that may be divided where it is reduced by anything but a sum: no part knows if the maximum is its own.

    Statistics are of what has all variables. The gradient of that needs some of its own; those of a scale and a shift
    are sums of gradients times what was normalised in the forward pass, and need none.
    """
    may_be_divided = {name for name in operator.reduced - operator.opaque if operator.sizes[name] > 1}
    if operator.reducer != "sum" and may_be_divided:
        raise InputError(f"the gradient of an operator that is reduced by {operator.reducer!r} is not described")
    all_of_them = {name for name, size in operator.sizes.items() if size > 1}
    needs_statistics = any(operator.reads[i].variables >= all_of_them for i in of)
    return Operator(
        operator.sizes,
        (*operator.writes, *operator.writes, *operator.reads),
        tuple(operator.reads[i] for i in of),
        "sum",
        operator.opaque,
        tuple(replace(each, forward=each.backward) for each in operator.statistics) if needs_statistics else (),
        operator.ordered,
    )
