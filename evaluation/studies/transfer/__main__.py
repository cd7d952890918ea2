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
from evaluation.comparing.compare import compare
from evaluation.records.journal import records
from evaluation.records.provenance import policy_folder
from evaluation.records.record import Record
from evaluation.records.statistics import Estimate, estimate
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import names_in, report, run
from evaluation.studies.transfer.sets import SEEDS, ProblemsOf, sets
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.runtime import IDEAL
from training.recipe import load_recipe
from training.runs.run_folder import CONFIG

SEARCH, METIS = "annealing", "metis"
SAMPLES = 16  # placements that a policy may simulate, in addition to its greedy one, which is not simulated
FROM_POLICY = 1000  # simulations of the search that begins with a policy's placements
UNSEEN = "unseen"  # the document of kinds that a policy was not trained on, alone


class SetPlans(NamedTuple):
    """The plans of some placers for a set of problems."""

    set: str
    who: str  # "" for the rivals; the spec of a policy
    plans: Sequence[Record]


Table = Mapping[str, Floats]  # by what finds them, the step times on the problems of a set, (problems,) seconds
FITTING = ("known", "cheap", "greedy", "best", "searched")


@dataclass(frozen=True)
class TransferFindings:
    """What is done of a study, in one split."""

    rivals: Sequence[SetPlans]
    policies: Sequence[SetPlans]

    @property
    def names(self) -> list[str]:
        """The policies."""
        return list(dict.fromkeys(each.who for each in self.policies))

    def rows(self, policy: str) -> dict[str, list[Table]]:
        """A row per set, and one of all, in which each set counts by its problems."""
        return _and_all(self._tables(policy))

    @property
    def by_the_rule(self) -> dict[str, str]:
        """The policies that are judged with their order and without, by the specs of both."""
        without = {name: re.sub("[:,]order=no", "", name, count=1) for name in self.names}
        return {whole: name for name, whole in without.items() if whole != name and whole in self.names}

    def ordered(self, policy: str) -> dict[str, list[Table]]:
        """The same with what the policy does by the problem's rule, as "greedy by the rule" and "best by the rule"."""
        mine, by_rule = self._tables(policy), self._tables(self.by_the_rule[policy])
        return _and_all({
            name: {**mine[name], **{f"{key} by the rule": by_rule[name][key] for key in ("greedy", "best")}}
            for name in mine if name in by_rule
        })  # fmt: skip

    def ratio(self, tables: Iterable[Table], over: str, under: str) -> Estimate:
        """One over the other where both fit; each set is a stratum of the interval."""
        pairs = [(each[over], each[under], np.isfinite(each[over]) & np.isfinite(each[under])) for each in tables]
        return estimate([own[both] / other[both] for own, other, both in pairs if both.any()])

    def worst(self, tables: Sequence[Table]) -> float:
        """Of the greedy plans over the best cheap ones."""
        ratios = np.concatenate(
            [each["greedy"] / np.where(np.isfinite(each["cheap"]), each["cheap"], np.nan) for each in tables]
        )
        there = ratios[np.isfinite(ratios)]
        return float(there.max()) if len(there) else float("nan")

    def fitting(self, tables: Iterable[Table]) -> list[int]:
        """Problems that some plan fits, and of these: cheap plans, greedy ones, best of samples, searched ones."""
        return [sum(int(np.isfinite(each[key]).sum()) for each in tables) for key in FITTING]

    def _tables(self, policy: str) -> dict[str, Table]:
        mine = {each.set: each for each in self.policies if each.who == policy}
        return {rival.set: table(rival, mine[rival.set]) for rival in self.rivals if rival.set in mine}


def _and_all(tables: Mapping[str, Table]) -> dict[str, list[Table]]:
    rows = {name: [each] for name, each in tables.items()}
    return rows | {"all": list(tables.values())} if len(rows) > 1 else rows


def table(rivals: SetPlans, policy: SetPlans) -> Table:
    """The step times of the rivals of a set, and of a policy; infinite where nothing fits."""
    problems = list(dict.fromkeys(each.problem for each in rivals.plans))

    def least(plans: Sequence[Record]) -> Floats:
        seconds = dict.fromkeys(problems, np.inf)
        for each in plans:
            if each.fits:
                seconds[each.problem] = min(seconds[each.problem], each.step_seconds)
        return np.array(list(seconds.values()))

    budgets = {"greedy": 1, "best": SAMPLES, "searched": FROM_POLICY}
    own = {key: least([each for each in policy.plans if each.budget == budget]) for key, budget in budgets.items()}
    return {
        "cheap": least([each for each in rivals.plans if each.placer != SEARCH]),
        "metis": least([each for each in rivals.plans if each.placer == METIS]),
        "known": np.minimum.reduce([least(rivals.plans), *own.values()]),
        **own,
    }


@dataclass(frozen=True, kw_only=True)
class Transfer(Simulated):
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

    runtime: str = IDEAL.name
    """How plans are run, as `placelab place --runtime` takes it; the released policy was trained for ideal."""
    cost_model: str = "roofline"
    """What times ops; measured times of profiles count whatever it is."""

    def check(self) -> None:
        """Raise InputError for options that make no sense."""
        super().check()
        if self.split not in SEEDS:
            raise InputError(by_name.unknown("split", self.split, SEEDS))
        if min(self.count, self.searching) < 1:
            raise InputError("a study needs at least one problem of each kind, and one simulation of the search")
        self._judged()

    def do(self) -> None:
        """The rivals on every set, and then each policy."""
        judged = self._judged()
        for name, make in sets(self.split, self.count, self.data, **self.timing).items():
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
        return self.written(
            folder, (plan for each in findings.rivals for plan in each.plans), name=UNSEEN if unseen else self.split,
            found=findings, unseen=unseen, command=command,
            split=self.split, searching=self.searching, samples=SAMPLES, from_policy=FROM_POLICY,
        )  # fmt: skip

    def _judged(self) -> dict[str, Mapping[str, ProblemsOf]]:
        """Of each policy, the sets that it places. Raises InputError for an unknown set."""
        known = sets(self.split, self.count, self.data, **self.timing)
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
        return self.folder / f"{self.split}-{name}-{self.count}{self.suffix}.jsonl"

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
