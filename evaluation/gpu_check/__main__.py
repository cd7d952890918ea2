"""Measure on a GPU what placelab says about it, part by part, within a few minutes.

    python -m evaluation.gpu_check --device cuda:0 --kind h100 --out runs/gpu_check.json
    python -m evaluation.gpu_check --device cpu --kind server-cpu --small --out runs/cpu_check.json

The file grows row by row, so that a part that fails or a run that is stopped keeps what was measured.
`python -m evaluation.gpu_check.page runs/gpu_check.json page.md` makes a page of it.
"""

import argparse
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import torch

from envs.costs.timing import device_name
from evaluation.gpu_check.card import Card, Row
from evaluation.gpu_check.kernels import kernels, peaks
from evaluation.gpu_check.moves import copies, one_card_twice, placements, processes, replay
from evaluation.gpu_check.steps import host, kinds, steps
from graphs.devices.catalogue import device as catalogue_device
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole

PARTS: dict[str, tuple[Callable[[Card], Iterator[Row]], float]] = {  # each with its share of the time
    "peaks": (peaks, 0.02), "kernels": (kernels, 0.15), "steps": (steps, 0.2), "kinds": (kinds, 0.2),
    "host": (host, 0.08), "copies": (copies, 0.03), "placements": (placements, 0.17),
    "one_card_twice": (one_card_twice, 0.05), "replay": (replay, 0.05), "processes": (processes, 0.1),
}  # fmt: skip


class Check(msgspec.Struct):
    """What was measured, on which device."""

    device: str
    kind: str  # its name in the catalogue
    versions: dict[str, str]
    rows: dict[str, list[Row]] = msgspec.field(default_factory=dict)  # by part
    failed: dict[str, str] = msgspec.field(default_factory=dict)  # part -> why it has ended early
    seconds: dict[str, float] = msgspec.field(default_factory=dict)  # that each part took


def measured(card: Card, minutes: float, out: Path, only: tuple[str, ...]) -> Check:
    """Run the parts, each within its share of the time. A failure ends its part alone."""
    versions = {"torch": str(torch.__version__), "cuda": str(torch.version.cuda), "python": platform.python_version()}
    check = Check(device_name(card.device), card.kind, versions)
    chosen = {part: how for part, how in PARTS.items() if not only or part in only}
    total = sum(share for _, share in chosen.values())
    for part, (measure, share) in chosen.items():
        began, rows, is_over = time.monotonic(), check.rows.setdefault(part, []), False
        try:
            for row in measure(card):
                rows.append(row)
                write_whole(out, msgspec.json.format(msgspec.json.encode(check)))
                print(part, *map(_said, row.items()), flush=True)
                if is_over:
                    check.failed[part] = "its share of the time was over"
                    break
                is_over = time.monotonic() - began > 60 * minutes * share / total
        except Exception as error:  # whatever fails on a machine that nobody has seen, the other parts are worth having
            check.failed[part] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
            print(part, "failed:", check.failed[part], flush=True)
        check.seconds[part] = round(time.monotonic() - began, 1)
        card.free()
    write_whole(out, msgspec.json.format(msgspec.json.encode(check)))
    return check


def _said(item: tuple[str, float | str]) -> str:
    key, value = item
    return f"{key}={value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: list[str]) -> int:
    """Read the arguments, and measure; 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="as PyTorch names it")
    parser.add_argument("--kind", required=True, help="its name in the catalogue, such as h100")
    parser.add_argument("--devices", default="", help="several, with commas between them, for plans on several cards")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts")
    parser.add_argument("--only", default="", help=f"some parts, with commas between them, of {', '.join(PARTS)}")
    parser.add_argument("--small", action="store_true", help="small models and sizes alone")
    given = parser.parse_args(arguments)
    catalogue_device(given.kind)
    only = tuple(filter(None, given.only.split(",")))
    if unknown := set(only) - set(PARTS):
        raise InputError(f"unknown part {min(unknown)!r}; there are: {', '.join(PARTS)}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    if given.device == "cpu":
        torch.set_num_threads(1)
    card = Card(torch.device(given.device), given.kind, given.small, tuple(filter(None, given.devices.split(","))))
    return 1 if measured(card, given.minutes, given.out, only).failed else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
