"""The cache of captures: what it returns is what a capture makes now, or nothing."""

import ast
import dataclasses
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphs.capture.examples
from graphs.capture import cache, sources
from graphs.capture.cache import captured, kept, without_cache
from graphs.capture.examples import Example
from graphs.files.graph_source import graph_source
from graphs.files.load import load_graph
from graphs.foundation.cache_folder import VARIABLE
from graphs.foundation.errors import InputError
from graphs.notation.signatures import Signatures
from graphs.op_graph import OpGraph
from graphs.op_graph.batch_law import COSTS, BatchLaw
from graphs.op_graph.held_tensors import HeldTensors
from tests.drawn import examples
from tests.oracle.strategies import full_graphs
from tests.oracle.toys import random_graph

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "transformer:layers=1,width=8,heads=2,sequence=4,batch=1,vocabulary=8",
    "rnnlm:layers=1,steps=2,hidden=4,batch=2,vocabulary=8",
    "vgg:batch=1,image=32",
)
SPEC = SMALL[0]
MODEL = """
import json, os
from pathlib import Path
import torch
from sizes import WIDTH

def model():
    layers = json.loads((Path(__file__).parent / "config.json").read_text())["layers"]
    layers += int(os.environ.get("MORE_LAYERS", "0"))
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)]), torch.zeros(2, WIDTH)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's model, whose files are older than this process as far as the cache knows."""
    monkeypatch.setattr(sources, "_BEGAN", math.inf)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    (folder / "sizes.py").write_text("WIDTH = 4\n")
    (folder / "config.json").write_text('{"layers": 2}')
    return f"{folder / 'model.py'}:model"


def same(one: OpGraph, other: OpGraph) -> bool:
    """Whether two graphs are equal in every field, bit for bit."""
    return same_fields(one, other) and one.fingerprint == other.fingerprint


