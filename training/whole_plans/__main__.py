"""Train a policy of whole plans on random chains of layers.

    python -m training.whole_plans --out runs/whole_plans/seed0 --labels runs/whole_plans/labels.jsonl

About a quarter of an hour on one core, of which labels take a third; further seeds may share these. Ctrl-C stops it,
and the same command with --resume goes on. `whole_plans:checkpoint=FOLDER` is then a placer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cyclopts

from graphs.foundation.engine import Workers
from graphs.foundation.errors import InputError
from training.whole_plans.run import train_whole_plans
from training.whole_plans.settings import WholePlans

app = cyclopts.App(name="whole_plans", help=__doc__, result_action="return_value", suppress_keyboard_interrupt=False)


@app.default
def main(
    *, out: Path, seed: int = 0, labels: Path | None = None, resume: bool = False,
    problems: int = WholePlans().problems, updates: int = WholePlans().updates, workers: Workers = 1,
) -> None:  # fmt: skip
    """Train.

    Args:
        out: the folder of the run.
        seed: of the weights, and of what is drawn.
        labels: a file of labels, which is added to.
        resume: go on with the run in the folder.
        problems: random problems for which a label is searched.
        updates: of REINFORCE.
        workers: processes that search for labels, or the address of a dask scheduler whose workers do.

    """
    settings = WholePlans(problems=problems, updates=updates)
    train_whole_plans(settings, out=out, seed=seed, labels=labels, resume=resume, workers=workers)


if __name__ == "__main__":
    try:
        app(sys.argv[1:])
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        print(str(stop) or "interrupted; the same command with --resume goes on", file=sys.stderr)
        sys.exit(130)
