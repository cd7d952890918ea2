"""Element by element: y[i, j] = f(x[i, j], z[j], ...), where a dimension of 1 is read again and again.

Dropout, too: each part draws for itself which of its elements it keeps, and so makes a mask of its own.
"""

from graphs.notation.operator import Operator
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import all_of, broadcast, names, sizes

KINDS = (
    "aten.abs", "aten.add", "aten.addcdiv", "aten.addcmul", "aten.bitwise_and", "aten.bitwise_not", "aten.bitwise_or",
    "aten.ceil", "aten.celu", "aten.clamp", "aten.clamp_min", "aten.clone", "aten.cos", "aten.div", "aten.elu",
    "aten.eq", "aten.erf", "aten.exp", "aten.expm1", "aten.floor", "aten.frac", "aten.ge", "aten.gelu", "aten.gt",
    "aten.hardshrink", "aten.hardsigmoid", "aten.hardswish", "aten.hardtanh", "aten.isinf", "aten.isnan", "aten.le",
    "aten.leaky_relu", "aten.lerp", "aten.log", "aten.log1p", "aten.log_sigmoid_forward", "aten.logaddexp",
    "aten.logaddexp2", "aten.logical_and", "aten.logical_not", "aten.logical_or", "aten.logit", "aten.lt",
    "aten.masked_fill", "aten.maximum", "aten.minimum", "aten.mish", "aten.mul", "aten.nan_to_num",
    "aten.native_dropout", "aten.ne", "aten.neg", "aten.pow", "aten._prelu_kernel", "aten.reciprocal", "aten.relu",
    "aten.round", "aten.rsqrt", "aten.sigmoid", "aten.sign", "aten.silu", "aten.sin", "aten.sinc", "aten.softplus",
    "aten.softshrink", "aten.special_entr", "aten.special_log_ndtr", "aten.special_xlog1py", "aten.sqrt", "aten.sub",
    "aten.tanh", "aten.threshold", "aten._to_copy", "aten.where", "aten.xlogy",
)  # fmt: skip
EXAMPLES = (
    "aten.add(x(4, 6), x(6))",
    "aten.add(x(4, 1), x(6), alpha=2)",
    "aten.add(x(4, 6), 1.5)",
    "aten.abs(x(4, 6))",
    "aten.addcdiv(x(4, 6), x(4, 1), p(6), value=2)",
    "aten.addcmul(x(4, 6), x(4, 1), x(6))",
    "aten.bitwise_and(i(9, 4, 6), i(9, 6))",
    "aten.bitwise_not(i(9, 4))",
    "aten.bitwise_or(i(9, 4), i(9, 4))",
    "aten.ceil(x(4))",
    "aten.celu(x(4), 0.5)",
    "aten.clamp(x(4, 6), -0.5, 0.5)",
    "aten.clamp_min(x(4), 0.0)",
    "aten.clone(x(4, 6))",
    "aten.cos(x(4))",
    "aten.div(x(4, 6), p(4, 1))",
    "aten.div(x(4, 6), 8.0)",
    "aten.elu(x(4))",
    "aten.eq(i(3, 8), 1)",
    "aten.erf(x(4))",
    "aten.exp(x(4))",
    "aten.expm1(x(4))",
    "aten.floor(x(4))",
    "aten.frac(x(4))",
    "aten.ge(x(4), x(4))",
    "aten.gelu(x(4, 6))",
    "aten.gelu(x(4), approximate='tanh')",
    "aten.gt(x(4), 0.1)",
    "aten.hardshrink(x(4))",
    "aten.hardsigmoid(x(4))",
    "aten.hardswish(x(4))",
    "aten.hardtanh(x(4))",
    "aten.isinf(x(4))",
    "aten.isnan(x(4))",
    "aten.le(x(4), x(4))",
    "aten.leaky_relu(x(4), 0.2)",
    "aten.lerp(x(4, 6), x(6), 0.3)",
    "aten.lerp(x(4, 6), x(6), x(4, 1))",
    "aten.log(p(4))",
    "aten.log1p(p(4))",
    "aten.log_sigmoid_forward(x(4))",
    "aten.logaddexp(x(4), x(4))",
    "aten.logaddexp2(x(4), x(4))",
    "aten.logical_and(x(4), x(4))",
    "aten.logical_not(x(4))",
    "aten.logical_or(x(4), x(4))",
    "aten.logit(p(4), 0.1)",
    "aten.lt(x(4), 0.2)",
    "aten.masked_fill(x(4, 6), b(6), -inf)",
    "aten.maximum(x(4, 6), x(4, 6))",
    "aten.minimum(x(4, 6), x(4, 6))",
    "aten.mish(x(4))",
    "aten.mul(x(4, 6), x(4, 1))",
    "aten.mul(x(4, 1), x(1, 6))",
    "aten.nan_to_num(x(4))",
    "aten.native_dropout(x(4, 6), 0.0, True)",
    "aten.native_dropout(x(4, 6), 0.1, False)",
    "aten.ne(i(3, 8), 1)",
    "aten.neg(x(4))",
    "aten.pow(p(4, 6), 2)",
    "aten.pow(p(4), x(4))",
    "aten._prelu_kernel(x(4, 6), x(6))",
    "aten.reciprocal(p(4))",
    "aten.relu(x(4, 6))",
    "aten.round(x(4))",
    "aten.rsqrt(p(4))",
    "aten.sigmoid(x(4, 6))",
    "aten.sign(x(4))",
    "aten.silu(x(4))",
    "aten.sin(x(4))",
    "aten.sinc(x(4))",
    "aten.softplus(x(4))",
    "aten.softshrink(x(4))",
    "aten.special_entr(p(4))",
    "aten.special_log_ndtr(x(4))",
    "aten.special_xlog1py(x(4), p(4))",
    "aten.sqrt(p(4))",
    "aten.sub(x(4, 6), x(4, 6))",
    "aten.tanh(x(4, 6))",
    "aten.threshold(x(4), 0.1, 20)",
    "aten._to_copy(x(4, 6), dtype=float32)",
    "aten.where(b(4, 1), x(4, 6), x())",
    "aten.xlogy(x(4), p(4))",
)


def build() -> Description:
    """Of sums, products, activations, comparisons, copies, and the like."""
    return Description(_operator)


def _operator(signature: Signature) -> Operator | None:
    shape = signature.shape
    reads = tuple(broadcast(read.shape, names(shape), shape) for read in signature.reads)
    return Operator(sizes(shape), reads, (all_of(shape),))
