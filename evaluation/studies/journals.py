"""What studies that compare placers share: the problems of suites, and comparisons that go on where they stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tqdm import tqdm

from evaluation.commands.load_placer import load_placer
from evaluation.compare import compare
from evaluation.journal import records
from evaluation.record import Failure
from evaluation.studies.captures import Problems, problems_of
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.suites import suite_specs
from placers import default
from placers.learned.policy_file import WEIGHTS


def suite_problems(suite: str, groups: int) -> Problems:
    """The problems of a suite in so many op groups at most. Raises InputError for an unknown suite."""
    return problems_of(suite_specs(suite), groups)


def do_what_is_left(
    journal: Path, allowed: Mapping[str, int], problems: Problems, *, about: str, seeds: int = 1, workers: int = 1
) -> list[Failure]:
    """Do what a journal does not hold yet; who failed is tried again each time, and returned.

    `allowed` says who places, by spec, and how much each may simulate; a progress bar says what it is `about`.
    """
    done = {record.case for record in records(journal, allowed)}
    wanted = {name: [(name, placer, seed) for placer in allowed for seed in range(seeds)] for name in problems}
    left = [name for name, keys in wanted.items() if not done.issuperset(keys)]
    if not left:
        return []
    bar = tqdm(left, desc=f"problems of {about}", leave=False, disable=None)
    comparison = compare(
        [load_placer(placer) for placer in allowed], [problems[name]() for name in bar],
        budget=allowed, seeds=range(seeds), workers=workers, journal=journal,
    )  # fmt: skip
    return list(comparison.failures)


def check_policy(out: Path) -> None:
    """Make a study's folder, all of whose journals are of one released policy.

    Raises InputError if the folder is of another policy than the one that is released now, or there is none.
    """
    default.build()  # refused here if there is none
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((default.RELEASED / WEIGHTS).read_bytes()).hexdigest()
    kept = out / "policy.sha256"
    if kept.exists() and kept.read_text().strip() != digest:
        raise InputError(f"{out} is of another policy than {default.RELEASED}; choose another --out")
    write_whole(kept, f"{digest}\n")
