"""`evaluation.json`: the records of an evaluation, with notes for its report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from evaluation.record import Record
from graphs.foundation.documents import read_document
from graphs.foundation.files import write_whole

VERSION = 1


class Notes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the records alone do not say."""

    learned: str = ""  # the placer that the evaluation is about
    before: str = ""  # the same before fine-tuning
    remarks: tuple[str, ...] = ()  # sentences for the report


class EvaluationFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `evaluation.json` holds."""

    schema: Literal["placelab.evaluation"] = "placelab.evaluation"
    version: int = VERSION
    notes: Notes = Notes()
    records: tuple[Record, ...]


def save_evaluation(content: EvaluationFile, path: Path) -> None:
    """Write records and notes as JSON."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def load_evaluation(path: Path) -> EvaluationFile:
    """Read what `save_evaluation` wrote. Raises InputError, naming the file and the field, for anything else."""
    remedy = f"`placelab evaluate {path.parent}` writes it"
    return read_document(path, EvaluationFile, version=VERSION, remedy=remedy)
