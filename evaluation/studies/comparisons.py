"""Placers compared for studies; what was stopped resumes from its journal."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from evaluation.commands.load_placer import load_placer
from evaluation.comparing.compare import compare
from evaluation.records.journal import records
from evaluation.records.provenance import policy_folders
from evaluation.records.record import Failure
from evaluation.studies.problems import Problems
from graphs.foundation.documents import read_file
from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from graphs.foundation.progress import progress
from placers.learned.policy_file import WEIGHTS

CHEAP = (  # placers without training or search, that take seconds on any graph
    "heft", "human_expert", "metis", "metis:default=true", "kahip", "peft", "m_etf", "m_sct", "m_topo",
    "gpipe:micro_batches=1", "pipedream", "single_device", "round_robin",
)  # fmt: skip


def compared(
    journal: Path, allowed: Mapping[str, int], problems: Problems, *, about: str, seeds: int = 1, workers: Workers = 1
) -> list[Failure]:
    """Do what a journal does not hold yet; failures are tried again each time, and returned.

    `allowed` maps each placer's spec to its budget of simulations; a progress bar says what it is `about`.
    """
    done = {record.case for record in records(journal, allowed)}
    wanted = {name: [(name, placer, seed) for placer in allowed for seed in range(seeds)] for name in problems}
    left = [name for name, keys in wanted.items() if not done.issuperset(keys)]
    if not left:
        return []
    bar = progress(left, f"problems of {about}", unit="problem", leave=False)
    comparison = compare(
        [load_placer(placer) for placer in allowed], [problems[name]() for name in bar],
        budget=allowed, seeds=range(seeds), workers=workers, journal=journal,
    )  # fmt: skip
    return list(comparison.failures)


def check_policies(out: Path, specs: Iterable[str]) -> None:
    """Make a study's folder; in all its journals, a policy's spec is of the same weights.

    Raises InputError if a spec was that of another policy before, or a folder has no policy.
    """
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "policy.sha256"  # as sha256sum writes it: digits, two spaces, and a name
    lines = kept.read_text().splitlines() if kept.exists() else []
    known = {name or "default": digest for digest, _, name in (line.partition("  ") for line in lines)}
    for spec in specs:
        files = (read_file(folder / WEIGHTS, "name the folder of a run") for folder in policy_folders(spec))
        digest = hashlib.sha256(b"".join(files)).hexdigest()
        if known.setdefault(spec, digest) != digest:
            raise InputError(f"{out} is of another policy than {spec}; choose another --out")
    write_whole(kept, "".join(f"{digest}  {name}\n" for name, digest in known.items()))
