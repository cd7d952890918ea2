"""Which names a flag takes: for `--help`, and for completion as a shell asks for it at TAB.

Both must be quick: names are read from folders, and nothing that they name is imported.
"""

from collections.abc import Iterator
from pathlib import Path

from evaluation.commands.listing import FOLDERS, RECIPES
from graphs.files.suites import SUITES
from graphs.foundation import by_name
from training.loggers import LOGGERS

_GRAPHS = ("families", (".json", ".json.gz", ".onnx", ".txt", ".et", ".py"))
_CLUSTERS = ("clusters", (".toml", ".json"))
_PLACERS = ("placers", (".py",))
# Parameter -> the kind of thing that `placelab list` lists, and what its files end in.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "graph": _GRAPHS, "graphs": _GRAPHS, "model": _GRAPHS, "models": _GRAPHS,
    "cluster": _CLUSTERS, "clusters": _CLUSTERS,
    "placer": _PLACERS, "placers": _PLACERS,
    "cost_model": ("cost_models", (".py",)),
    "order": ("orders", (".py",)),
    "objective": ("objectives", (".py",)),
    "suite": ("suites", ()),
    "recipe": ("recipes", (".toml",)),
}  # fmt: skip
OTHERS = {
    "optimizer": ("sgd", "momentum", "adam", "adam8bit", "none"),
    "precision": (
        "auto", "fp32", "tf32", "tf32-cudnn", "bf16", "fp16", "bf16-mixed", "fp16-mixed", "fp8", "bf16-true",
        "fp16-true",
    ),
    "runtime": ("ideal", "fifo", "parallelize", "run", "replay", "torch-pipelining", "megatron"),
    "host": ("none", "eager", "megatron", "compiled", "replayed"),
    "reserve": ("none", "cuda"),
    "device": ("cpu", "cuda"),
    "logger": LOGGERS,
}  # fmt: skip


def names_for(parameter: str) -> tuple[str, ...]:
    """The names that a parameter takes; none for a parameter that takes something else."""
    if parameter in OTHERS:
        return OTHERS[parameter]
    kind = KINDS.get(parameter, ("", ()))[0]
    if kind == "recipes":
        return tuple(sorted(file.stem for file in RECIPES.glob("*.toml")))
    if kind == "suites":
        return tuple(SUITES)
    names = by_name.names(FOLDERS[kind]) if kind else ()
    return tuple(name.replace("_", "-") for name in names) if kind == "objectives" else names


def completions(parameter: str, typed: str) -> list[str]:
    """What completes a word that is half typed: names, names after a comma, and files."""
    before, comma, last = typed.rpartition(",")
    names = [f"{before}{comma}{name}" for name in names_for(parameter)]
    return [*names, *(f"{before}{comma}{path}" for path in _files(last, KINDS.get(parameter, ("", ()))[1]))]


def _files(typed: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Files with one of the endings, and folders, that begin as is typed."""
    folder, slash, start = typed.rpartition("/")
    place = Path(folder or slash or ".")
    if not endings or not place.is_dir():
        return
    for path in sorted(place.iterdir()):
        if path.name.startswith(start) and not path.name.startswith("."):
            if path.is_dir():
                yield f"{folder}{slash}{path.name}/"
            elif path.name.endswith(endings):
                yield f"{folder}{slash}{path.name}"
