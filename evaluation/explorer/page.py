"""The page: its frame, styles and charts are those of all pages (`evaluation.drawing`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from markupsafe import Markup

from evaluation.commands.arguments import PLACERS, ExportFormat
from evaluation.commands.load_placer import classical_placers
from evaluation.drawing.cell_charts import breakable
from evaluation.drawing.figures import page
from evaluation.explorer.step_answer import StepAnswers
from evaluation.explorer.tried_steps import TriedStep
from graphs.runtime import RUNTIMES

FOLDER = Path(__file__).resolve().parent / "templates"
BUDGET = 300  # simulations that a placer may take, unless the reader says another number


def explorer_page(answers: StepAnswers, step: TriedStep) -> str:
    """The page of a step as HTML, which asks the server it comes from, and nobody else, for others."""
    problem = answers.problem
    known = {"modules": answers.modules, "step": answers.of(step)}
    return page(
        FOLDER / "explorer.html.j2",
        name=problem.name, graph=breakable(problem.graph.name), cluster=breakable(problem.cluster.name),
        facts=f"{len(problem.graph):,} ops, {len(problem.cluster)} devices",
        placers=placers(), runtimes=list(RUNTIMES), formats=get_args(ExportFormat), budget=BUDGET,
        graph_chart=Markup(answers.graph(step)),
        style=Markup(_code("explorer.css")), script=Markup(_code("explorer.js")), known=_in_script(known),
    )  # fmt: skip


def placers() -> list[str]:
    """Specs of placers to choose from, those that `place` takes first; the reader may write others."""
    usual = [PLACERS["placement"], "planner", *classical_placers()]
    return list(dict.fromkeys(usual))


def _in_script(value: Any) -> Markup:
    """JSON to stand in a script element, whatever names hold."""
    text = msgspec.json.encode(value).decode()
    return Markup(text.replace("<", "\\u003c"))


@cache
def _code(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
