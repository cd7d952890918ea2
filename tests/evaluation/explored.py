"""A server of a small step, to ask."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from envs.plans.plan import Plan
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.explorer.requests import Requests
from evaluation.explorer.server import HOST, ExplorerServer
from evaluation.explorer.tried_steps import TriedSteps
from graphs.files.graph_source import graph_source
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.oracle.toys import random_graph, toy_cluster

JSON = {"Content-Type": "application/json"}


def layers(ops: int = 24, each: int = 8, *, name: str = "layers") -> OpGraph:
    """Random ops in layers of some each."""
    return replace(random_graph(ops, 0), names=tuple(f"{name}.{op // each}/op{op}" for op in range(ops)))


def tried(problem: Problem, plan: Plan) -> TriedSteps:
    """A plan that is given, and nothing else yet."""
    found = TriedSteps(graph_source(problem.graph), problem)
    found.begin("given", SimulatedPlan.of(problem, plan))
    return found


def round_robin(graph: OpGraph) -> TriedSteps:
    """Layers on three devices in turn."""
    problem = Problem(graph, toy_cluster(3), "sgd")
    return tried(problem, Plan.of([op // 8 % 3 for op in range(len(graph))]))


@dataclass
class Asked:
    """A server, to be asked as the page asks it, with its token."""

    port: int
    token: str

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.port}{self._with_token('/')}"

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, content and headers of the answer; a path that says what its token is keeps it."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        try:
            connection.request(method, self._with_token(path), body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def _with_token(self, path: str) -> str:
        return path if "token=" in path else f"{path}{'&' if '?' in path else '?'}token={self.token}"

    def get(self, path: str) -> Any:
        """An answer in JSON."""
        status, content, _ = self.raw("GET", path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path: str, **body: object) -> Any:
        """A new step."""
        status, content, _ = self.raw("POST", path, json.dumps(body).encode(), JSON)
        assert status == 200, content
        return json.loads(content)

    def refused(self, method: str, path: str, body: bytes | None = None, **headers: str) -> str:
        """The sentence of a refusal."""
        given = {
            **(JSON if body is not None else {}),
            **{name.replace("_", "-"): each for name, each in headers.items()},
        }
        status, content, _ = self.raw(method, path, body, given)
        assert 400 <= status < 500, (status, content)
        answer = json.loads(content)
        assert list(answer) == ["error"]
        assert "\n" not in answer["error"]
        return str(answer["error"])


@contextmanager
def served(requests: Requests) -> Iterator[Asked]:
    """Requests behind a server of their own."""
    server = ExplorerServer(requests)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield Asked(server.server_port, server.token)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
