"""The server of `placelab open`: its steps are those of `simulate`, and nobody else may ask."""

import base64
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import numpy as np
import pytest

import placelab
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.step_boxes import Reason
from evaluation.explorer.module_homes import ModuleHomes
from evaluation.explorer.moved_modules import moved
from evaluation.explorer.op_waits import op_answer
from evaluation.explorer.requests import Requests
from evaluation.explorer.server import HOST, MOST_BYTES, ExplorerServer, serve
from evaluation.explorer.tried_steps import MOST
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.evaluation.explored import JSON, Asked, layers, round_robin, served, tried
from tests.oracle.toys import toy_cluster, toy_graph


@pytest.fixture
def asked() -> Iterator[Asked]:
    with served(Requests(round_robin(layers()))) as found:
        yield found


def test_a_moved_module_is_timed_as_its_plan_file_is(asked: Asked, tmp_path: Path) -> None:
    before = asked.get("/steps/1")
    after = asked.post("/steps/1/move", module="layers.1", device="gpu:2")
    for step in (before, after):
        file = tmp_path / "mine.plan.json"
        _, content, headers = asked.raw("GET", f"/steps/{step['number']}/plan")
        file.write_bytes(content)
        assert headers["Content-Disposition"] == f'attachment; filename="step{step["number"]}.plan.json"'
        again = placelab.simulate(layers(), file, cluster=toy_cluster(3), optimizer="sgd")
        assert again.timeline.step_seconds == step["seconds"]
    placement = json.loads(content)["plan"]["placement"]
    assert placement == {"layers.0": "gpu:0", "layers.1": "gpu:2", "layers.2": "gpu:2"}
    assert after["homes"] == [[0, 2], [0, 2], [0], [2], [2]]
    assert [row["title"] for row in after["tried"]] == ["given", "layers.1 to gpu:2"]
    assert after["seconds"] != before["seconds"]
    assert after["change"].endswith(" than step 1")


def test_a_moved_module_is_an_entry_of_the_plan_file(tmp_path: Path) -> None:
    first = round_robin(layers()).last.placed
    first.save(tmp_path / "first.plan.json")
    written = json.loads((tmp_path / "first.plan.json").read_text())
    for module, device in (("layers.0", "gpu:1"), ("layers.2/op17", "gpu:0"), ("", "gpu:2")):
        changed = written | {"plan": written["plan"] | {"placement": written["plan"]["placement"] | {module: device}}}
        if not module:
            changed["plan"]["placement"] = {"": device}
        (tmp_path / "changed.plan.json").write_text(json.dumps(changed))
        expected = placelab.load_plan(tmp_path / "changed.plan.json", first.problem).plan
        assert moved(first.problem, first.plan, module, device) == expected


def test_tied_ops_move_together() -> None:
    graph = toy_graph([1, 1, 1], [(0, 1), (1, 2)])
    problem = Problem(placelab.tie_ops(graph, 2), toy_cluster(2))
    units = problem.graph.units.tolist()
    plan = moved(problem, Plan.of([0, 0, 0]), problem.graph.names[0], "gpu:1")
    assert plan.placement.tolist() == [int(unit == units[0]) for unit in units]


def test_a_module_joins_the_stage_of_a_device() -> None:
    problem, stages = Problem(layers(), toy_cluster(3), "none"), (0,) * 8 + (1,) * 16
    plan = Plan(tuple((stage,) for stage in stages), schedule=Schedule(stages=stages))
    found = moved(problem, plan, "layers.1", "gpu:0")
    assert found.schedule.stages == (0,) * 16 + (1,) * 8
    assert found.devices == tuple((stage,) for stage in found.schedule.stages)
    with pytest.raises(InputError, match="gpu:2 runs no stage of this plan"):
        moved(problem, plan, "layers.1", "gpu:2")
    with pytest.raises(InputError, match=r"layers\.0 is all of stage 0, which would be left without ops"):
        moved(problem, plan, "layers.0", "gpu:1")
    with pytest.raises(InputError, match=r"stages run backwards|stages wait for each other"):
        moved(problem, plan, "layers.2", "gpu:0")


