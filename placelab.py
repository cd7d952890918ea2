"""placelab: find, and learn to find, the devices on which a neural network's operations run fastest.

Every verb of the command line is a function of this module, with the same keywords (evaluation/commands/*_verbs.py):

    import placelab
    placed = placelab.place("rnnlm:layers=4,steps=10", cluster="p100x4", placer="annealing:policy=default", budget=500)
    print(placed.timeline.step_seconds, placed.plan.placement)

Graphs, clusters and placers are given as objects or as text: a file, or a spec such as `rnnlm:layers=4`. `parallelize`,
which lets a model run by a plan, is for Python alone.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

HOME = Path(__file__).resolve().parent
for package in ("graphs", "envs", "placers", "training", "evaluation"):  # common names, which another folder may hide
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != HOME / package / "__init__.py":
        where = (spec.origin or list(spec.submodule_search_locations or [])) if spec else "nothing"
        sentence = (
            f"placelab's package {package!r} is hidden by {where}; start Python in another folder, rename that one, or "
            "take it off PYTHONPATH"
        )
        raise SystemExit(f"placelab: {sentence}") if Path(sys.argv[0]).stem == "placelab" else ImportError(sentence)

# once these packages are known to be ours
from evaluation.commands.bench_verbs import bench, verify  # noqa: E402
from evaluation.commands.calibrating import calibrate  # noqa: E402
from evaluation.commands.exporting import export  # noqa: E402
from evaluation.commands.graph_verbs import capture, fits, place, profile, show, simulate  # noqa: E402
from evaluation.commands.process_run import run  # noqa: E402
from evaluation.commands.run_verbs import cache, compare, evaluate, finetune, list_names, report, train  # noqa: E402
from evaluation.commands.running import parallelize  # noqa: E402
from evaluation.commands.sweeping import sweep  # noqa: E402
from graphs.foundation.errors import DoesNotFitError, InputError  # noqa: E402

__all__ = [
    "DoesNotFitError", "InputError", "bench", "cache", "calibrate", "capture", "compare", "evaluate", "export",
    "finetune", "fits", "list_names", "main", "parallelize", "place", "profile", "report", "run", "show", "simulate",
    "sweep", "train", "verify",
]  # fmt: skip

VERBS: dict[str, Callable[..., object]] = {
    "list": list_names, "capture": capture, "profile": profile, "show": show, "simulate": simulate, "place": place,
    "fits": fits, "compare": compare, "train": train, "sweep": sweep, "evaluate": evaluate, "finetune": finetune,
    "report": report, "bench": bench, "verify": verify, "export": export, "run": run, "calibrate": calibrate,
    "cache": cache,
}  # fmt: skip


OBJECTS = 100_000  # between two looks for garbage: the default, 700, slows the import of torch by a fifth


def main() -> None:
    """Run the command line."""
    from evaluation.commands import command_line  # imported late: its parser is not for Python

    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)  # as Python ends it would look again, among all that was ever imported
    command_line.run(VERBS, "Find, and learn to find, the devices on which a neural network's operations run fastest.")


if __name__ == "__main__":
    main()
