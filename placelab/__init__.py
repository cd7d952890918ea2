"""placelab: find, and learn to find, the devices on which a neural network's operations run fastest.

Every verb of the command line is a function of this module, with the same keywords (evaluation/commands/*_verbs.py):

    import placelab
    placed = placelab.place("rnnlm:layers=4,steps=10", cluster="p100x4", placer="annealing:policy=default", budget=500)
    print(placed.timeline.step_seconds, placed.plan.placement)

Graphs, clusters and placers are given as objects or as text: a file, or a spec such as `rnnlm:layers=4`. `parallelize`,
which lets a model run by a plan, is for Python alone. What plans and placers are made of is here by name, too:
`Problem`, `Plan`, `Placer` and others. `__init__.pyi` lists the names; each is imported when it is first asked for.
"""

from placelab.names import imported_from as _imported_from
from placelab.names import listed as _listed
from placelab.packages import check_packages as _check_packages

_check_packages()

_NAMES = _listed()
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'placelab' has no attribute {name!r}")
    value = globals()[name] = _imported_from(*_NAMES[name])
    return value


def __dir__() -> list[str]:
    return __all__