def test_placers_and_runtimes_are_those_of_the_verbs(asked: Asked) -> None:
    placed = asked.post("/steps/1/place", placer="heft", budget=1)
    options: Any = {"cluster": toy_cluster(3), "optimizer": "sgd"}
    expected = placelab.place(layers(), placer="heft", runtime="ideal", groups=None, **options)
    assert placed["seconds"] == expected.timeline.step_seconds
    run = asked.post(f"/steps/{placed['number']}/runtime", runtime="fifo")
    expected = placelab.simulate(layers(), expected.plan, runtime="fifo", **options)
    assert (run["seconds"], run["runtime"]) == (expected.timeline.step_seconds, "fifo")
    again = asked.post(f"/steps/{run['number']}/place", placer="heft", budget=1)
    assert again["runtime"] == "fifo"


def test_an_op_says_what_it_waited_for_and_what_that_waited_for() -> None:
    graph = toy_graph([1, 3, 3, 1], [(0, 1), (0, 2), (1, 3), (2, 3)], output_bytes=[1, 2, 1, 1])
    placed = tried(Problem(graph, toy_cluster(2)), Plan.of([0, 0, 1, 1], order="fifo")).last.placed
    said = op_answer(placed, "d")
    assert (said["device"], said["start"], said["finish"]) == ("gpu:1", 6.0, 7.0)
    assert said["why"] == "idle for 1.00 s, until an input arrived: b of gpu:0"
    assert [each["name"] for each in said["chain"]] == ["b"]
    assert said["is_critical"]
    assert op_answer(placed, "b")["sends"] == ["2 B to gpu:1, 4.00 s to 6.00 s, 2.00 s long"]
    assert op_answer(placed, "a")["why"] == Reason.NONE.sentence
    with pytest.raises(InputError, match="unknown op 'nobody'"):
        op_answer(placed, "nobody")


def test_an_op_of_the_model_is_found_in_a_pipeline() -> None:
    chain = Pipeline(2, 2, activation=1)
    placed = SimulatedPlan.of(chain.problem(servers(2, memory=100.0)), chain.plan("gpipe"))
    said = op_answer(placed, "s1")
    assert (said["own"], said["copies"]) == ("s1", 2)
    copies = [op for op, name in enumerate(placed.timeline.graph.names) if name.startswith("s1#")]
    assert said["start"] == placed.timeline.start[copies].min()


def test_modules_are_summed_up() -> None:
    placed = round_robin(layers()).last.placed
    homes = ModuleHomes.of(placed.problem.graph)
    assert homes.paths == ["", "layers", "layers.0", "layers.1", "layers.2"]
    assert homes.parent == [-1, 0, 1, 1, 1]
    assert homes.ops() == [24, 24, 8, 8, 8]
    seconds = homes.seconds(placed.timeline)
    assert seconds[0] == pytest.approx(placed.timeline.busy_seconds.sum()) == pytest.approx(sum(seconds[2:]))


def test_exports_are_files() -> None:
    chain = Pipeline(2, 2, activation=1)
    with served(Requests(tried(chain.problem(servers(2, memory=100.0)), chain.plan("gpipe")))) as asked:
        found = asked.get("/steps/1/export?to=schedule_csv")
        assert found["name"] == "step1.schedule_csv.csv"
        assert base64.b64decode(found["content"]).startswith(b"0F0,0F1")
        found = asked.get("/steps/1/export?to=chakra")
        names = zipfile.ZipFile(io.BytesIO(base64.b64decode(found["content"]))).namelist()
        assert names == ["step1.0.et", "step1.1.et"]
        assert "model" in asked.refused("GET", "/steps/1/export?to=vllm")


