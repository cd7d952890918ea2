"""Writers of the files of profiles and workloads that placelab reads."""

from pathlib import Path

import msgspec

from graphs.formats.msr import Workload
from graphs.formats.pipedream import LayerProfile, ProfiledLayer


def save_workload(content: Workload, path: Path) -> None:
    """Write what `load_workload` reads."""
    path.write_bytes(msgspec.json.encode(content))


def save_layer_profile(profile: LayerProfile, path: Path) -> None:
    """Write what `load_layer_profile` reads."""
    lines = [_line(layer) for layer in profile.layers] + [f"\t{u} -- {v}" for u, v in profile.edges]
    path.write_text("\n".join(lines) + "\n")


def _line(layer: ProfiledLayer) -> str:
    sizes = "; ".join(repr(size) for size in layer.activation_bytes)
    stage = "" if layer.stage is None else f", stage_id={layer.stage}"
    return (
        f"{layer.id} -- {layer.what} -- forward_compute_time={_milliseconds(layer.forward_seconds)}, "
        f"backward_compute_time={_milliseconds(layer.backward_seconds)}, "
        f"activation_size={f'[{sizes}]' if layer.has_list else sizes}, parameter_size={layer.parameter_bytes!r}{stage}"
    )


def _milliseconds(seconds: float) -> str:
    """The shortest text that is read as the same seconds."""
    candidates = (repr(round(seconds * 1e3, digits)) for digits in range(18))
    return next((text for text in candidates if float(text) / 1e3 == seconds), repr(seconds * 1e3))
