"""Long work in several processes, of which each piece keeps for itself what it has done, so that all may be ended."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from tqdm import tqdm

from graphs.foundation.errors import InputError

Work = TypeVar("Work")


def in_processes(do: Callable[[Work], object], works: Sequence[Work], workers: int) -> Generator[Work]:
    """Do the works, so many at a time, and yield each when it is done.

    A failure, Ctrl-C and closing the generator end all processes at once. Raises what a work raises, and InputError
    if a process was ended from outside, as by a system without memory.
    """
    # forking a process that runs threads may hang it
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin)
    try:
        futures = {pool.submit(do, work): work for work in works}
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    except BrokenProcessPool as error:
        raise InputError("a process was ended before its work was done; the same command goes on") from error
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Of a process that may be ended at any moment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first is to answer
    tqdm.set_lock(threading.RLock())  # progress bars' own locks would outlive the process
