"""Requests: what the page asks for, by path.

    GET  /                                  the page
    GET  /steps/3                           what it shows of a step
    GET  /steps/3/chart                     its timeline, as HTML
    GET  /steps/3/op?name=layers.0/mm       what is said of an op
    GET  /steps/3/plan                      the plan file
    GET  /steps/3/export?to=vllm            {name, content in base64, sentences}
    POST /steps/3/move                      {"module": "layers.0", "device": "gpu:1"} makes a new step, as these do:
    POST /steps/3/place                     {"placer": "metis", "budget": 100, "seed": 0}
    POST /steps/3/runtime                   {"runtime": "fifo"}

Each has the server's token in its query too, token=..., which the server checks. What makes a new step is done one at
a time; the others are answered meanwhile.
"""

from __future__ import annotations

import base64
import io
import re
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import msgspec

from evaluation.commands.arguments import ExportFormat
from evaluation.explorer.answer import Answer
from evaluation.explorer.op_waits import op_answer
from evaluation.explorer.page import explorer_page
from evaluation.explorer.step_answer import StepAnswers
from evaluation.explorer.tried_steps import TriedStep, TriedSteps
from evaluation.exports.exported_plan import ExportedPlan
from graphs.foundation.by_name import unknown
from graphs.foundation.errors import InputError

_STEP = re.compile(r"/steps/(?P<number>[0-9]{1,9})(?:/(?P<what>[a-z]+))?")
_ENDINGS = {"deepspeed": ".json", "device_map": ".json", "torchtitan": ".py", "schedule_csv": ".csv"}


class MoveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A module, or an op, and the device that it is to run on."""

    module: str
    device: str


class PlaceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A placer's spec, and what it may take."""

    placer: str
    budget: int = 1000
    seed: int = 0


class RuntimeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How plans are run."""

    runtime: str


class Requests:
    """Answers what is asked about the steps of one problem."""

    def __init__(self, tried: TriedSteps) -> None:
        self.tried = tried
        self.answers = StepAnswers(tried, tried.last.placed.problem)
        self._changing = threading.Lock()
        self._page = (0, b"")  # number of a step, and its page

    def get(self, target: str) -> Answer:
        """What is asked for. Raises InputError for what there is not."""
        path, asked = urlsplit(target).path, parse_qs(urlsplit(target).query, keep_blank_values=True)
        if path == "/":
            return Answer(self.page(), "text/html; charset=utf-8")
        step, what = self._step(path)
        if what is None:
            return Answer.of(self.answers.of(step))
        if what == "chart":
            return Answer(self.answers.chart(step).encode(), "text/html; charset=utf-8")
        if what == "op":
            return Answer.of(op_answer(step.placed, _one(asked, "name")))
        if what == "plan":
            return Answer.file(self.tried.file_name(step), _plan_file(step), "application/json")
        if what == "export":
            return self._exported(step, _one(asked, "to"))
        raise InputError(f"there is no page {path!r}")

    def prepare(self) -> None:
        """Make what is asked for first, so that the first look need not wait for it."""
        self.page()
        self.answers.chart(self.tried.last)

    def page(self) -> bytes:
        """The page of the newest step, made once for each."""
        step = self.tried.last
        if self._page[0] != step.number:
            self._page = (step.number, explorer_page(self.answers, step).encode())
        return self._page[1]

    def post(self, target: str, body: bytes) -> Answer:
        """A new step, or a refusal while another is being made. Raises InputError for what cannot be."""
        step, what = self._step(urlsplit(target).path)
        kinds = {"move": MoveRequest, "place": PlaceRequest, "runtime": RuntimeRequest}
        if what not in kinds:
            raise InputError(unknown("change", str(what), kinds))
        wanted = _read(body, kinds[what])
        if not self._changing.acquire(blocking=False):
            said = "another plan is being made; ask again when it is there"
            return Answer.refusal(said, HTTPStatus.CONFLICT)
        try:
            return Answer.of(self.answers.of(self._changed(step.number, wanted)))
        finally:
            self._changing.release()

    def _changed(self, number: int, wanted: object) -> TriedStep:
        match wanted:
            case MoveRequest(module=module, device=device):
                return self.tried.move(number, module, device)
            case PlaceRequest(placer=placer, budget=budget, seed=seed):
                return self.tried.place(number, placer, budget=budget, seed=seed)
            case RuntimeRequest(runtime=runtime):
                return self.tried.run_as(number, runtime)
        raise AssertionError(wanted)

    def _step(self, path: str) -> tuple[TriedStep, str | None]:
        found = _STEP.fullmatch(path)
        if found is None:
            raise InputError(f"there is no page {path!r}")
        return self.tried[int(found["number"])], found["what"]

    def _exported(self, step: TriedStep, to: str) -> Answer:
        """A plan in the words of another program; several files are one archive."""
        formats = get_args(ExportFormat)
        if to not in formats:
            raise InputError(unknown("format", to, formats))
        written = ExportedPlan.of(step.placed, self.tried.source, to)
        name, content = f"step{step.number}.{to}{_ENDINGS.get(to, '.txt')}", (written.text + "\n").encode()
        if list(written.files) != [""]:
            name, content = f"step{step.number}.{to}.zip", _archive(f"step{step.number}", written.files)
        said = [*written.notes, written.cost]
        return Answer.of({"name": name, "content": base64.b64encode(content).decode(), "said": said})


def _one(asked: Mapping[str, list[str]], name: str) -> str:
    if len(asked.get(name, ())) != 1:
        raise InputError(f"say {name} once, as in ?{name}=...")
    return asked[name][0]


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(kind.__struct_fields__)
        raise InputError(f"expected a JSON object with {fields}: {error}") from None


def _plan_file(step: TriedStep) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.plan.json"
        step.placed.save(path)
        return path.read_bytes()


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """A zip file with each of the files, which are called by their endings."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for ending, content in files.items():
            archive.writestr(f"{name}{ending}", content)
    return buffer.getvalue()
