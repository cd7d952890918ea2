"""A journal of runs: what each plan took, a line at a time, so that a search that was stopped runs none of them again.

    {"of": "1f0c...", "plan": "9ab3...", "seconds": 0.0123}     null for a plan that did not run to its end

`of` says what was run: problem, model, devices and steps. A line that was being written when the process was killed is
left out, and that plan is run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

from envs.plans.plan import Plan
from graphs.foundation.errors import InputError
from graphs.foundation.files import named_if_refused


class RunJournal:
    """The seconds of plans that were run, in a file that several problems may share; in none if it has no path."""

    def __init__(self, path: str, of: str) -> None:
        """`of` is all that decides what a plan takes. Raises InputError for a file that is no journal."""
        self._path = Path(path) if path else None
        self._of = hashlib.sha256(of.encode()).hexdigest()[:16]
        self._seconds = dict[str, float]()
        self._begin = b""
        if self._path is not None and self._path.exists():
            content = self._path.read_bytes()
            self._begin = b"" if content.endswith(b"\n") or not content else b"\n"
            for line in content.splitlines():
                self._read(line)

    def seconds(self, plan: Plan) -> float | None:
        """What a plan took, infinite if it did not run to its end; None if it was not run."""
        return self._seconds.get(_key(plan))

    def add(self, plan: Plan, seconds: float) -> None:
        """Write down what a plan took; it is on the disk afterwards. Raises InputError for a file that is refused."""
        self._seconds[_key(plan)] = seconds
        if self._path is None:
            return
        line = {"of": self._of, "plan": _key(plan), "seconds": seconds if math.isfinite(seconds) else None}
        with named_if_refused(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(self._begin + json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        self._begin = b""

    def _read(self, line: bytes) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            if line.startswith(b'{"of"'):
                return  # it was being written
            raise InputError(f"{self._path} is no journal of runs: {line[:40]!r}; name another file") from None
        if not isinstance(found, dict) or not {"of", "plan", "seconds"} <= set(found):
            raise InputError(f"{self._path} is no journal of runs: {line[:40]!r}; name another file")
        if found["of"] == self._of:
            self._seconds[found["plan"]] = math.inf if found["seconds"] is None else float(found["seconds"])


def _key(plan: Plan) -> str:
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:16]
