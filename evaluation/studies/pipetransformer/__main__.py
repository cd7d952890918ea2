"""What each part of PipeTransformer is worth: a training run as a sequence of plans, each simulated.

    python -m evaluation.studies.pipetransformer

It takes some minutes, and keeps nothing if it is stopped. `runs/studies/pipetransformer` then holds
`pipetransformer.md` and a figure.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import command_of, run
from evaluation.studies.pipetransformer.document import Findings, save
from evaluation.studies.pipetransformer.fit import fitted


def study(*, out: Path = Path("runs/studies/pipetransformer")) -> Path:
    """Simulate the plans of ten epochs, with all parts and without some.

    Args:
        out: the folder for the document.

    """
    return save(Findings.of(fitted()), out, command_of("pipetransformer"))


if __name__ == "__main__":
    run(study, "pipetransformer", __doc__)
