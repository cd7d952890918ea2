"""Transfer: policies on kinds of problems that they were, and were not, trained on.

    python -m evaluation.studies.transfer --policies default,runs/mine --split validation --out runs/studies/transfer

The folder then holds all results, and `validation.md`, `test.md`, or `unseen.md` of `--kinds unseen`. Choices are made
by `--split validation`; `--split test` is for reporting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation.commands.load_placer import load_placer
from evaluation.compare import compare
from evaluation.journal import records
from evaluation.provenance import policy_folder
from evaluation.record import Record
from evaluation.statistics import Estimate, estimate
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.document import save_document
from evaluation.studies.study import Study, names_in, report, run
from evaluation.studies.transfer.sets import SEEDS, ProblemsOf, sets
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from training.recipe import load_recipe
from training.run_folder import CONFIG

SEARCH, METIS = "annealing", "metis"
SAMPLES = 16  # placements that a policy may simulate, in addition to its greedy one, which is not simulated
FROM_POLICY = 1000  # simulations of the search that begins with a policy's placements
UNSEEN = "unseen"  # the document of kinds that a policy was not trained on, alone


class SetPlans(NamedTuple):
    """The plans of some placers for a set of problems."""

    set: str
    who: str  # "" for the rivals; the spec of a policy
    plans: Sequence[Record]


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

    rivals: Sequence[SetPlans]
    policies: Sequence[SetPlans]

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


def table(rivals: SetPlans, policy: SetPlans) -> Table:
    """The step times of the rivals of a set, and of a policy."""
    problems = list(dict.fromkeys(each.problem for each in rivals.plans))

    def least(plans: Sequence[Record]) -> Floats:
        seconds = dict.fromkeys(problems, np.inf)
        for each in plans:
            if each.fits:
                seconds[each.problem] = min(seconds[each.problem], each.step_seconds)
        return np.array(list(seconds.values()))

    cheap = least([each for each in rivals.plans if each.placer != SEARCH])
    metis = least([each for each in rivals.plans if each.placer == METIS])
    own = [least([each for each in policy.plans if each.budget == budget]) for budget in (1, SAMPLES, FROM_POLICY)]
    return Table(cheap, metis, np.minimum.reduce([least(rivals.plans), *own]), *own)


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


@dataclass(frozen=True, kw_only=True)
class Transfer(Study):
    """Place all problems of all sets by rivals and policies."""

    name = "transfer"
    policies: str = "default"
    """Specs of learned placers, or run folders, with commas between them."""
    split: str = "test"
    """`validation`, by which choices are made, or `test`."""
    kinds: str = ""
    """Some of the sets, by their names; `unseen` are, of each policy, the kinds that its recipe holds out."""
    count: int = 12
    """How many random problems of each kind."""
    searching: int = 20_000
    """Simulations of the search for the best known plans."""
    data: Path | None = None
    """The folder with the profiles; without it, they are left out."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        if self.split not in SEEDS:
            raise InputError(by_name.unknown("split", self.split, SEEDS))
        if min(self.count, self.searching) < 1:
            raise InputError("a study needs at least one problem of each kind, and one simulation of the search")
        self._judged()

    def do(self) -> None:
        """The rivals on every set, and then each policy."""
        judged = self._judged()
        for name, make in sets(self.split, self.count, self.data).items():
            of_set = [policy for policy, own in judged.items() if name in own]
            problems = make() if of_set else []
            for who in ["", *of_set] if problems else []:
                for allowed in self._allowed(who):
                    placers = [load_placer(spec) for spec in allowed]
                    done = compare(placers, problems, budget=allowed, workers=self.workers, journal=self._journal(name))
                    report(done.failures)

    def save(self, folder: Path) -> Path:
        """Write the document of the split, or of unseen kinds."""
        judged = self._judged()
        some = dict.fromkeys(name for own in judged.values() for name in own)
        rivals = [self._done(name, "") for name in some]
        found = [self._done(name, policy) for policy, own in judged.items() for name in own]
        findings = TransferFindings([each for each in rivals if each.plans], [each for each in found if each.plans])
        if not findings.rivals or not findings.policies:
            raise InputError(f"{self.folder}: no set of split {self.split!r} is done yet")
        command = self.command("policies", "split", "count", "searching", **self.changed("kinds"))
        unseen = self.kinds == UNSEEN
        return save_document(
            "transfer", f"{UNSEEN if unseen else self.split}.md", folder, {}, found=findings, unseen=unseen,
            command=command, split=self.split, searching=self.searching, samples=SAMPLES, from_policy=FROM_POLICY,
        )  # fmt: skip

    def _judged(self) -> dict[str, Mapping[str, ProblemsOf]]:
        """Of each policy, the sets that it places. Raises InputError for an unknown set."""
        known = sets(self.split, self.count, self.data)
        if self.kinds == UNSEEN:
            return {policy: held_out(policy, known) for policy in by_name.specs(self.policies)}
        chosen = names_in(self.kinds, "set of problems", known) or known
        return {policy: {name: known[name] for name in chosen} for policy in by_name.specs(self.policies)}

    def _allowed(self, who: str) -> list[dict[str, int]]:
        """What the rivals, or a policy, may simulate: greedily, by samples, and in a search that begins with it.

        A search begins with policies by their name or folder; one with knobs has none.
        """
        if not who:
            return [{**dict.fromkeys(CHEAP, 1), SEARCH: self.searching}]
        searches = [] if by_name.parse(who)[1] else [{f"{SEARCH}:policy={who}": FROM_POLICY}]
        name = load_placer(who).name
        return [{name: 1}, {name: SAMPLES}, *searches]

    def _journal(self, name: str) -> Path:
        return self.folder / f"{self.split}-{name}-{self.count}.jsonl"

    def _done(self, name: str, who: str) -> SetPlans:
        return SetPlans(name, who, [each for own in self._allowed(who) for each in records(self._journal(name), own)])


def held_out(policy: str, chosen: Mapping[str, ProblemsOf]) -> dict[str, ProblemsOf]:
    """Of some sets, those of the kinds that the recipe of a policy holds out. Raises InputError for one without."""
    folder = policy_folder(policy)
    kinds = load_recipe(str(folder / CONFIG)).problems.world.held_out if folder else ()
    if not kinds:
        raise InputError(f"the recipe of {policy!r} holds out no kinds of random graphs; none are unseen")
    return {name: make for name, make in chosen.items() if name in kinds}


if __name__ == "__main__":
    run(Transfer)
