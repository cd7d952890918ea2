"""The journal of a comparison: records and plans, a line each as they come, so that one that was stopped resumes.

A record is found again by its key, which changes with all that it depends on (`evaluation.records.identity`): records
of other problems, costs, policies, budgets or rules may be in the same file, and are left alone.

    for kept in plans(Path("journal.jsonl")):
        print(kept.record.problem, kept.record.placer, kept.plan(problem).placement)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from envs.files.plan_file import save_plan
from envs.files.plan_sections import ScheduleSection
from envs.plans.mesh import Mesh, Split
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.simulation.simulator import RULES, Outcome
from evaluation.records.provenance import Provenance
from evaluation.records.record import Record
from graphs.foundation.by_name import Extension
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import check_version, read_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import check_writable, locked
from graphs.problem import Problem
from graphs.runtime import order_of

VERSION = 2
Number = TypeVar("Number", int, float)
LONGEST = 80  # characters of a problem or placer in the name of a file


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    schema: Literal["placelab.comparison"]
    version: int


HEADER = msgspec.json.encode(Header(schema="placelab.comparison", version=VERSION)) + b"\n"


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A record, and its plan: by units of its problem's graph and not by ops, so that it stays small."""

    record: Record
    rules: int = RULES  # of the simulator that timed it
    graph: str  # fingerprint
    cluster: str  # fingerprint
    devices: tuple[int | tuple[int, ...], ...]  # (units,) indices of the cluster's devices, of replicas several
    order: str | tuple[float, ...] = (
        ""  # the plan's own: numbers, (units,), or (ops,) if those of a unit differ; or a rule
    )
    stages: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET  # likewise, where the schedule says them
    schedule: ScheduleSection | msgspec.UnsetType = msgspec.UNSET  # where it has more than stages
    mesh: Mesh | msgspec.UnsetType = msgspec.UNSET
    splits: tuple[Split, ...] | msgspec.UnsetType = msgspec.UNSET  # the different ones of its ops
    split: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET  # (ops,) which of them each op has
    made: Provenance | msgspec.UnsetType = msgspec.UNSET  # in a file only where it is another than of the line before

    @classmethod
    def of(cls, record: Record, problem: Problem, plan: Plan) -> JournalEntry:
        """The record of a plan for a problem, and the plan."""
        by_unit = [plan.devices[op] for op in problem.units.first_op.tolist()]
        stages = plan.schedule.stages
        splits = {each: number for number, each in enumerate(dict.fromkeys(plan.split))}
        return cls(
            record=record,
            graph=problem.graph.fingerprint,
            cluster=problem.cluster.fingerprint,
            devices=tuple(each[0] if len(each) == 1 else each for each in by_unit),
            order=_by_unit(plan.order, problem) if isinstance(plan.order, tuple) else str(plan.order or ""),
            stages=_by_unit(stages, problem) if stages else msgspec.UNSET,
            schedule=ScheduleSection.of(plan.schedule) or msgspec.UNSET,
            mesh=plan.mesh or msgspec.UNSET,
            splits=tuple(splits) or msgspec.UNSET,
            split=tuple(splits[each] for each in plan.split) or msgspec.UNSET,
        )

    def plan(self, problem: Problem) -> Plan:
        """The plan, for its problem. Raises InputError for a problem with another graph or cluster."""
        given = (problem.graph.fingerprint, problem.cluster.fingerprint)
        what = f"the plan of {self.record.placer!r} for {self.record.problem!r}"
        if given != (self.graph, self.cluster):
            raise InputError(
                f"{what} (graph {self.graph}, cluster {self.cluster}) is none for {problem.name!r} (graph {given[0]}, "
                f"cluster {given[1]})"
            )
        unit_of = problem.graph.units.tolist()
        if len(self.devices) != problem.graph.num_units:
            raise InputError(f"{what} is damaged: it is for other devices")
        devices = [(each,) if isinstance(each, int) else each for each in self.devices]
        schedule = ScheduleSection() if self.schedule is msgspec.UNSET else self.schedule
        with located(what):
            for rule in (self.order, schedule.order):
                if isinstance(rule, str):
                    named_in_file(rule)
        with located(f"{what} is damaged"):
            order: Extension[Any] | tuple[float, ...] | None = None
            if isinstance(self.order, tuple):
                order = _by_op(self.order, problem, "its order is")
            elif self.order and self.order != problem.runtime.order.name:  # as earlier files write the problem's rule
                order = order_of(self.order)
            stages = () if self.stages is msgspec.UNSET else _by_op(self.stages, problem, "its stages are")
            mesh = () if self.mesh is msgspec.UNSET else self.mesh
            of_ops = tuple(devices[unit] for unit in unit_of)
            plan = Plan(of_ops, order, schedule.schedule(stages), self._split(), mesh)
            plan.check(problem)
        return plan

    def _split(self) -> tuple[Split, ...]:
        """(ops,) by what each op is divided, if the plan says it. Raises InputError for what there is not."""
        if self.splits is msgspec.UNSET or self.split is msgspec.UNSET:
            return ()
        if not all(0 <= number < len(self.splits) for number in self.split):
            raise InputError(f"its split names one of {len(self.splits)} ways that is not there")
        return tuple(self.splits[number] for number in self.split)

    def save(self, problem: Problem, folder: Path) -> Path:
        """Write the plan for its problem as a plan file, and say which. Raises InputError as `plan`."""
        record = self.record
        outcome = Outcome(record.step_seconds, np.array(record.peak_bytes), record.fits)
        names = (re.sub(r"[^A-Za-z0-9_=@+,-]+", "_", name) for name in (record.problem, record.placer))
        problem_name, placer_name = (name[:LONGEST].strip("_") or "_" for name in names)
        path = folder / f"{problem_name}.{placer_name}.seed{record.seed}.{record.key[:8]}.plan.json"
        result = PlacerResult(self.plan(problem), record.placer, record.seed, record.simulations)
        save_plan(result, problem, outcome, path)
        return path


