"""The page of `placelab open`, as Chromium shows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from envs.timelines.last_inputs import Waits
from evaluation.commands.graph_verbs import place
from evaluation.drawing.step_boxes import Reason, why_not_earlier
from evaluation.explorer.requests import Requests
from evaluation.explorer.server import ExplorerServer
from evaluation.explorer.tried_steps import TriedSteps
from graphs.files.graph_source import graph_source
from graphs.foundation.errors import InputError

MODEL, CLUSTER = "rnnlm:layers=2,steps=8", "p100x4"
MODULE, DEVICE = "layers.1", "gpu:3"
SIZE = (1400, 1800)  # pixels
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 120  # that a browser may take


def picture() -> bytes:
    """The file, as PNG: a step after a module was moved, and the op that waits longest for a transfer.

    Raises InputError without Chromium.
    """
    options: Any = {"cluster": CLUSTER, "groups": None, "budget": 1}
    tried = TriedSteps(graph_source(MODEL), place(MODEL, placer="heft", **options).problem)
    for placer in ("heft", "human_expert"):
        tried.begin(placer, place(MODEL, placer=placer, **options))
    timeline = tried.move(tried.last.number, MODULE, DEVICE).placed.timeline
    reason, waited, _ = why_not_earlier(timeline, Waits.of(timeline))
    op = timeline.graph.names[np.where(reason == Reason.TRANSFER, waited, 0.0).argmax()]
    with ExplorerServer(Requests(tried)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = screenshot(f"{server.address}#op={quote(op)}", SIZE)
        server.shutdown()
    return found


def screenshot(address: str, size: tuple[int, int]) -> bytes:
    """What a page looks like once its charts are drawn, as PNG of a size in pixels."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise InputError("the picture of a page is taken by Chromium, and none is installed; install it")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--virtual-time-budget=20000", f"--window-size={size[0]},{size[1]}", f"--screenshot={file}", address,
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, env={**os.environ, "HOME": folder})
        return file.read_bytes()