def same_fields(
    one: OpGraph | BatchLaw | HeldTensors | Signatures, other: OpGraph | BatchLaw | HeldTensors | Signatures
) -> bool:
    for field in dataclasses.fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, BatchLaw | HeldTensors | Signatures):
            if theirs is None or not same_fields(ours, theirs):
                return False
            continue
        pairs = list(zip(ours.values(), theirs.values(), strict=True)) if isinstance(ours, dict) else [(ours, theirs)]
        for a, b in pairs:
            if isinstance(a, np.ndarray):
                assert (a.dtype, a.shape, a.flags.writeable) == (b.dtype, b.shape, b.flags.writeable)
            if a.tobytes() != b.tobytes() if isinstance(a, np.ndarray) else a != b:
                return False
        if isinstance(ours, dict) and list(ours) != list(theirs):
            return False
    return True


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was captured, in order."""
    done: list[str] = []
    make = graphs.capture.examples.example_of

    def counted(what: str, samples: int = 0) -> Example:
        done.append(what)
        return make(what, samples)

    monkeypatch.setattr(graphs.capture.examples, "example_of", counted)
    return done


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("spec", SMALL)
def test_the_second_time_nothing_is_captured_and_the_graph_is_the_same(
    spec: str, training: bool, captures: list[str]
) -> None:
    first = load_graph(spec, training=training)
    second = load_graph(spec, training=training)
    assert captures == [spec]
    assert same(first, second)
    assert kept(spec, training=not training) is None


@given(graph=st.integers(1, 8).flatmap(full_graphs))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50, 9))
def test_every_field_of_a_graph_is_kept(graph: OpGraph) -> None:
    captured(SPEC, lambda: graph, training=True)
    found = kept(SPEC, training=True)
    assert found is not None
    assert same(found, graph)


def test_optional_fields_are_kept() -> None:
    graph = random_graph(6, 1)
    seconds = np.array([1.0, np.nan, 2.0, 0.0, 5e-324, 1e-3])
    law = BatchLaw(8, *(getattr(graph, key) / 2 for key in COSTS))
    graph = dataclasses.replace(
        graph, batch_law=law, measured_on={"gpu": seconds, "cpu:0": seconds[::-1]},
        devices=((), ("gpu",), (), ("a", "b"), (), ()),
        transfer_bytes=np.arange(6.0), unsent_bytes=np.arange(6.0) / 3, working_bytes=np.arange(6.0) / 7,
        edge_bytes=np.where(np.arange(len(graph.edges)) % 2, np.nan, 7.0),
    )  # fmt: skip
    captured(SPEC, lambda: graph, training=True)
    found = kept(SPEC, training=True)
    assert found is not None
    assert same(found, graph)


def test_a_law_takes_one_capture_more_when_it_is_asked_for(captures: list[str], model: str) -> None:
    for spec in (SMALL[1], model):
        captures.clear()
        graph = load_graph(spec)
        assert captures == [spec]
        first, second = (load_graph(spec, with_law=True) for _ in range(2))
        assert captures == [spec, spec]
        assert same(first, second)
        assert first.batch_law is not None
        assert first.batch_law.knows_ops
        assert same(dataclasses.replace(first, batch_law=graph.batch_law), graph)
        assert same(load_graph(spec), graph)


def test_a_kept_graph_is_checked_and_loaded_without_torch() -> None:
    load_graph(SPEC)
    load = f"from graphs.files.graph_source import graph_source; graph_source({SPEC!r}).graph()"
    code = f"import sys; {load}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_wrong_knob_is_refused_whatever_is_kept() -> None:
    load_graph(SPEC)
    with pytest.raises(InputError, match="unknown knob"):
        graph_source(f"{SPEC},lairs=2")


def test_without_the_cache_models_are_captured_again_and_kept(captures: list[str]) -> None:
    load_graph(SPEC)
    with without_cache():
        load_graph(SPEC)
    load_graph(SPEC)
    assert captures == [SPEC, SPEC]


def test_a_users_model_is_kept_and_a_line_says_so(
    model: str, captures: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = load_graph(model)
    assert capsys.readouterr().err == ""
    second = load_graph(model)
    assert same(first, second)
    assert captures == [model]
    assert capsys.readouterr().err == "model:model: from the cache of captures; --no-cache captures it again\n"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.py", MODEL.replace("range(layers)", "range(layers + 1)")),
        ("sizes.py", "WIDTH = 5\n"),
        ("config.json", '{"layers": 3}'),
        ("json.py", "loads = lambda text: {'layers': 1}\n"),  # found before the library's own
    ],
)
def test_what_a_users_code_reads_and_imports_decides(model: str, file: str, content: str) -> None:
    load_graph(model)
    assert kept(model, training=True) is not None
    Path(model).with_name(file).write_text(content)
    assert kept(model, training=True) is None


def test_a_file_that_was_missing_decides(model: str) -> None:
    file = Path(model.rpartition(":")[0])
    opened = "try:\n    more = open('MISSING').read()\nexcept OSError:\n    more = ''\n".replace(
        "MISSING", str(file.with_name("more.txt"))
    )
    file.write_text(opened + MODEL)
    load_graph(model)
    assert kept(model, training=True) is not None
    file.with_name("more.txt").write_text("")
    assert kept(model, training=True) is None


def test_the_listing_of_a_folder_decides(model: str) -> None:
    file = Path(model.rpartition(":")[0])
    file.write_text(f"import os\nlayers = os.listdir({str(file.parent)!r})\n{MODEL}")
    load_graph(model)
    assert kept(model, training=True) is not None
    file.with_name("other.json").write_text("{}")
    assert kept(model, training=True) is None


def test_a_variable_that_the_source_names_decides(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load_graph(model)
    monkeypatch.setenv("_".join(["NAMED", "NOWHERE"]), "1")
    assert kept(model, training=True) is not None
    monkeypatch.setenv("MORE_LAYERS", "1")
    assert kept(model, training=True) is None


def test_the_working_folder_and_the_search_path_decide(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_graph(model)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        assert kept(model, training=True) is None
    monkeypatch.syspath_prepend(tmp_path)
    assert kept(model, training=True) is None


@pytest.mark.parametrize(
    "unsure",
    [
        "import subprocess; subprocess.run(['true'])",
        "import socket\nwith socket.socket() as line: line.connect_ex(('127.0.0.1', 1))",
    ],
)
def test_what_others_answer_is_not_kept(model: str, unsure: str, captures: list[str]) -> None:
    file = Path(model.rpartition(":")[0])
    file.write_text(f"{unsure}\n{MODEL}")
    load_graph(model)
    load_graph(model)
    assert captures == [model, model]


def test_a_file_that_has_changed_since_the_process_began_is_not_kept(
    model: str, captures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, str(Path(model).parents[1] / "cache"))
    load_graph(model)
    assert kept(model, training=True) is None
    assert time.time() > sources._BEGAN


def test_a_process_began_when_the_system_says_and_else_now(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources._began() == pytest.approx(psutil.Process().create_time(), abs=2.0)
    before = time.time()
    monkeypatch.setattr(time, "clock_gettime", lambda _: 0.0)  # before it began
    assert before <= sources._began() <= time.time()
    monkeypatch.setattr(Path, "read_text", lambda _: "")
    assert before <= sources._began() <= time.time()


def test_another_default_of_torch_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    load_graph(SPEC)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert kept(SPEC, training=True) is None
        doubled = load_graph(SPEC)
    finally:
        torch.set_default_dtype(before)
    assert doubled.weights.sum() == 2 * load_graph(SPEC).weights.sum()


def test_all_of_placelab_that_decides_a_graph_is_in_the_key() -> None:
    files = {file for pattern in cache._DECIDING for file in (ROOT / "graphs").glob(pattern)}
    asked = [ROOT / "graphs/capture/forward.py", ROOT / "graphs/capture/training_step.py"]
    asked += (ROOT / "graphs/families").glob("*.py")
    seen: set[Path] = set()
    while asked:
        file = asked.pop()
        if file in seen:
            continue
        seen.add(file)
        assert file in files, f"{file} decides what a graph is"
        for node in ast.walk(ast.parse(file.read_text())):
            for name in [node.module or ""] if isinstance(node, ast.ImportFrom) else []:
                found = ROOT.joinpath(*name.split("."))
                asked += [each for each in (found.with_suffix(".py"), found / "__init__.py") if each.is_file()]
    assert len(seen) > 20


def test_a_digest_of_sources_is_of_the_content_of_each(tmp_path: Path) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    digests = set()
    for content in (("a", "b"), ("b", "a"), ("ab", ""), ("a", "c")):
        for file, text in zip((one, other), content, strict=True):
            file.write_text(text)
        digests.add(sources.digest_of([one, other]))
    assert len(digests) == 4
    assert sources.digest_of([other, one]) not in digests


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_model_in_eval_mode_is_not_planned_as_training_without_a_word(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = f"import torch\n\n\ndef model():\n    return torch.nn.Linear(2, 2).{mode}(), torch.zeros(4, 2)\n"
    (tmp_path / "own.py").write_text(source)
    spec = f"{tmp_path / 'own.py'}:model"
    for with_law in (False, True):
        for _ in range(2):  # captured, and from the cache
            caplog.clear()
            load_graph(spec, with_law=with_law)
            assert [record.getMessage()[:33] for record in caplog.records if "eval()" in record.getMessage()] == (
                ["own:model is in eval() mode: its "] if mode == "eval" else []
            )
    caplog.clear()
    load_graph(spec, training=False)
    assert not caplog.records
