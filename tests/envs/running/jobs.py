"""Jobs for processes that do them together."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass

import torch
from torch import distributed

from envs.running.processes import Process
from envs.running.progress import ACTIVITY
from graphs.foundation.errors import InputError


@dataclass(frozen=True)
class About:
    """What a process is."""

    rank: int
    size: int
    pid: int
    cores: frozenset[int]
    threads: int
    jobs: int  # so far


def about(process: Process) -> About:
    jobs = process.kept["jobs"] = int(str(process.kept.get("jobs", 0))) + 1
    cores = frozenset(os.sched_getaffinity(0))
    return About(process.rank, process.size, os.getpid(), cores, torch.get_num_threads(), jobs)


@dataclass(frozen=True)
class Sum:
    """Each process adds its part, and has the sum."""

    parts: tuple[float, ...]

    def __call__(self, process: Process) -> float:
        total = torch.tensor(self.parts[process.rank], dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total)


def crossing(process: Process) -> None:
    """Two processes wait for each other."""
    other = 1 - process.rank
    ACTIVITY.note(f"a number from process {other}", waits=True)
    distributed.recv(torch.zeros(1), other)


@dataclass(frozen=True)
class Going:
    """One process does something else while the others wait for it."""

    what: str
    rank: int = 1

    def __call__(self, process: Process) -> None:
        if process.rank == self.rank:
            self._go()
        distributed.barrier()

    def _go(self) -> None:
        if self.what == "wrong":
            raise KeyError(self.what)
        if self.what == "refused":
            raise InputError("the plan has a mistake; make another")
        if self.what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        while self.what == "stuck":
            ctypes.PyDLL(None).sleep(600)  # none of its threads can run Python
        if self.what == "ended":
            os._exit(3)
        time.sleep(600.0)  # which no test waits for
