"""A small server for one user of this machine: no other user may ask, and no page but its own.

It listens on the loopback address, and each request must have the token of the address that `placelab open` prints, as
Jupyter's do: other users of the machine do not know it. Another site's page cannot use it either: a request by another
name than this machine's is refused, so that a foreign name that is made to mean this address gets nothing (DNS
rebinding), and so is a change that another origin asks for. The browser is told to load nothing from elsewhere
(Content-Security-Policy).
"""

from __future__ import annotations

import contextlib
import contextvars
import hmac
import html
import os
import secrets
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evaluation.explorer.answer import Answer
from evaluation.explorer.requests import Requests
from graphs.foundation.errors import DoesNotFitError, InputError

HOST, FIRST_PORT, TRIED_PORTS = "127.0.0.1", 8760, 40
MOST_BYTES = 64 * 1024  # of a request
SECONDS = 60.0  # in which a request must have come
RULES = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # Bokeh makes functions of the code that a chart brings along
HEADERS = {
    "Content-Security-Policy": RULES, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip


class ExplorerServer(ThreadingHTTPServer):
    """Answers requests, each in a thread of its own, until it is told to stop."""

    daemon_threads = True

    def __init__(self, requests: Requests, port: int | None = None) -> None:
        """Listen on a port, or on the first free one.

        Raises InputError if it cannot be had.
        """
        self.requests = requests
        self.token = secrets.token_urlsafe(32)  # of this server: who has it may ask
        self.context = contextvars.copy_context()  # of the verb: what its switches allow
        ports = range(FIRST_PORT, FIRST_PORT + TRIED_PORTS) if port is None else [port]
        for each in ports:
            try:
                super().__init__((HOST, each), _Handler)
                return
            except OSError as error:
                reason = error.strerror
        taken = f"port {port}" if port is not None else f"ports {ports[0]} to {ports[-1]}"
        raise InputError(f"cannot listen on {taken}: {reason}; name a free one with `port=NUMBER`")

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(server: ExplorerServer, *, browser: bool) -> None:
    """Answer until Ctrl-C. With `browser` the page is opened in one, where there is a screen."""
    server.requests.prepare()
    print(f"placelab: the page is at {server.address} until Ctrl-C", file=sys.stderr, flush=True)
    has_screen = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    with tempfile.TemporaryDirectory(prefix="placelab-") as folder, server, contextlib.suppress(KeyboardInterrupt):
        if browser and has_screen:
            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(_redirect(server.address, Path(folder)).as_uri())
        server.serve_forever(poll_interval=0.2)


def _redirect(address: str, folder: Path) -> Path:
    """A file that leads to the page: arguments of a browser, which all users can list, would tell them the token.

    The folder is the user's own, as `tempfile` makes it.
    """
    file = folder / "open.html"
    file.write_text(f'<meta http-equiv="refresh" content="0; url={html.escape(address)}">\n', encoding="utf-8")
    return file


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: ExplorerServer
    protocol_version = "HTTP/1.1"
    timeout = SECONDS
    server_version, sys_version = "placelab", ""

    def do_GET(self) -> None:  # as http.server calls it
        """Answer a question."""
        self._answer(lambda: self.server.requests.get(self.path))

    def do_POST(self) -> None:
        """Answer a change."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True  # what is not read would be taken for the next request
            said = f"expected a body of at most {MOST_BYTES} bytes, with its length"
            return self._send(Answer.refusal(said, HTTPStatus.REQUEST_ENTITY_TOO_LARGE))
        body = self.rfile.read(int(length))
        return self._answer(lambda: self.server.requests.post(self.path, body), changes=True)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """A refusal of http.server itself, such as of another method, as a sentence."""
        self.close_connection = True
        self._send(Answer.refusal(f"{HTTPStatus(code).phrase}: {message or 'not understood'}", HTTPStatus(code)))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""

    def _answer(self, asked: Callable[[], Answer], *, changes: bool = False) -> None:
        foreign = self._foreign(changes=changes)
        if foreign:
            return self._send(Answer.refusal(foreign, HTTPStatus.FORBIDDEN))
        return self._send(self.server.context.copy().run(_answered, asked))

    def _foreign(self, *, changes: bool) -> str:
        """Why a request is none of the page's own; empty if it is one."""
        own = {f"{host}:{self.server.server_port}" for host in (HOST, "localhost")}
        if self.headers.get("Host", "") not in own:
            return "this server answers to the name of this machine only"
        if not hmac.compare_digest(self._token().encode(), self.server.token.encode()):
            return "this is not the address that `placelab open` printed: open that one, with its token"
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc not in own:
            return "another site's page may not ask this server"
        if changes and self.headers.get_content_type() != "application/json":
            return "expected a body of the type application/json"
        return ""

    def _token(self) -> str:
        """The token of a request; empty without one, or with several."""
        given = parse_qs(self.path.partition("?")[2]).get("token", [])
        return given[0] if len(given) == 1 else ""

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.content)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)


def _answered(asked: Callable[[], Answer]) -> Answer:
    """The answer, or in a sentence why there is none; whatever goes wrong, the server stays."""
    try:
        return asked()
    except (InputError, DoesNotFitError) as error:
        return Answer.refusal(str(error))
    except MemoryError:
        return Answer.refusal("there is not enough memory for this", HTTPStatus.INTERNAL_SERVER_ERROR)
    except Exception as error:
        traceback.print_exc()
        said = f"this went wrong in placelab itself, {type(error).__name__}: {error}"
        return Answer.refusal(said, HTTPStatus.INTERNAL_SERVER_ERROR)
