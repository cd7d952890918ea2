"""The packages that placelab is made of: their names are common, and another folder on the path may hide them."""

import importlib.util
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
PACKAGES = ("graphs", "envs", "placers", "training", "evaluation")


def check_packages() -> None:
    """Raise ImportError, or end the command line, if another folder hides one of placelab's packages."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin and Path(spec.origin).resolve() == HOME / package / "__init__.py":
            continue
        where = (spec.origin or list(spec.submodule_search_locations or [])) if spec else "nothing"
        sentence = (
            f"placelab's package {package!r} is hidden by {where}; start Python in another folder, rename that one, or "
            "take it off PYTHONPATH"
        )
        is_command = Path(sys.argv[0]).stem in ("placelab", "-m")  # the script, or python -m placelab
        raise SystemExit(f"placelab: {sentence}") if is_command else ImportError(sentence)
