"""Kernels by kind, size and precision: what cost models are fitted to and judged by."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional as F

from evaluation.gpu_check.card import DATA_TYPES, Card, Row, precision

Case = tuple[str, str, Callable[[], object], float, float]  # kind, shape, call, FLOP, bytes read and written

PRODUCTS = (
    (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096),
    (8192, 8192, 8192), (32, 1024, 1024), (32, 4096, 4096), (512, 1024, 4096), (2048, 1024, 1024), (4096, 1024, 4096),
    (8192, 768, 3072), (1, 4096, 4096), (4096, 4096, 32000), (64, 65536, 64),
)  # fmt: skip
ATTENTIONS = ((8, 12, 128, 64), (8, 12, 512, 64), (8, 16, 1024, 64), (2, 32, 2048, 128), (1, 32, 8192, 128))
CONVOLUTIONS = (  # batch, input channels, size, output channels, kernel, stride
    (32, 3, 224, 64, 7, 2), (32, 64, 56, 64, 3, 1), (32, 256, 56, 64, 1, 1), (32, 128, 28, 128, 3, 1),
    (32, 256, 14, 256, 3, 1), (32, 512, 7, 512, 3, 1), (32, 1024, 14, 2048, 1, 2),
)  # fmt: skip
ELEMENTS = tuple(2**power for power in (10, 14, 17, 20, 22, 24, 26))


def peaks(card: Card) -> Iterator[Row]:
    """The largest product, and a copy: what data sheets promise."""
    size = 512 if card.small else 8192
    for name in DATA_TYPES:
        with precision(name) as dtype:
            square = torch.randn(size, size, device=card.device).to(dtype)
            measured = 2 * size**3 / card.kernel_seconds(partial(torch.mm, square, square)) / 1e12
            yield {"what": f"product of {size} x {size}, {name}", "measured": measured, "unit": "TFLOP/s"}
    source = torch.empty(2**18 if card.small else 2**28, device=card.device)
    seconds = card.kernel_seconds(partial(torch.empty_like(source).copy_, source))
    yield {"what": "copy on the device", "measured": 2 * source.nbytes / seconds / 1e12, "unit": "TB/s"}


def kernels(card: Card) -> Iterator[Row]:
    """One kernel a row."""
    for name in ("fp32",) if card.small else DATA_TYPES:
        with precision(name) as dtype, torch.no_grad():
            for cases in (_products, _attentions, _convolutions, *([_elements] if name != "tf32" else [])):
                for kind, shape, call, flops, size in cases(card, dtype):
                    microseconds = 1e6 * card.kernel_seconds(call, 6)
                    yield {
                        "kind": kind, "precision": name, "shape": shape, "us": microseconds,
                        "tflop_per_s": flops / microseconds / 1e6, "gb_per_s": size / microseconds / 1e3,
                    }  # fmt: skip
    card.free()


def _products(card: Card, dtype: torch.dtype) -> Iterator[Case]:
    for m, k, n in PRODUCTS[:3] if card.small else PRODUCTS:
        left, right = (torch.randn(shape, device=card.device).to(dtype) for shape in ((m, k), (k, n)))
        size = left.nbytes + right.nbytes + m * n * dtype.itemsize
        yield "mm", f"{m}x{k}x{n}", partial(torch.mm, left, right), 2.0 * m * k * n, size


def _attentions(card: Card, dtype: torch.dtype) -> Iterator[Case]:
    for batch, heads, steps, width in () if card.small else ATTENTIONS:
        query = torch.randn(batch, heads, steps, width, device=card.device).to(dtype)
        flops, shape = 4.0 * batch * heads * steps**2 * width, f"{batch}x{heads}x{steps}x{width}"
        attention = partial(F.scaled_dot_product_attention, query, query, query)
        yield "attention", shape, attention, flops, 4 * query.nbytes
        yield "attention, causal", shape, partial(attention, is_causal=True), flops / 2, 4 * query.nbytes


def _convolutions(card: Card, dtype: torch.dtype) -> Iterator[Case]:
    for batch, channels, size, out, kernel, stride in CONVOLUTIONS[3:4] if card.small else CONVOLUTIONS:
        shape, padding = f"{batch}x{channels}x{size} to {out}, {kernel}/{stride}", kernel // 2
        for groups in {1, channels if channels == out else 1}:
            kind = "convolution" if groups == 1 else "depthwise"
            images = torch.randn(batch, channels, size, size, device=card.device).to(dtype)
            weight = torch.randn(out, channels // groups, kernel, kernel, device=card.device).to(dtype)
            forward = partial(F.conv2d, images, weight, None, stride, padding, groups=groups)
            gradient = torch.randn_like(forward())
            given = gradient, images, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups
            backward = partial(torch.ops.aten.convolution_backward, *given, [True, True, False])
            flops = 2.0 * gradient.numel() * channels // groups * kernel**2
            moved = images.nbytes + weight.nbytes + gradient.nbytes
            yield kind, shape, forward, flops, moved
            yield f"{kind}, backward", shape, backward, 2 * flops, 2 * moved


def _elements(card: Card, dtype: torch.dtype) -> Iterator[Case]:
    other = torch.bfloat16 if dtype == torch.float32 else torch.float32
    for count in ELEMENTS[:3] if card.small else ELEMENTS:
        x = torch.randn(count, device=card.device).to(dtype)
        rows = x.view(-1, min(1024, count))
        weight = torch.ones(rows.shape[1], device=card.device, dtype=dtype)
        calls: tuple[tuple[str, Callable[[], object], float], ...] = (  # and how often all of x is moved
            ("add", partial(torch.add, x, x), 2), ("gelu", partial(F.gelu, x), 2), ("clone", x.clone, 2),
            ("sum", x.sum, 1), ("sum of rows", partial(torch.sum, rows, 0), 1),
            ("softmax", partial(torch.softmax, rows, -1), 2),
            ("layer_norm", partial(F.layer_norm, rows, weight.shape, weight, weight), 2),
            ("rms_norm", partial(F.rms_norm, rows, list(weight.shape), weight), 2),
            ("dropout", partial(torch.native_dropout, x, 0.1, True), 2 + 1 / dtype.itemsize),
            ("transposed copy", partial(torch.clone, rows.t(), memory_format=torch.contiguous_format), 2),
            ("cast", partial(x.to, other), 1 + other.itemsize / dtype.itemsize),
        )  # fmt: skip
        for kind, call, passes in calls:
            yield kind, str(count), call, 0.0, passes * x.nbytes
