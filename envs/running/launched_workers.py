"""Workers whose processes a launcher such as torchrun has started, on one host or several.

    rank 0, which was launched ── a TCP socket ──┬── process 0, which it starts beside itself
       jobs, limits, errors, results             ├── process 1, launched: it serves until the socket is closed
                                                 └── process 2, ...

What the socket of a folder is to processes of one host, a TCP socket is to these: rank 0 writes its port into the
launcher's store, and a key, without which nothing that connects is listened to.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from envs.running.launched import Launched
from envs.running.processes import START_LIMIT, Ready, Workers, our_packages
from graphs.foundation.errors import InputError


class LaunchedWorkers(Workers):
    """The processes that were started together with this one, which is rank 0. They do jobs until one fails."""

    shares_clock = False

    def __init__(self, launched: Launched) -> None:
        """Raises InputError if the launcher's store or a GPU is missing."""
        super().__init__((launched.device,) * launched.size, pin=False)
        self._launched, self._store = launched, launched.store()

    def _start_in(self, folder: str) -> list[Ready]:
        key = secrets.token_hex(32).encode()
        # it reaches the launcher's store as all others do, also where this process holds it
        environment = {**os.environ, **our_packages(), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        with socket.create_server(("", 0)) as server:
            self._begin(0, folder, "", "", environment)
            self._launched.publish(self._store, server.getsockname()[1], key)
            return self._accept(server, time.monotonic() + START_LIMIT, key)

    def _start(self) -> None:
        super()._start()
        kinds = {device.partition(":")[0] for device in self.devices}
        if len(kinds) > 1:
            raise InputError(
                f"the processes of torchrun are on {', '.join(self.devices)}, and all must be on GPUs, or all on CPUs: "
                "CUDA_VISIBLE_DEVICES= hides GPUs"
            )
