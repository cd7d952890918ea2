"""Operators described by hand."""

from dataclasses import replace

from graphs.notation.affine import variable
from graphs.notation.operator import Operator, tensor


def fully_connected(batch: int = 8, inputs: int = 6, outputs: int = 10) -> Operator:
    """x (b, i), w (o, i) and a bias (o) -> y (b, o)."""
    bias = replace(tensor((outputs,), "o"), apart=frozenset("i"))
    return Operator(
        {"b": batch, "o": outputs, "i": inputs},
        (tensor((batch, inputs), "b", "i"), tensor((outputs, inputs), "o", "i"), bias),
        (tensor((batch, outputs), "b", "o"),),
    )


def convolution(size: int = 8, window: int = 3, stride: int = 1, padding: int = 1) -> Operator:
    """x (n, ci, size, size) and w (co, ci, window, window) -> y (n, co, h, w)."""
    out = (size + 2 * padding - window) // stride + 1
    sizes = {"n": 4, "co": 6, "ci": 2, "h": out, "w": out, "kh": window, "kw": window}
    rows, columns = (variable(v) * stride + variable(f"k{v}") - padding for v in "hw")
    return Operator(
        sizes,
        (
            tensor((4, 2, size, size), "n", "ci", rows, columns, fill=0.0),
            tensor((6, 2, window, window), "co", "ci", "kh", "kw"),
        ),
        (tensor((4, 6, out, out), "n", "co", "h", "w"),),
        opaque=frozenset({"kh", "kw"}),
    )


def pooling(size: int = 8, window: int = 2, stride: int = 2) -> Operator:
    """The largest of each window of x (n, c, size, size)."""
    out = (size - window) // stride + 1
    rows, columns = (variable(v) * stride + variable(f"k{v}") for v in "hw")
    return Operator(
        {"n": 4, "c": 2, "h": out, "w": out, "kh": window, "kw": window},
        (tensor((4, 2, size, size), "n", "c", rows, columns),),
        (tensor((4, 2, out, out), "n", "c", "h", "w"),),
        "max",
        opaque=frozenset({"kh", "kw"}),
    )
