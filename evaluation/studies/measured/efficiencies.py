"""What share of data sheets GPUs reach, by kind of op and size: `envs/costs/efficiencies/measured.toml`, made again.

    python -m evaluation.studies.measured.efficiencies --data FOLDER --out envs/costs/efficiencies/measured.toml

FOLDER has `ops.csv` and `model_ops.csv` (`evaluation/studies/measured/kernel_tables.py`). No measured step is read. The
numbers of a class on a GPU are those under which predicted and measured times differ least, in the mean of the absolute
logarithms of their ratios. Beyond what the numbers mean (`envs/costs/efficiency_file.py`), each op of a class has
waited for the host that measured it. These seconds, one number for each table, are fitted, too, and then left out.
Where hardly any product takes longer to move its bytes than to compute, as few do in single precision, nothing tells at
which share of the bandwidth they are moved: it is that of other ops, which do nothing else.

No table has products in half precision with rows that are not aligned. In those of vTrain's steps that may set
constants, on one A100 (tp = 1), what is not in the layers takes 5.0 ms for a sequence of 1024 at width 1024, and 9.4 at
2048. The difference is 105.4 GFLOP of the head of 50,257 words, three times: 0.23 of the peak.

Nor has any of these tables attention in one kernel. On H100 it is fitted to the forward passes in bf16 that
`evaluation/gpu_check` measured with PyTorch 2.11; that of other GPUs stays `typical`: FlashAttention reaches 25 to 40%
of an A100's peak, and FlashAttention-2 50 to 73% (Dao, "FlashAttention-2", ICLR 2024). Causal attention is counted as
all pairs, of which kernels compute half: its share is twice as much. Products in bf16 and TF32 reach the same share of
their peaks on that H100 as those in single precision, 0.8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, product
from pathlib import Path

import cyclopts
import msgspec
import numpy as np
from msgspec.structs import replace
from scipy.optimize import minimize

from envs.costs.efficiency_file import Efficiencies, Efficiency, GpuClasses, KindClass, load_efficiencies
from evaluation.studies.measured.kernel_tables import Kernel, model_kernels, single_kernels
from graphs.devices.catalogue import device
from graphs.foundation.files import write_whole
from graphs.op_graph import Floats

SOURCE = (
    "fitted to kernels that others timed in single precision: NeuSight (Lee et al., ASPLOS 2025; "
    "github.com/sitar-lab/NeuSight, MIT licence), by python -m evaluation.studies.measured.efficiencies"
)
LONGEST = 0.01  # seconds at the peak: layers have no longer ops, and slow GPUs lower their clock under longer ones
FEWEST = 5  # kernels that are fitted; a GPU with fewer has the numbers of the others
MOST_ARITHMETIC = 2.25  # of Winograd's algorithm with tiles of 2 x 2 (Lavin and Gray 2016)
# Our choice: the same architecture, else the last one before it that was measured, else the next one; of cards of 75 W,
# whose clock falls under load, the P4, which is one.
LIKE = {
    "h100": ["h200", "gh200", "b200", "gb200"],
    "a100-40gb-pcie": [
        "a100-40gb",
        "a100-80gb",
        "a100-80gb-pcie",
        "a10",
        "rtx-a6000",
        "l40s",
        "rtx6000-ada",
        "rtx3060",
        "rtx3060ti",
        "rtx3080",
        "rtx3090",
        "rtx4070",
        "rtx4090",
        "rtx5070",
        "rtx5070ti",
        "rtx5080",
        "rtx5090",
    ],
    "v100-pcie": ["v100", "v100-32gb", "titan-rtx", "rtx2080ti", "rtx5000"],
    "p100": ["k80", "p40"],
    "p4": ["t4", "l4"],
    "mi210": ["mi250", "mi300x"],
}
KINDS = {  # by class
    "product": ["mm", "addmm", "linear", "convolution", "conv2d", "conv1d"],
    "batched-product": ["bmm", "baddbmm"],
    "winograd": ["convolution.winograd"],
    "softmax": ["_softmax", "_log_softmax"],
    "wide-softmax": ["_softmax.wide", "_log_softmax.wide"],
    "softmax-backward": ["_softmax.grad", "_log_softmax.grad"],
    "normalisation": ["native_layer_norm", "native_group_norm", "var_mean"],
    "normalisation-backward": [
        "native_layer_norm.grad",
        "native_layer_norm.grad_weight",
        "native_group_norm.grad",
        "native_group_norm.grad_weight",
    ],
    "dropout": ["native_dropout"],
    "dropout-backward": ["native_dropout.grad"],
    "look-up": [
        "embedding",
        "embedding.sparse",
        "_embedding_bag",
        "_embedding_bag.sparse",
        "gather",
        "index",
        "index_select",
    ],
    "activation-backward": ["relu.grad", "gelu.grad", "silu.grad", "tanh.grad", "sigmoid.grad"],
    "mul-backward": ["mul.grad"],
    "pow-backward": ["pow.grad"],
    "batch-norm": ["_native_batch_norm_legit", "_native_batch_norm_legit_functional"],
    "batch-norm-backward": [
        f"_native_batch_norm_legit{end}.{grad}" for end in ("", "_functional") for grad in ("grad", "grad_weight")
    ],
}
UNALIGNED = KindClass(  # in half precision, which no table has: of vTrain's steps that may set constants, below
    name="unaligned-product", kinds=["aten.mm.unaligned", "aten.addmm.unaligned"], arithmetic=0.23, traffic=0.6
)
ATTENTION = next(each for each in load_efficiencies("typical").classes if each.name == "attention")
CAUSAL = replace(
    ATTENTION,
    name="causal-attention",
    kinds=[f"{each}.causal" for each in ATTENTION.kinds],
    arithmetic=2 * ATTENTION.arithmetic,
)
ON_H100 = Path(__file__).parents[2] / "gpu_check" / "measured" / "h100.json"
COUNTED = {  # tensors that the graph counts over those that the kernels read and write, at the share of "other"
    "activation-backward": 2 / 3,
    "mul-backward": 3 / 6,
    "pow-backward": 2 / 7,
    "batch-norm": 2 / 3,  # the input is read for its statistics first
    "batch-norm-backward": 4 / 5,  # both gradients together
}
NUMBERS = Efficiency.__struct_fields__
STARTS = ((0.5, 1.0), (0.5, 0.9), (1e-6, 1e-4))  # arithmetic, traffic, half


def fitted(kernels: Sequence[Kernel], other: float = 1.0) -> Efficiency:
    """What kernels of one class on one GPU reach; `other` is the share of its bandwidth that other ops reach."""
    sheet, measured = device(kernels[0].gpu), np.array([each.seconds for each in kernels])
    computing = np.array([each.flops for each in kernels]) / sheet.flops_per_second
    moving = np.array([each.bytes for each in kernels]) / sheet.bytes_per_second
    of_model = np.array([each.of_model for each in kernels])
    fastest = [measured[table].min(initial=LONGEST) for table in (~of_model, of_model)]
    shows_traffic = "product" not in kernels[0].kind or np.count_nonzero(moving > computing) >= FEWEST
    least = np.log([0.05, 0.05 if shows_traffic else other, *[1e-8] * 3])
    most = np.log([MOST_ARITHMETIC, 1.0 if shows_traffic else other, 2e-3, *(0.95 * each for each in fastest)])

    def loss(point: Floats) -> float:
        inside = np.clip(point, least, most)
        arithmetic, traffic, half, *waited = np.exp(inside)
        seconds = np.maximum(computing / arithmetic, moving / traffic)
        said = np.where(of_model, waited[1], waited[0]) + seconds + np.sqrt(half * seconds)
        return float(np.abs(np.log(said / measured)).mean() + 10 * np.abs(point - inside).sum())

    ends: list[Floats] = []
    for start in product(*STARTS):
        first = np.log([*start, *(each / 2 for each in fastest)])
        end = minimize(loss, first, method="Nelder-Mead", options={"maxiter": 3000, "xatol": 1e-4, "fatol": 1e-7})
        ends.append(end.x)
    arithmetic, traffic, half, *_ = np.exp(np.clip(min(ends, key=loss), least, most)).tolist()
    return _rounded(arithmetic if computing.any() else 1.0, traffic, half)


def _rounded(arithmetic: float, traffic: float, half: float) -> Efficiency:
    """To two digits; seconds are zero below a microsecond, which no kernel shows."""
    seconds = float(f"{half:.1e}") if half >= 1e-6 else 0.0
    return Efficiency(arithmetic=round(arithmetic, 2), traffic=round(traffic, 2), half=seconds)


def efficiencies(data: Path) -> Efficiencies:
    """Those of all GPUs of which the folder has kernels."""
    kernels: dict[tuple[str, str], list[Kernel]] = defaultdict(list)
    for each in chain(single_kernels(data), model_kernels(data)):
        sheet = device(each.gpu)
        if max(each.flops / sheet.flops_per_second, each.bytes / sheet.bytes_per_second) <= LONGEST:
            kernels[each.gpu, each.kind].append(each)
    gpus: dict[str, dict[str, Efficiency]] = defaultdict(dict)
    for (gpu, name), those in sorted(kernels.items(), key=lambda each: (each[0][1] != "other", each[0])):
        if len(those) >= FEWEST:
            gpus[gpu][name] = fitted(those, gpus[gpu]["other"].traffic if name != "other" else 1.0)
    for classes in gpus.values():
        for name, share in COUNTED.items():
            classes[name] = Efficiency(traffic=round(classes["other"].traffic * share, 2))
    middle = {name: _middle([each[name] for each in gpus.values() if name in each]) for name in ("other", *KINDS)}
    defaults = [
        KindClass(name=name, kinds=[f"aten.{kind}" for kind in kinds], **_numbers(middle[name]))
        for name, kinds in KINDS.items()
    ]
    gpus["h100"] |= {known.name: attention_on_h100(known) for known in (ATTENTION, CAUSAL)}
    estimated = [UNALIGNED, ATTENTION, CAUSAL]
    own = {gpu: GpuClasses(like=LIKE.get(gpu, []), classes=classes) for gpu, classes in gpus.items()}
    return Efficiencies(source=SOURCE, other=middle["other"], classes=[*defaults, *estimated], gpus=own)


def attention_on_h100(of: KindClass) -> Efficiency:
    """What attention reaches of the peak in bf16, and of the bandwidth, which only the smallest shows."""
    sheet = device("h100")
    kind, counted = ("attention, causal", 2.0) if of is CAUSAL else ("attention", 1.0)
    rows = msgspec.json.decode(ON_H100.read_bytes())["rows"]["kernels"]
    of_kind = [each for each in rows if (each["kind"], each["precision"]) == (kind, "bf16")]
    seconds = np.array([each["us"] for each in of_kind]) / 1e6
    computing = counted * seconds * np.array([each["tflop_per_s"] for each in of_kind]) * 1e12 / sheet.peak("bf16")
    moving = seconds * np.array([each["gb_per_s"] for each in of_kind]) * 1e9 / sheet.bytes_per_second

    def loss(point: Floats) -> float:
        arithmetic, traffic, half = np.exp(point)
        said = np.maximum(computing / arithmetic, moving / min(traffic, 1.0))
        return float(np.abs(np.log((said + np.sqrt(half * said)) / seconds)).mean())

    ends = (minimize(loss, np.log(start), method="Nelder-Mead").x for start in product((0.7, 1.4), (0.8,), (1e-5,)))
    arithmetic, traffic, half = np.exp(min(ends, key=loss)).tolist()
    return _rounded(arithmetic, min(traffic, 1.0), half)


def _middle(known: Sequence[Efficiency]) -> Efficiency:
    """The median of each number over GPUs."""
    return _rounded(*(float(np.median([getattr(each, key) for each in known])) for key in NUMBERS))


def _numbers(of: Efficiency) -> dict[str, float]:
    return {key: value for key in NUMBERS if (value := getattr(of, key)) != getattr(Efficiency(), key)}


def text(of: Efficiencies) -> str:
    """As a TOML file with a line for each class of a GPU."""

    def line(name: str, numbers: Efficiency) -> str:
        return f"{name} = {{ {', '.join(f'{key} = {value}' for key, value in _numbers(numbers).items())} }}"

    lines = [
        "# What GPUs reach of their data sheets, by kind of op and size. `other` and `classes` are medians over GPUs,",
        "# for other devices, and for classes with too few kernels of a GPU. Attention, unaligned products: estimated.",
        f'schema = "{of.schema}"',
        f"version = {of.version}",
        f'source = "{of.source}"',
        line("other", of.other),
        "",
    ]
    for each in of.classes:
        kinds = ", ".join(f'"{kind}"' for kind in each.kinds)
        lines += ["[[classes]]", f'name = "{each.name}"', f"kinds = [{kinds}]"]
        lines += [f"{key} = {value}" for key, value in _numbers(each).items()] + [""]
    for gpu, own in of.gpus.items():
        likes = ", ".join(f'"{name}"' for name in own.like)
        lines += [f"[gpus.{gpu}]", f"like = [{likes}]", "", f"[gpus.{gpu}.classes]"]
        lines += [line(name, own.classes[name]) for name in sorted(own.classes)] + [""]
    return "\n".join(lines)


def main(*, data: Path, out: Path) -> None:
    """Write the efficiency file.

    Args:
        data: the folder with `ops.csv` and `model_ops.csv`.
        out: the TOML file.

    """
    write_whole(out, text(efficiencies(data)))


if __name__ == "__main__":
    cyclopts.run(main)