def _by_unit(values: tuple[Number, ...], problem: Problem) -> tuple[Number, ...]:
    """(units,) of (ops,) values if the ops of each unit have the same, else the values."""
    of_units = tuple(values[op] for op in problem.units.first_op.tolist())
    return of_units if _by_op(of_units, problem, "") == values else values


def _by_op(values: tuple[Number, ...], problem: Problem, what: str) -> tuple[Number, ...]:
    """(ops,) of what is given by unit or by op. Raises InputError for what is neither."""
    if len(values) == problem.graph.num_units:
        return tuple(values[unit] for unit in problem.graph.units.tolist())
    if len(values) != len(problem.graph):
        raise InputError(f"{what} for other ops")
    return values


def plans(path: Path) -> list[JournalEntry]:
    """The plans in a journal with their records, in the order in which they came; of equal keys the last.

    A journal whose name ends in ".gz" is decompressed.

    A last line that was cut off by a crash is left out, and so is what other rules of the simulator timed. Raises
    InputError, naming the file, if it does not exist, is no journal, or one of another version.
    """
    try:
        content = read_file(path, "name a journal") if path.suffix == ".gz" else path.read_bytes()
    except OSError as error:
        raise InputError(f"journal {path} cannot be read: {error.strerror}") from error
    found = {kept.record.key: kept for kept in _entries(content, path)[0] if kept.rules == RULES}
    return list(found.values())


def records(path: Path, budgets: Mapping[str, int] | None = None) -> list[Record]:
    """The records in a journal, the last of each problem, placer and seed; none if there is no such file.

    With `budgets`, only those of these placers that might simulate as many placements. Raises InputError as `plans`.
    """
    every = [kept.record for kept in plans(path)] if path.is_file() else []
    return list({r.case: r for r in every if budgets is None or budgets.get(r.placer) == r.budget}.values())


class Journal:
    """What is kept so far, and the file that more is added to, if any."""

    def __init__(
        self, entries: Sequence[JournalEntry] = (), file: FileIO | None = None, path: Path | None = None
    ) -> None:
        self.entries = {entry.record.key: entry for entry in entries}
        self.path = path
        self._file = file
        self._said: Provenance | msgspec.UnsetType = entries[-1].made if entries else msgspec.UNSET

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Journal]:
        """Begin a file, or resume one; no other process may add to it meanwhile.

        What a crash cut off at its end is dropped. Raises InputError, naming the file, if it cannot be written, is no
        journal or one of another version, or another process is adding to it.
        """
        check_writable(path)
        with locked(path):
            new = not path.exists()
            try:
                file = path.open("ab+", buffering=0)
            except OSError as error:
                raise InputError(f"cannot write {path}: {error.strerror}") from error
            with file:
                file.seek(0)
                kept, whole = _entries(file.read(), path)
                journal = cls([entry for entry in kept if entry.rules == RULES], file, path)
                journal._said = kept[-1].made if kept else msgspec.UNSET
                file.truncate(whole)
                try:
                    if whole == 0:
                        journal._append(HEADER)
                except InputError:
                    if new:
                        path.unlink()
                    raise
                yield journal

    def add(self, entry: JournalEntry) -> None:
        """Keep one more. Raises InputError if the file cannot be written, as on a full disk; it stays whole."""
        self.entries[entry.record.key] = entry
        if self._file is not None:
            known = entry.made == self._said
            self._append(msgspec.json.encode(replace(entry, made=msgspec.UNSET) if known else entry) + b"\n")
            self._said = entry.made

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        before = os.fstat(self._file.fileno()).st_size
        try:
            while line:
                line = line[self._file.write(line) or 0 :]
        except OSError as error:
            self._file.truncate(before)
            raise InputError(f"cannot write {self.path}: {error.strerror}; what it holds already is kept") from error


def _entries(content: bytes, path: Path) -> tuple[list[JournalEntry], int]:
    """What a journal holds, and how many of its bytes are whole lines."""
    whole = content[: content.rfind(b"\n") + 1]
    if not whole and HEADER.startswith(content):
        return [], 0  # a crash, or a full disk, at the very beginning
    try:
        first, *lines = whole.split(b"\n")[:-1] or [content]
        header = msgspec.json.decode(first, type=Header)
        if header.version == 1:
            raise InputError(
                f"{path} is a journal of an earlier placelab, whose records do not say which graph, costs and budget "
                "they are of; name another file"
            )
        with located(path):
            check_version(header.version, [VERSION])
        return _with_provenance(msgspec.json.decode(line, type=JournalEntry) for line in lines), len(whole)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, no record, no text, or brackets within brackets
        raise InputError(f"{path} is no journal of a comparison: {error}; name another file") from error


def _with_provenance(entries: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Entries in the order of their file, each with what the last one before it says of what made it."""
    said: Provenance | msgspec.UnsetType = msgspec.UNSET
    found = []
    for entry in entries:
        said = said if entry.made is msgspec.UNSET else entry.made
        found.append(replace(entry, made=said))
    return found
