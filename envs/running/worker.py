"""One of the processes of `Workers`: it does one job after another, as long as the socket is open.

It is started with the folder of the socket, its device, and its core, or "". Without a device a launcher such as
torchrun has said where it belongs (`Launched`).
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
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from envs.running.launched import Launched
from envs.running.processes import Done, Failed, Process, Ready
from envs.running.progress import ACTIVITY, BEAT
from graphs.foundation.errors import InputError, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.distributed_c10d import Store

    Job = Callable[[Process], object]


def main(folder: str, device: str, core: str) -> None:
    """Connect, join the others, and do what is sent."""
    faulthandler.register(signal.SIGUSR1)  # it says where all threads are, whatever they wait for
    if not device and (launched := Launched.here()) is not None:
        take_part(launched)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if core:
        os.sched_setaffinity(0, {int(core)})
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(f"{folder}/jobs")
        pipe = Connection(connected.detach())

    def store() -> Store:
        from torch import distributed  # imported here: the socket is watched meanwhile

        return distributed.FileStore(f"{folder}/meeting", size)  # type: ignore[attr-defined]  # documented

    _serve(pipe, rank, size, device, store)


def take_part(launched: Launched) -> NoReturn:
    """Do what rank 0 of a launcher's processes sends, until it sends no more; this process ends with that.

    Raises InputError if rank 0 cannot be reached, or this process has no GPU where others have.
    """
    device, store = launched.device, launched.store()
    _serve(launched.connected(store), launched.rank, launched.size, device, lambda: store)


def _serve(pipe: Connection, rank: int, size: int, device: str, store: Callable[[], Store]) -> NoReturn:
    """Join the others by a store, and do what is sent."""
    pipe.send(Ready(rank, device))
    jobs: SimpleQueue[Job | Exception] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    busy = threading.Event()
    busy.set()  # what it does first is to join the others
    said = threading.Lock()  # one thing is sent at a time
    threading.Thread(target=_report, args=(pipe, said, busy), daemon=True).start()
    try:
        process = _joined(rank, size, device, store)
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
            with said, suppress(ConnectionError):  # nobody waits any more
                pipe.send(answer)
                busy.clear()
    while True:
        threading.Event().wait()  # until the socket is closed


def _receive(pipe: Connection, jobs: SimpleQueue[Job | Exception]) -> None:
    """Take jobs as they come, and end this process, whatever it does, when no more can: well if it is told so."""
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        except Exception as error:  # a job of a module that cannot be imported here, for one
            jobs.put(error)
        else:
            if job is None:
                os._exit(0)
            jobs.put(job)


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


def _joined(rank: int, size: int, name: str, meeting: Callable[[], Store]) -> Process:
    """What this process is, once it has met the others."""
    import torch  # imported here: the socket is watched meanwhile
    from torch import distributed

    torch.set_num_threads(1)
    device, store = torch.device(name), meeting()
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
        ACTIVITY.begin_job()
        return Done(job(process))
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Failed:
    if isinstance(error, InputError):
        return Failed(str(error), "")
    return Failed(reason(error), "".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main(*sys.argv[1:])
