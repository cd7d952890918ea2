"""The document of the study of transfer: each policy against the best cheap placer, and against what is best known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
class Ordered:
    """What a policy's orders are worth on a set of problems: step times over those of the same policy by the rule."""

    name: str
    problems: int
    greedy: Estimate  # of the same placements
    best: Estimate  # of as many simulations


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
        tables = self._tables(policy)
        rows = [row(name, [each]) for name, each in tables.items()]
        return [*rows, row("all", list(tables.values()))] if len(rows) > 1 else rows

    @property
    def by_the_rule(self) -> dict[str, str]:
        """The policies that are judged with their order and without, by the specs of both."""
        without = {name: re.sub("[:,]order=no", "", name, count=1) for name in self.names}
        return {whole: name for name, whole in without.items() if whole != name and whole in self.names}

    def ordered(self, policy: str) -> list[Ordered]:
        """A row per set, and one of all: a policy over what it does by the problem's rule."""
        mine, by_rule = self._tables(policy), self._tables(self.by_the_rule[policy])
        pairs = {name: (mine[name], by_rule[name]) for name in mine if name in by_rule}
        rows = [ordered(name, [pair]) for name, pair in pairs.items()]
        return [*rows, ordered("all", list(pairs.values()))] if len(rows) > 1 else rows

    def _tables(self, policy: str) -> dict[str, Table]:
        mine = {each.set: each for each in self.policies if each.who == policy}
        return {rival.set: table(rival, mine[rival.set]) for rival in self.rivals if rival.set in mine}


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
        return _ratio((getattr(each, over), getattr(each, under)) for each in tables)

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


def ordered(name: str, pairs: Sequence[tuple[Table, Table]]) -> Ordered:
    """What orders are worth on some sets, each of them a stratum of the intervals."""
    greedy, best = (
        _ratio((getattr(own, key), getattr(by_rule, key)) for own, by_rule in pairs) for key in ("greedy", "best")
    )
    return Ordered(name, sum(len(own.known) for own, _ in pairs), greedy, best)


def _ratio(pairs: Iterable[tuple[Floats, Floats]]) -> Estimate:
    """One over the other where both fit; each pair, (problems,) seconds, is a stratum of the interval."""
    there = [(over, under, np.isfinite(over) & np.isfinite(under)) for over, under in pairs]
    return estimate([over[both] / under[both] for over, under, both in there if both.any()])


def save(
    found: TransferFindings, folder: Path, name: str, *, command: str, split: str, searching: int
) -> Path:  # fmt: skip
    """Write a document into a folder."""
    return save_document(
        "transfer", f"{name}.md", folder, {},
        found=found, unseen=name == UNSEEN, command=command, split=split, searching=searching,
        samples=SAMPLES, from_policy=FROM_POLICY,
    )  # fmt: skip
