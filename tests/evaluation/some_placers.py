"""Placers for tests of comparisons."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.problem import Problem


@dataclass(frozen=True)
class Alternating:
    """Sends every n-th unit to the second device."""

    name: str = "alternating"
    every: int = 2
    simulations: int = 0

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        placement = (np.arange(problem.graph.num_units) + seed) % self.every == 0
        return PlacerResult.of_units(problem, placement.astype(int), self.name, seed, simulations=self.simulations)


@dataclass(frozen=True)
class Killing:
    """Kills its own process on some problems, as a system that runs out of memory does."""

    name: str = "killing"
    on: str = "hard"  # part of the names of those
    once: str = ""  # a file that says that it has done so already, if once is enough
    code: int = 0  # instead of the signal, this exit code

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        if self.on in problem.name and not (self.once and os.path.exists(self.once)):  # noqa: PTH110
            if self.once:
                os.close(os.open(self.once, os.O_CREAT))
            if self.code:
                os._exit(self.code)
            os.kill(os.getpid(), signal.SIGKILL)
        return PlacerResult.of_units(problem, np.zeros(problem.graph.num_units, int), self.name, seed)


@dataclass(frozen=True)
class Slow:
    """Takes a moment; a file in `log` per problem and seed says which process places them."""

    name: str = "slow"
    log: str = ""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        (Path(self.log) / f"{problem.name}-{seed}.pid").write_text(str(os.getpid()))
        time.sleep(0.1)
        devices = np.random.default_rng(seed).integers(2, size=problem.graph.num_units)
        return PlacerResult.of_units(problem, devices, self.name, seed)