WRONG: list[tuple[str, str, bytes | None, str]] = [
    ("GET", "/steps/9", None, "there is no step 9; there are 1"),
    ("GET", "/elsewhere", None, "there is no page '/elsewhere'"),
    ("GET", "/steps/1/nothing", None, "there is no page"),
    ("GET", "/steps/1/op?name=nobody", None, "unknown op 'nobody'"),
    ("GET", "/steps/1/op", None, r"say name once, as in \?name="),
    ("GET", "/steps/1/export?to=nothing", None, "unknown format 'nothing'"),
    ("POST", "/steps/1/move", b"{", "expected a JSON object with module, device"),
    ("POST", "/steps/1/move", b'{"module": 1, "device": "gpu:1"}', "expected a JSON object with module, device"),
    ("POST", "/steps/1/move", b'{"module": "layers.9", "device": "gpu:1"}', "unknown op or module 'layers.9'"),
    ("POST", "/steps/1/move", b'{"module": "layers.0", "device": "gpu:9"}', "unknown device 'gpu:9'"),
    ("POST", "/steps/1/place", b'{"placer": "nobody"}', "placer: unknown placer 'nobody'"),
    ("POST", "/steps/1/place", b'{"placer": "heft", "budget": -1}', "the budget is -1"),
    ("POST", "/steps/1/place", b'{"placer": "my.py:build"}', "placer: it names code"),
    ("POST", "/steps/1/runtime", b'{"runtime": "ideal:order=my.py:build"}', "runtime: it names code"),
    ("POST", "/steps/1/runtime", b'{"runtime": "none"}', "runtime: unknown runtime 'none'"),
    ("POST", "/steps/1/remove", b"{}", "unknown change 'remove'"),
    ("POST", "/steps/1/move", b"x" * (MOST_BYTES + 1), "expected a body of at most"),
    ("DELETE", "/steps/1", None, "Not Implemented"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "said"), WRONG, ids=[f"{m} {p} {s}" for m, p, _, s in WRONG])
def test_what_is_wrong_is_answered_in_a_sentence(
    method: str, path: str, body: bytes | None, said: str, asked: Asked
) -> None:
    status, content, _ = asked.raw(method, path, body, JSON if body is not None else {})
    assert 400 <= status <= 501
    assert re.search(said, json.loads(content)["error"])
    assert asked.get("/steps/1")["number"] == 1


def test_no_other_site_may_ask(asked: Asked) -> None:
    body = json.dumps({"module": "layers.0", "device": "gpu:1"}).encode()
    for name in ("evil.example", f"evil.example:{asked.port}", "", f"127.0.0.2:{asked.port}"):
        assert "name of this machine" in asked.refused("GET", "/", Host=name)
    assert "another site" in asked.refused("POST", "/steps/1/move", body, Origin="https://evil.example")
    assert "another site" in asked.refused("POST", "/steps/1/move", body, Origin="null")
    assert "application/json" in asked.refused("POST", "/steps/1/move", body, Content_Type="text/plain")
    assert len(asked.get("/steps/1")["tried"]) == 1
    own = JSON | {"Origin": f"http://{HOST}:{asked.port}"}
    assert asked.raw("POST", "/steps/1/move", body, own)[0] == 200
    assert "default-src 'none'" in asked.raw("GET", "/")[2]["Content-Security-Policy"]


def test_other_users_of_the_machine_may_not_ask(asked: Asked) -> None:
    body = json.dumps({"module": "layers.0", "device": "gpu:1"}).encode()
    others = (
        "token=",
        "token=" + "x" * len(asked.token),
        f"token={asked.token}&token=x",
        f"token={asked.token}x",
        "token=%ff",
    )
    for token in others:
        for path in ("/", "/steps/1", "/steps/1/plan", "/steps/1/chart", "/elsewhere"):
            status, content, _ = asked.raw("GET", f"{path}?{token}")
            assert (status, json.loads(content)["error"][:43]) == (403, "this is not the address that `placelab open")
        assert asked.raw("POST", f"/steps/1/move?{token}", body, JSON)[0] == 403
    assert len(asked.get("/steps/1")["tried"]) == 1
    with served(Requests(round_robin(layers()))) as another:
        assert len({asked.token, another.token}) == 2
        assert asked.raw("GET", f"/?token={another.token}")[0] == 403


