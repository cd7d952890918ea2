"""Names of ops, models, files, devices and placers are text wherever they are shown: no markup, no control, no code."""

import io
import json
import logging
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

import placelab
from graphs.foundation.progress import progress_bar
from placelab.verbs import VERBS
from tests.front_door.test_command_line import call
from tests.fuzz.uses import CLUSTER, GRAPH
from training.recipe import load_recipe
from training.runs.run_folder import RunFolder

BRACKETS = "up[/down][red]:warning:[link=x]"
CONTROLS = "a\x1b[31m\x1b]0;title\x07\r\x9b2J\u202eb"
ENCODINGS = ("ascii", *(pytest.param(each, marks=pytest.mark.slow) for each in ("cp932", "latin-1", "cp1252")))
HTML = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&lt;${x}`$y$"


def files(folder: Path, name: str) -> tuple[str, str, str]:
    """A graph and a cluster whose names are these, and a plan."""
    text = json.dumps(GRAPH).replace("layers.0", json.dumps(name)[1:-1])
    named = json.loads(text) | {"name": f"model {name}"}
    for op in named["nodes"]:
        op["kind"] = f"{op['kind']} {name}"
    (folder / "x.graph.json").write_text(json.dumps(named))
    (folder / "x.cluster.toml").write_text(
        CLUSTER.partition("[[levels]]")[0].replace('"gpu:0"', json.dumps(f"gpu {name}"))
    )
    paths = [str(folder / each) for each in ("x.graph.json", "x.cluster.toml", "x.plan.json")]
    placelab.place(paths[0], cluster=paths[1], placer="gpipe:micro_batches=2", out=paths[2], groups=None)
    return paths[0], paths[1], paths[2]


def commands(folder: Path, name: str) -> list[list[str]]:
    """What shows names."""
    graph, cluster, plan = files(folder, name)
    return [
        ["show", graph],
        ["capture", "layered", "--out", str(folder / "y.graph.json")],
        ["place", graph, "--cluster", cluster, "--placer", "heft"],
        ["fits", graph, "--cluster", cluster],
        ["simulate", graph, plan, "--cluster", cluster],
        ["compare", graph, "--clusters", cluster, "--placers", "heft,single_device"],
    ]


def test_names_with_square_brackets_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for command in commands(tmp_path, BRACKETS):
        code, out, _ = call(capsys, *command)
        assert code == 0, command
        assert BRACKETS in out or command[0] == "capture", command
    graph, cluster, plan = (str(tmp_path / each) for each in ("x.graph.json", "x.cluster.toml", "x.plan.json"))
    simulated = placelab.simulate(graph, plan, cluster=cluster)
    anybodys = Console(width=400, file=io.StringIO())  # a notebook's, or a program's, which reads markup
    anybodys.print(simulated)
    assert f"gpu {BRACKETS}" in anybodys.file.getvalue()  # type: ignore[attr-defined]
    assert BRACKETS in str(placelab.show(graph))
    code, _, err = call(capsys, "place", graph, "--placer", f"a{BRACKETS}")
    assert (code, BRACKETS in err) == (2, True)


@pytest.mark.filterwarnings("ignore")
def test_a_terminal_obeys_nothing_that_a_name_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    obeyed = re.compile("[\x1b\x07\r\x9b\u202e]")
    for command in commands(tmp_path, CONTROLS):
        code, out, err = call(capsys, *command)
        assert code == 0, command
        assert not obeyed.search(out + err), command
    graph, cluster, plan = (str(tmp_path / each) for each in ("x.graph.json", "x.cluster.toml", "x.plan.json"))
    assert not obeyed.search(f"{placelab.simulate(graph, plan, cluster=cluster)}{placelab.show(graph)}")
    code, _, err = call(capsys, "simulate", f"{graph}{CONTROLS}", plan)
    assert (code, obeyed.search(err)) == (2, None)
    with progress_bar(f"what {CONTROLS}", total=2, unit="op") as bar:
        bar.set_postfix_str(CONTROLS)
        assert not obeyed.search(str(bar))
    logging.getLogger("placelab").warning("%s", CONTROLS)
    assert not obeyed.search(capsys.readouterr().err)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_that_is_not_utf_8_is_shown_what_it_can(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaluation.commands import command_line

    for command in (*commands(tmp_path, "ü\u4e2d"), ["--help"], ["place", "--help"], ["list", "placers"]):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        with pytest.raises(SystemExit) as stop:
            command_line.run(VERBS, "about", command)
        sys.stdout.flush()
        assert stop.value.code == 0, command
        assert written.getvalue().decode(encoding)


class _Tags(HTMLParser):
    """The elements of a page, and what is in its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts, self.images, self.handlers = list[str](), 0, list[str]()
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.images += tag == "img"
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts.append(data.strip())


def check(page: Path) -> None:
    tags = _Tags()
    tags.feed(page.read_text())
    assert not [script for script in tags.scripts if script.startswith("alert")], page.name
    assert (tags.images, tags.handlers) == (0, []), page.name


def test_names_are_no_code_in_pages(tmp_path: Path) -> None:
    graph, cluster, plan = files(tmp_path, HTML)
    gantt, both, drawing, coloured = (tmp_path / f"{name}.html" for name in ("gantt", "both", "drawing", "coloured"))
    other = tmp_path / f"{HTML.replace('/', '')}.plan.json"
    other.write_bytes(Path(plan).read_bytes())
    placelab.simulate(graph, plan, cluster=cluster, gantt=gantt)
    placelab.simulate(graph, plan, cluster=cluster, gantt=both, against=other)
    placelab.show(graph, draw=drawing)
    placelab.show(graph, draw=coloured, plan=plan, cluster=cluster)
    for page in (gantt, both, drawing, coloured):
        check(page)
    for name in ("x.svg", "x.png"):  # drawn by matplotlib, which reads mathematics between dollars
        placelab.simulate(graph, plan, cluster=cluster, gantt=tmp_path / name)
        placelab.show(graph, draw=tmp_path / name)


def test_names_are_no_code_in_reports(tmp_path: Path) -> None:
    run = tmp_path / HTML.replace("/", "")
    run.mkdir()
    RunFolder(run).start(load_recipe("gdp", ["problems.graphs=['a.graph.json']"]), HTML)
    (run / "meta.json").write_text(json.dumps({"placer": HTML, "seed": 0, "versions": {HTML: HTML}}))
    check(placelab.report(run))
