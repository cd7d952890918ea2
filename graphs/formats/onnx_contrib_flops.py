"""FLOPs of operators that ONNX Runtime adds to ONNX's own, of the domain com.microsoft, by formula.

Its optimiser fuses operators into them, and its tools quantise weights for them. Source: docs/ContribOperators.md of
microsoft/onnxruntime. Conventions are those of `graphs.formats.onnx_flops`.
"""

from collections.abc import Callable

from graphs.formats.onnx_flops import OnnxCall, Shape, convolution, gemm, matmul, numel, transposed_convolution

DOMAIN = "com.microsoft"


def contrib_flops(call: OnnxCall) -> float | None:
    """FLOP of a call; None for an operator of which they are not known, and for shapes that it does not take."""
    if call.operator in _WITHOUT_PRODUCTS:
        return 0.0
    formula = _FORMULAS.get(call.operator)
    try:
        return 2.0 * formula(call) if formula else None
    except (IndexError, TypeError, ValueError):  # no checker of ONNX knows these operators
        return None


def _fused_matmul(call: OnnxCall) -> float:
    left = call.read[0] or (0, 0)
    return numel(call.written[0]) * (left[-2] if call.attributes.get("transA", 0) and len(left) > 1 else left[-1])


def _packed_matmul(call: OnnxCall) -> float:
    """By a weight that is packed: its rows are those that the attribute names."""
    return numel(call.written[0]) * float(call.attributes.get("K", (call.read[0] or (0,))[-1]))


def _given(call: OnnxCall, number: int) -> Shape | None:
    return call.read[number] if number < len(call.read) else None


def _projected_attention(past: int) -> Callable[[OnnxCall], float]:
    """Of (batch, length, size) the products with one weight, (size, all of query, key and value), and the scores."""

    def count(call: OnnxCall) -> float:
        batch, length, size = call.read[0] or (0, 0, 0)
        widths = (call.read[1] or (0, 0))[1]
        query, _, value = call.attributes.get("qkv_hidden_sizes") or (widths / 3,) * 3
        before = _given(call, past)  # (2, batch, heads, length, size)
        keys = length + (before[-2] if before else 0)
        return float(batch) * length * (float(size) * widths + float(keys) * (query + value))

    return count


def _scores(query: Shape, keys: float, size: float, value: float) -> float:
    """Every query by every key, and every score by a value: of all heads together."""
    return float(query[0]) * float(query[1]) * keys * (float(size) + value)


def _multi_head(call: OnnxCall) -> float:
    """Queries are (batch, length, size), keys likewise or by heads, (batch, heads, length, size).

    All may be in one tensor, (batch, length, heads, 3, size), and keys and values in one of two.
    """
    query, key, past = call.read[0] or (0, 0, 0), _given(call, 1), _given(call, 6)
    width = call.written[0][-1]  # of the values
    size = query[-1] if len(query) == 3 else query[2] * query[-1]
    length = query[1] if key is None else key[2] if len(key) == 4 else key[1]
    return _scores(query, length + (past[-2] if past else 0), size, width)


def _group_query(call: OnnxCall) -> float:
    """Heads share keys and values, which may be in one tensor with the queries: what is written is as wide as these."""
    query, past, width = call.read[0] or (0, 0, 0), _given(call, 3), call.written[0][-1]
    length = query[1] + (past[-2] if past else 0)
    if len(call.written) > 1 and call.written[1]:  # the keys with those before: a buffer for all may be shared by both
        length = call.written[1][-2]
    return _scores(query, length, width, width)


def _experts(call: OnnxCall) -> float:
    """Every row goes through some of the experts, whose weights are (experts, in, out)."""
    rows = numel((call.read[0] or (0,))[:-1]) * float(call.attributes.get("k", 1))
    weights = [shape for number in (2, 4, 6) if (shape := _given(call, number)) is not None]
    return rows * sum(numel(shape[1:]) for shape in weights)


_FORMULAS: dict[str, Callable[[OnnxCall], float]] = {
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), _fused_matmul),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4", "MatMulFpQ4"), _packed_matmul),
    **dict.fromkeys((
        "MatMulInteger16", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "MatMulInteger",
        "GemmFastGelu",
    ), matmul),
    **dict.fromkeys(("FusedGemm", "QGemm", "GemmFloat8"), gemm),
    **dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv", "ConvInteger"), convolution(weight=1)),
    "QLinearConv": convolution(weight=3),
    "ConvTransposeWithDynamicPads": transposed_convolution,
    "Attention": _projected_attention(past=4), "QAttention": _projected_attention(past=8),
    "MultiHeadAttention": _multi_head, "GroupQueryAttention": _group_query, "MoE": _experts,
}  # fmt: skip
_WITHOUT_PRODUCTS = {
    "BiasAdd", "BiasDropout", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BitmaskDropout",
    "CDist", "CropAndResize", "DequantizeBFP", "DequantizeLinear", "DynamicQuantizeLinear", "EmbedLayerNormalization",
    "ExpandDims", "FastGelu", "GatherBlockQuantized", "GatherND", "Gelu", "GridSample", "GroupNorm", "Inverse",
    "LayerNormalization", "NGramRepeatBlock", "NhwcMaxPool", "Pad", "QEmbedLayerNormalization", "QLinearAdd",
    "QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul",
    "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QOrderedGelu",
    "QOrderedLayerNormalization", "QuantizeLinear", "QuickGelu", "RelativePositionBias", "RotaryEmbedding", "Sampling",
    "SimplifiedLayerNormalization", "SkipGroupNorm", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    "Tokenizer", "Trilu", "UnfoldTensor", "Unique", "GatedRelativePositionBias", "RemovePadding", "RestorePadding",
}  # fmt: skip