def test_the_browser_is_told_the_token_by_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, texts = list[str](), list[str]()

    def open_url(url: str) -> bool:
        file = Path(url2pathname(urlsplit(url).path))
        assert file.parent.stat().st_mode & 0o077 == 0
        texts.append(file.read_text(encoding="utf-8"))
        opened.append(url)
        return True

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("evaluation.explorer.server.webbrowser.open", open_url)
    monkeypatch.setattr(ExplorerServer, "serve_forever", lambda *_, **__: None)
    server = ExplorerServer(Requests(round_robin(layers())))
    serve(server, browser=True)
    assert server.token not in opened[0]
    assert server.address in texts[0]


def test_names_are_text_whatever_they_hold() -> None:
    name = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    with served(Requests(round_robin(layers(name=name)))) as asked:
        page = asked.raw("GET", "/")[1].decode()
        step = asked.post("/steps/1/move", module=f"{name}.0", device="gpu:1")
    for text in (page, *(str(step[part]) for part in ("tiles", "sheets"))):
        assert "<img src=x" not in text
        assert "<script>alert" not in text


def test_one_plan_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(round_robin(layers()))
    begun, goes_on, answers = threading.Event(), threading.Event(), list[Any]()
    place = requests.tried.place

    def slow(*args: Any, **keywords: Any) -> Any:
        begun.set()
        goes_on.wait(60)
        return place(*args, **keywords)

    monkeypatch.setattr(requests.tried, "place", slow)
    with served(requests) as asked:
        first = threading.Thread(target=lambda: answers.append(asked.post("/steps/1/place", placer="heft")))
        first.start()
        assert begun.wait(60)
        said = asked.refused("POST", "/steps/1/move", b'{"module": "layers.0", "device": "gpu:1"}')
        assert said == "another plan is being made; ask again when it is there"
        assert asked.get("/steps/1/op?name=" + quote("layers.0/op3"))["device"] == "gpu:0"
        goes_on.set()
        first.join(60)
    assert answers[0]["number"] == 2


def test_what_goes_wrong_inside_does_not_end_the_server(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("evaluation.explorer.requests.op_answer", lambda *_: 1 / 0)
    status, content, _ = asked.raw("GET", "/steps/1/op?name=x")
    assert (status, json.loads(content)["error"][:35]) == (500, "this went wrong in placelab itself,")
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert asked.get("/steps/1")["fits"]


def test_steps_are_kept_but_not_without_end() -> None:
    found = round_robin(layers())
    for move in range(MOST + 2):
        found.move(found.last.number, "layers.0", f"gpu:{move % 3}")
    assert list(found.steps) == [1, *range(5, MOST + 4)]


def test_a_port_that_is_taken() -> None:
    requests = Requests(round_robin(layers()))
    with ExplorerServer(requests) as first, ExplorerServer(requests) as second:
        assert first.server_port < second.server_port
        with pytest.raises(
            InputError, match=f"cannot listen on port {first.server_port}: .*name a free one with `port="
        ):
            ExplorerServer(requests, first.server_port)
        assert first.server_address[0] == HOST


def test_the_verb_serves_until_ctrl_c_and_gives_back_the_last_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def serve(server: ExplorerServer, **_: object) -> None:
        asked = Asked(server.server_port, server.token)
        for ask in (lambda: asked.raw("GET", "/"), lambda: asked.post("/steps/1/move", module="", device="gpu:2")):
            thread = threading.Thread(target=ask)
            thread.start()
            server.handle_request()
            thread.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(ExplorerServer, "serve_forever", serve)
    placed = placelab.open_page(layers(), cluster=toy_cluster(3), placer="heft", browser=False)
    assert placed.plan.placement.tolist() == [2] * 24
    assert "placelab: the page is at http://127.0.0.1:" in capsys.readouterr().err
    with pytest.raises(InputError, match="leave one out"):
        placelab.open_page(layers(), cluster=toy_cluster(3), placer="heft", plan=placed.plan)
    again = Plan.of(np.zeros(24, np.int64))
    monkeypatch.setattr(ExplorerServer, "serve_forever", lambda *_, **__: None)
    assert placelab.open_page(layers(), cluster=toy_cluster(3), plan=again).plan == again
