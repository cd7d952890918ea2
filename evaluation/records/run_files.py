"""JSON files of a run: `evaluation.json`, an evaluation's records, and `*.problem.json`, a problem by its specs."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from envs.plans.conditions import Conditions
from evaluation.records.provenance import Provenance
from evaluation.records.record import Record
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.code_in_files import named_in_file
from graphs.foundation.documents import read_document
from graphs.foundation.errors import located
from graphs.op_groups.grouping import Grouping
from graphs.problem import Problem
from graphs.runtime import IDEAL, LONGEST_PATH, runtime_of


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the records alone do not say."""

    learned: str = ""  # the placer that the evaluation is about
    before: str = ""  # the same before fine-tuning
    remarks: tuple[str, ...] = ()  # sentences for the report


class EvaluationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `evaluation.json` holds."""

    schema: Literal["placelab.evaluation"] = "placelab.evaluation"
    version: int = 1
    notes: Notes = Notes()
    made: Provenance | None = None  # with what; earlier files do not say it
    records: tuple[Record, ...]


class ProblemFile(Conditions, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What `*.problem.json` holds: enough to build the problem again, next to a plan for it."""

    graph: str  # a family spec, a graph file, or file.py:callable
    groups: Grouping  # op groups, one for each module, or none for single ops
    cluster: str  # a preset or a cluster file
    order: str = LONGEST_PATH.name  # of older files, which name no runtime


def load_evaluation(path: Path) -> EvaluationFile:
    """Read an evaluation. Raises InputError, naming the file and the field, for anything else."""
    remedy = f"`placelab evaluate {path.parent}` writes it"
    return read_document(path, EvaluationFile, version=1, remedy=remedy)


def load_problem(path: Path) -> Problem:
    """Build the problem.

    Raises InputError, naming file and field, if it is damaged, or names what does not exist, or code (`named_in_file`).
    """
    spec = read_document(path, ProblemFile, version=1, remedy="`placelab finetune` writes one")
    with located(path):
        for named in (spec.graph, spec.cluster, spec.order):
            named_in_file(named)
        spec = replace(spec, runtime=runtime_of(spec.runtime or IDEAL.name, order=spec.order).name)
        spec.check_no_code()
    source = graph_source(spec.graph).in_precision(spec.precision) if spec.precision else spec.graph
    return spec.problem(load_graph(source, groups=spec.groups), load_cluster(spec.cluster))
