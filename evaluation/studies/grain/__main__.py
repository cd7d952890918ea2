"""How many units a search can use: what it finds with few large op groups, with many small ones, and op by op.

    python -m evaluation.studies.grain --out runs/studies/grain

Ctrl-C stops it, and the same command resumes. The folder then holds `grain.md` and all measurements. Only processor
seconds are read; what else the machine does matters little. More grains and orders can be measured later.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import command_of, run
from evaluation.studies.grain.document import save
from evaluation.studies.grain.measure import OPS, Measured, Size, jobs
from evaluation.studies.pieces import keep_size, load_pieces, pieces_done
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.problem import DEFAULT_ORDER, order_spec


def study(
    *,
    grains: str = "32,64,128,256,512,1024",
    orders: str = DEFAULT_ORDER,
    suites: str = "gdp12,placeto,heldout",
    placer: str = "annealing",
    budgets: str = "0,16,100,1000,20000",
    seeds: int = 1,
    workers: Workers = 1,
    out: Path = Path("runs/studies/grain"),
    document: Path | None = None,
) -> Path:
    """Place the problems of some suites at every grain, and op by op.

    Args:
        grains: numbers of op groups, with commas between them; op by op comes in addition.
        orders: rules by which ops run, with commas between them.
        suites: suites of problems, with commas between them.
        placer: who places.
        budgets: numbers of simulations, with commas between them.
        seeds: how many placements to make at each grain with each budget.
        workers: processes.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.

    """
    chosen = [*_numbers("grains", grains, least=1), OPS]
    rules = [order_spec(order) for order in orders.split(",")]
    size = Size(suites, placer, tuple(_numbers("budgets", budgets)), seeds)
    keep_size(out, size)
    list(pieces_done(jobs(out, size, chosen, rules), workers))
    done = [piece for piece in load_pieces(out, Measured) if piece.grain in chosen and piece.order in rules]
    command = command_of("grain", grains=grains, orders=orders, suites=suites, placer=placer, budgets=budgets)
    return save(done, size, document or out, command)


def _numbers(name: str, text: str, least: int = 0) -> list[int]:
    """The whole numbers in a text. Raises InputError for anything else."""
    parts = text.split(",")
    if not all(part.isdigit() and int(part) >= least for part in parts):
        raise InputError(f"--{name} is {text!r}; expected whole numbers of at least {least} with commas between them")
    return [int(part) for part in parts]


if __name__ == "__main__":
    run(study, "grain", __doc__)
