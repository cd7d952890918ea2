"""Extras: packages that a plain `pip install placelab` leaves out, since few users need each."""

from importlib.util import find_spec

from graphs.foundation.errors import InputError

EXTRAS = {
    "bokeh": "charts",
    "distributed": "cluster",
    "google.protobuf": "chakra",
    "kahip": "kahip",
    "matplotlib": "charts",
    "mlflow": "mlflow",
    "onnx": "onnx",
    "optuna": "sweep",
    "ortools": "exact",
    "stable_baselines3": "sb3",
    "tensorboard": "tensorboard",
    "torch_geometric": "pyg",
    "wandb": "wandb",
}
"""Of each package the extra that installs it."""


def missing(package: str, what: str) -> InputError:
    """The error of a package that is not installed, and that `what` needs."""
    return InputError(f"{what} needs the package {package}: pip install 'placelab[{EXTRAS[package]}]'")


def check_installed(package: str, what: str) -> None:
    """Raise InputError if a package that `what` needs is not installed."""
    if not is_installed(package):
        raise missing(package, what)


def check_extra(extra: str, what: str) -> None:
    """Raise InputError if a package of an extra that `what` needs is not installed."""
    for package in (package for package, installed_by in EXTRAS.items() if installed_by == extra):
        check_installed(package, what)


def is_installed(package: str) -> bool:
    """Whether the package could be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):  # its parent is missing; it is blocked
        return False
