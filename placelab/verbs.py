"""The command line: each of its verbs is a function of `placelab`."""

import atexit
import gc
from collections.abc import Callable

from evaluation.commands.bench_verbs import bench, verify
from evaluation.commands.calibrating import calibrate
from evaluation.commands.exporting import export
from evaluation.commands.graph_verbs import capture, fits, place, profile, show, simulate
from evaluation.commands.opening import open_page
from evaluation.commands.process_run import run
from evaluation.commands.run_verbs import cache, compare, evaluate, finetune, list_names, report, train
from evaluation.commands.sweeping import sweep

VERBS: dict[str, Callable[..., object]] = {
    "list": list_names,
    "capture": capture,
    "profile": profile,
    "show": show,
    "simulate": simulate,
    "place": place,
    "open": open_page,
    "fits": fits,
    "compare": compare,
    "train": train,
    "sweep": sweep,
    "evaluate": evaluate,
    "finetune": finetune,
    "report": report,
    "bench": bench,
    "verify": verify,
    "export": export,
    "run": run,
    "calibrate": calibrate,
    "cache": cache,
}
OBJECTS = 100_000  # between two looks for garbage: the default, 700, slows the import of torch by a fifth


def main() -> None:
    """Run the command line."""
    from evaluation.commands import command_line  # imported late: its parser is not for Python

    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)  # as Python ends it would look again, among all that was ever imported
    command_line.run(VERBS, "Find, and learn to find, the devices on which a neural network's operations run fastest.")
