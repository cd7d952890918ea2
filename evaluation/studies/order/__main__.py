"""The study of order: what first come, first served had hidden, and what the default of `place` is worth.

    python -m evaluation.studies.order --out runs/studies/order --workers 2

Ctrl-C stops it, and the same command resumes. The parts can be done by separate commands, one after another; the
document is written of all that the folder holds. It needs the released policy (`placers/released`). Seconds are those
of the processor: what else the machine does matters little.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.commands.arguments import GROUPS
from evaluation.studies.command import command_of, names_in, run
from evaluation.studies.comparisons import check_policy
from evaluation.studies.order.cases import (
    ALL_SUITES,
    BUDGETS,
    FEW,
    LONG,
    OF_DEFAULT,
    OF_RULES,
    OF_SEARCHES,
    PARTS,
    Size,
    folder_of,
    jobs,
)
from evaluation.studies.order.defaults import Defaults
from evaluation.studies.order.document import save
from evaluation.studies.order.rule_findings import RuleFindings
from evaluation.studies.order.rules import Ordered
from evaluation.studies.order.search_findings import DefaultFindings, SearchFindings
from evaluation.studies.order.searches import Searched
from evaluation.studies.pieces import keep_size, load_pieces, load_size, pieces_done
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.suites import SUITES


def study(
    *,
    parts: str = ",".join(PARTS),
    suites: str = ",".join(ALL_SUITES),
    budgets: str = ",".join(map(str, BUDGETS)),
    groups: int = GROUPS,
    seeds: int = 1,
    most: int | None = None,
    out: Path = Path("runs/studies/order"),
    workers: Workers = 1,
    document: Path | None = None,
) -> Path:
    """Measure some parts of the study, and write down what follows from everything that is done.

    Args:
        parts: rules, searches, default, with commas between them; "" to write the document from what is done.
        suites: the suites of problems; the rules are also measured on `curves`, which has problems of every family.
        budgets: numbers of simulations of the searches.
        groups: op groups of the problems; the default of `place` and the earlier one have their own.
        seeds: how many seeds to run each search with; the intervals are over seeds and problems.
        most: at most so many problems of each family in a suite, 1 for a quick look; with 5,000 simulations or more
            at most two.
        out: the folder that keeps what is done.
        workers: how many processes to share the work among.
        document: a folder for the document; without it, `out`.

    """
    named, chosen = names_in(parts, "part of the study", PARTS), names_in(suites, "suite", SUITES)
    counts = [int(each) if each.isdigit() else 0 for each in budgets.split(",")]
    if not chosen or min(seeds, groups, *counts) < 1:
        raise InputError("a study needs at least one suite, simulation, op group and seed, as whole numbers")
    if named:
        check_policy(out)
        size = Size(groups=groups, seeds=seeds)
        keep_size(out, size)
        for name in named:
            folder_of(name, out).mkdir(exist_ok=True)
            for budget in (0,) if name == OF_RULES else counts:
                some = most if budget < LONG else min(most or FEW, FEW)
                list(pieces_done(jobs(name, out, chosen, budget, size, some), workers))
    size = load_size(out, Size)
    rules = RuleFindings(load_pieces(folder_of(OF_RULES, out), Ordered))
    searches = SearchFindings(load_pieces(folder_of(OF_SEARCHES, out), Searched))
    defaults = DefaultFindings(load_pieces(folder_of(OF_DEFAULT, out), Defaults))
    if not (rules.pieces or searches.pieces or defaults.pieces):
        raise InputError(f"{out}: nothing is done yet")
    command = command_of("order", suites=suites, budgets=budgets, groups=size.groups, seeds=size.seeds)
    return save(rules, searches, defaults, folder=document or out, command=command, size=size, suites=chosen)


if __name__ == "__main__":
    run(study, "order", __doc__)
