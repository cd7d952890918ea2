"""What `--help` says in addition to docstrings, and what `placelab` alone says: examples, and names that flags take."""

import inspect
from collections.abc import Callable

from evaluation.commands.flag_values import names_for

# Headings of `placelab --help`, and the verbs below each with an example or two. Files are those that the examples of
# other verbs write; my_model.py has a function `model` that returns a module and example inputs.
EXAMPLES: dict[str, dict[str, tuple[str, ...]]] = {
    "Plans": {
        "place": (
            "placelab place my_model.py:model --cluster v100x4 --out mine.plan.json",
            "placelab place bert:bert-large --cluster p100x4 --plans placement --budget 300",
            "placelab place rnnlm:layers=2,steps=8 --placer metis",
        ),
        "compare": (
            "placelab compare mine.graph.json --clusters v100x4 --placers default,metis",
            "placelab compare --suite placeto --budget 100 --journal results.jsonl",
        ),
        "fits": ("placelab fits my_model.py:model --cluster v100x4 --batch 256",),
        "simulate": (
            "placelab simulate bert bert.plan.json --gantt step.html --trace step.json",
            "placelab simulate mine.graph.json mine.plan.json --cluster v100x4 --robust",
        ),
        "open": ("placelab open my_model.py:model --cluster v100x4",),
        "run": ("placelab run my_model.py:model mine.plan.json --cluster v100x4 --steps 20",),
        "export": ("placelab export my_model.py:model mine.plan.json --cluster v100x4 --to vllm",),
    },
    "Graphs and measurements": {
        "capture": ("placelab capture my_model.py:model --out mine.graph.json",),
        "show": ("placelab show mine.graph.json --draw mine.html",),
        "profile": ("placelab profile my_model.py:model --out mine.profile.json",),
        "calibrate": ("placelab calibrate --out this_machine.cluster.toml",),
    },
    "Policies": {
        "train": (
            "placelab train sequential --out runs/mine --set ppo.updates=200",
            "placelab train sequential --out runs/other --logger tensorboard,wandb",
            'placelab train gdp --seeds 3 --set \'problems.families=["bert", "vit"]\'',
        ),
        "sweep": ("placelab sweep gdp --over ppo.learning_rate=1e-4..1e-2:log --trials 20",),
        "evaluate": ("placelab evaluate runs/mine --budget 100",),
        "finetune": ("placelab finetune runs/mine my_model.py:model --cluster v100x4",),
        "report": ("placelab report runs/mine", "placelab report runs/gdp-seed0 runs/gdp-seed1 runs/gdp-seed2"),
    },
    "Benchmark": {
        "bench": (
            "placelab bench metis --suites gdp12,placeto --out runs/metis",
            "placelab bench annealing --suites heldout --workers 2 --out runs/annealing",
        ),
        "verify": ("placelab verify runs/metis", "placelab verify"),
    },
    "What there is": {
        "list": ("placelab list placers",),
        "cache": ("placelab cache clear",),
    },
}

FIRST_STEPS = (
    "placelab place rnnlm:layers=2,steps=8 --out first.plan.json",
    "placelab simulate rnnlm:layers=2,steps=8 first.plan.json --gantt first.html",
    "placelab compare rnnlm:layers=2,steps=8 --placers default,metis,heft",
)
START = f"""\
placelab finds plans for neural networks: which device runs each operation, and
when. Three commands that work as they are: find a plan for a language model on
two GPUs, draw its training step, and compare with what other placers find.

{chr(10).join(f"  {line}" for line in FIRST_STEPS)}

Then your own model: a function that returns (module, example inputs).

  placelab place my_model.py:model --cluster v100x4

`placelab --help` lists all commands, `placelab place --help` explains one, and
`placelab list` names families of models, clusters and placers.
"""


HEADINGS = {verb: heading for heading, verbs in EXAMPLES.items() for verb in verbs}  # in the order of --help


def help_ending(name: str, verb: Callable[..., object]) -> str:
    """Markdown that the help of a verb ends with: names that its flags take, and examples."""
    named = [_names(parameter) for parameter in inspect.signature(verb).parameters if names_for(parameter)]
    examples = [f"    {line}" for verbs in EXAMPLES.values() for line in verbs.get(name, ())]
    title = "Names that flags take (`placelab list` says what they are):"
    lines = [title, "", *named, ""] if named else []
    return "\n".join([*lines, "Examples:" if len(examples) > 1 else "Example:", "", *examples])


def _names(parameter: str) -> str:
    return f"- `--{parameter.replace('_', '-')}`: {', '.join(names_for(parameter))}"
