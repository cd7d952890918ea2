"""Fidelity: plans of all kinds, predicted by the simulator and measured on processes with a core each.

    python -m evaluation.studies.fidelity --cluster calibrated.toml --out runs/studies/fidelity

The cluster is what `placelab calibrate` wrote on this machine, which must have nothing else to do. The runner and
messages are calibrated again with each model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evaluation.studies.fidelity import measure, tuning
from evaluation.studies.fidelity.cases import MODELS
from evaluation.studies.fidelity.document import FidelityFindings, save
from evaluation.studies.fidelity.measure import MeasuredModel
from evaluation.studies.fidelity.tuning import TUNED, Tuned
from evaluation.studies.pieces import do_pieces, load_pieces
from evaluation.studies.study import Study, names_in, run
from graphs.foundation.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Fidelity(Study):
    """Run plans of all kinds of six models in turns, and compare them with predictions."""

    name = "fidelity"
    cluster: Path | None = None
    """The cluster file of this machine, a process per device."""
    rounds: int = 6
    """How often each plan is run."""
    models: str = ""
    """Some of the models by their names, with commas between them."""

    def do(self) -> None:
        """The models, one after another."""
        if self.cluster is None:
            raise InputError("say on what plans are run: --cluster FILE, as `placelab calibrate --out FILE` writes it")
        (self.folder / TUNED).mkdir(exist_ok=True)
        some = {name: MODELS[name] for name in names_in(self.models, "model", MODELS) or MODELS}
        jobs = measure.jobs(self.folder, some, self.cluster, self.rounds)
        do_pieces({**jobs, **tuning.jobs(self.folder, some, self.rounds)})

    def save(self, folder: Path) -> Path:
        """Write `fidelity.md` and its figure."""
        done = [piece for piece in load_pieces(self.folder, MeasuredModel) if piece.rounds == self.rounds]
        if not done:
            raise InputError(f"{self.folder}: no model was run yet in {self.rounds} rounds; leave out --write-only")
        tuned = [piece for piece in load_pieces(self.folder / TUNED, Tuned) if piece.rounds == self.rounds]
        done.sort(key=lambda piece: list(MODELS).index(piece.model))
        tuned.sort(key=lambda piece: list(MODELS).index(piece.model))
        return save(FidelityFindings(done, tuned), folder, self.command(cluster="FILE", rounds=self.rounds))


if __name__ == "__main__":
    run(Fidelity)
