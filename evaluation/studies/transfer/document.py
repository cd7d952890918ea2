"""The document of the study of transfer: each policy against the best cheap placer, and against what is best known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.statistics import Estimate, estimate
from evaluation.studies.document import save_document
from evaluation.studies.transfer.measure import FROM_POLICY, SAMPLES, SEARCH, Found, SetFound
from graphs.op_graph import Floats

METIS = "metis"
UNSEEN = "unseen"  # the document of kinds that a policy was not trained on, alone


@dataclass(frozen=True)
class Row:
    """A set of problems, or several, as one policy and the rivals do on them; ratios of step times."""

    name: str
    problems: int
    cheap: Estimate  # the best cheap placer over the best known
    greedy: Estimate  # over the best cheap placer
    best: Estimate  # of the samples, over the best cheap placer
    greedy_metis: Estimate  # over tuned METIS
    greedy_known: Estimate  # over the best known
    best_known: Estimate
    searched_known: Estimate  # of the search from the policy, over the best known
    worst: float  # greedy over the best cheap placer
    fitting: tuple[
        int, ...
    ]  # problems for which some plan fits, and of these: cheap plans, greedy ones, best, searched


@dataclass(frozen=True)
class TransferFindings:
    """What is done of a study, in one split."""

    rivals: Sequence[SetFound]
    policies: Sequence[SetFound]

    @property
    def names(self) -> list[str]:
        """The policies."""
        return list(dict.fromkeys(each.who for each in self.policies))

    def rows(self, policy: str) -> list[Row]:
        """A row per set, and one of all, in which each set counts by its problems."""
        mine = {each.set: each for each in self.policies if each.who == policy}
        pairs = [(rival.set, rival, mine[rival.set]) for rival in self.rivals if rival.set in mine]
        tables = {name: table(rival, own) for name, rival, own in pairs}
        rows = [row(name, [each]) for name, each in tables.items()]
        return [*rows, row("all", list(tables.values()))] if len(rows) > 1 else rows


@dataclass(frozen=True)
class Table:
    """Step times on the problems of a set, (problems,) seconds; infinite where nothing fits."""

    cheap: Floats
    metis: Floats
    known: Floats
    greedy: Floats
    best: Floats
    searched: Floats


def table(rivals: SetFound, policy: SetFound) -> Table:
    """The step times of the rivals of a set, and of a policy."""
    problems = list(dict.fromkeys(each.problem for each in rivals.found))

    def least(found: Sequence[Found]) -> Floats:
        seconds = dict.fromkeys(problems, np.inf)
        for each in found:
            if each.fits:
                seconds[each.problem] = min(seconds[each.problem], each.step_seconds)
        return np.array(list(seconds.values()))

    cheap = least([each for each in rivals.found if each.placer != SEARCH])
    metis = least([each for each in rivals.found if each.placer == METIS])
    own = [least([each for each in policy.found if each.budget == budget]) for budget in (1, SAMPLES, FROM_POLICY)]
    return Table(cheap, metis, np.minimum.reduce([least(rivals.found), *own]), *own)


def row(name: str, tables: Sequence[Table]) -> Row:
    """The ratios of some sets, each of them a stratum of the intervals."""

    def ratio(over: str, under: str) -> Estimate:
        strata = []
        for each in tables:
            both = getattr(each, over), getattr(each, under)
            there = np.isfinite(both).all(axis=0)
            if there.any():
                strata.append(both[0][there] / both[1][there])
        return estimate(strata)

    known, cheap, greedy, best, searched = (
        np.concatenate([getattr(each, key) for each in tables])
        for key in ("known", "cheap", "greedy", "best", "searched")
    )
    there = np.isfinite(greedy) & np.isfinite(cheap)
    return Row(
        name=name, problems=len(known), cheap=ratio("cheap", "known"), greedy=ratio("greedy", "cheap"),
        best=ratio("best", "cheap"), greedy_metis=ratio("greedy", "metis"), greedy_known=ratio("greedy", "known"),
        best_known=ratio("best", "known"), searched_known=ratio("searched", "known"),
        worst=float((greedy[there] / cheap[there]).max()) if there.any() else float("nan"),
        fitting=tuple(int(np.isfinite(each).sum()) for each in (known, cheap, greedy, best, searched)),
    )  # fmt: skip


def save(
    found: TransferFindings, folder: Path, name: str, *, command: str, split: str, searching: int
) -> Path:  # fmt: skip
    """Write a document into a folder."""
    return save_document(
        "transfer", f"{name}.md", folder, {},
        found=found, unseen=name == UNSEEN, command=command, split=split, searching=searching,
        samples=SAMPLES, from_policy=FROM_POLICY,
    )  # fmt: skip
