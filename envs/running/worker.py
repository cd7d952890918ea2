"""One of the processes that `processes` starts: it does one job after another, as long as the socket is open.

It is started with the folder of the socket, its device, and its core, or "".
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING

from envs.running.processes import Done, Failed, Process, Ready
from envs.running.progress import ACTIVITY, BEAT
from graphs.foundation.errors import InputError, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    Job = Callable[[Process], object]


def main(folder: str, device: str, core: str) -> None:
    """Connect, join the others, and do what is sent."""
    faulthandler.register(signal.SIGUSR1)  # it says where all threads are, whatever they wait for
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if core:
        os.sched_setaffinity(0, {int(core)})
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(f"{folder}/jobs")
        pipe = Connection(connected.detach())
    pipe.send(Ready(rank))
    jobs: SimpleQueue[Job | Exception] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    busy = threading.Event()
    busy.set()  # what it does first is to join the others
    said = threading.Lock()  # one thing is sent at a time
    threading.Thread(target=_report, args=(pipe, said, busy), daemon=True).start()
    try:
        process = _joined(rank, size, device, f"{folder}/meeting")
    except Exception as error:
        jobs.get()
        with said:
            pipe.send(_failed(error))
            busy.clear()
    else:
        while True:
            job = jobs.get()
            busy.set()
            answer = _answer(job, process)
            with said:
                pipe.send(answer)
                busy.clear()
    threading.Event().wait()  # until the socket is closed


def _receive(pipe: Connection, jobs: SimpleQueue[Job | Exception]) -> None:
    """Take jobs as they come, and end this process, whatever it does, when no more can."""
    while True:
        try:
            jobs.put(pipe.recv())
        except (EOFError, OSError):
            os._exit(0)
        except Exception as error:  # a job of a module that cannot be imported here, for one
            jobs.put(error)


def _report(pipe: Connection, said: threading.Lock, busy: threading.Event) -> None:
    """Say what this process does, while somebody waits for its answer."""
    while True:
        busy.wait()
        with said:
            if busy.is_set():
                try:
                    pipe.send(ACTIVITY.now())
                except OSError:  # nobody waits any more
                    return
        time.sleep(BEAT)


def _joined(rank: int, size: int, name: str, meeting: str) -> Process:
    """What this process is, once it has met the others by a file."""
    import torch  # imported here: the socket is watched meanwhile
    from torch import distributed

    torch.set_num_threads(1)
    device, store = torch.device(name), distributed.FileStore(meeting, size)  # type: ignore[attr-defined]  # documented
    backend, bound = distributed.get_default_backend_for_device(device), None  # gloo, or NCCL
    if device.type != "cpu":
        torch.accelerator.set_device_index(device)
        bound = device
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, device_id=bound)
    return Process(rank, size, device)


def _answer(job: Job | Exception, process: Process) -> Done | Failed:
    try:
        if isinstance(job, Exception):
            raise job
        return Done(job(process))
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Failed:
    if isinstance(error, InputError):
        return Failed(str(error), "")
    return Failed(reason(error), "".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
