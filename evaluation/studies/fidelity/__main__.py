"""Fidelity: plans of all kinds, predicted by the simulator and measured on processes with a core each.

    python -m evaluation.studies.fidelity --cluster calibrated.toml --out runs/studies/fidelity

The cluster is what `placelab calibrate` wrote on this machine, which must have nothing else to do. The runner and
messages are calibrated again with each model. Ctrl-C stops it, and the same command resumes. The folder then holds
`fidelity.md`, a figure and all measurements.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.studies.command import WriteOnly, command_of, names_in, run
from evaluation.studies.fidelity import measure, tuning
from evaluation.studies.fidelity.cases import MODELS
from evaluation.studies.fidelity.document import FidelityFindings, save
from evaluation.studies.fidelity.measure import MeasuredModel
from evaluation.studies.fidelity.tuning import TUNED, Tuned
from evaluation.studies.pieces import load_pieces, pieces_done
from graphs.foundation.errors import InputError


def study(
    *,
    cluster: Path | None = None,
    rounds: int = 6,
    models: str = "",
    out: Path = Path("runs/studies/fidelity"),
    document: Path | None = None,
    write_only: WriteOnly = False,
) -> Path:
    """Run all plans of all models in turns.

    Args:
        cluster: the cluster file of this machine, a process per device.
        rounds: how often each plan is run.
        models: some of the models by their names, with commas between them.
        out: the folder that keeps what is done.
        document: a folder for the document; without it, `out`.
        write_only: write the document from what is done, and do nothing else.

    """
    if not write_only:
        if cluster is None:
            raise InputError("say on what plans are run: --cluster FILE, as `placelab calibrate --out FILE` writes it")
        chosen = names_in(models, "model", MODELS) or list(MODELS)
        (out / TUNED).mkdir(parents=True, exist_ok=True)
        some = {name: MODELS[name] for name in chosen}
        list(pieces_done([*measure.jobs(out, some, cluster, rounds), *tuning.jobs(out, some, rounds)]))
    done = [piece for piece in load_pieces(out, MeasuredModel) if piece.rounds == rounds]
    if not done:
        raise InputError(f"{out}: no model was run yet in {rounds} rounds")
    tuned = [piece for piece in load_pieces(out / TUNED, Tuned) if piece.rounds == rounds]
    done.sort(key=lambda piece: list(MODELS).index(piece.model))
    tuned.sort(key=lambda piece: list(MODELS).index(piece.model))
    return save(FidelityFindings(done, tuned), document or out, command_of("fidelity", cluster="FILE", rounds=rounds))


if __name__ == "__main__":
    run(study, "fidelity", __doc__)
