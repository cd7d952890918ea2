"""What a policy on disk says of itself, in `meta.json` next to its weights; read without torch."""

from pathlib import Path

import msgspec

from graphs.foundation.documents import read_document
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_links
from placers.learned.features import DEVICE_FEATURES, PAIR_FEATURES, UNIT_FEATURES

VERSION = 1
META = "meta.json"


class Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `meta.json` says."""

    schema: str = "placelab.policy"
    version: int = VERSION
    placer: str  # the folder in placers/learned that acts with this policy: "gdp"
    network: str  # spec of the network: "graphsage_transformer:width=64"
    seed: int
    simulations: int = 0  # simulations that training used
    updates: int = 0
    order_updates: int = 0  # after these, of the order head alone
    unit_features: tuple[str, ...] = UNIT_FEATURES
    device_features: tuple[str, ...] = DEVICE_FEATURES
    pair_features: tuple[str, ...] = PAIR_FEATURES
    decoder_features: tuple[str, ...] = ()  # of a policy that reads more than an observation
    order_features: tuple[str, ...] = ()  # of a policy that chooses orders
    versions: dict[str, str] = {}
    file: str = ""  # spec of the placer, "my_policy.py:build", if it is in a user's own file
    file_sha256: str = ""  # of that file, when its training began
    network_sha256: str = ""  # likewise, of the user's own file that the network is in, if it is in one

    @property
    def spec(self) -> str:
        """By which its placer is found."""
        return self.file or self.placer


def load_meta(folder: Path) -> Meta:
    """Raises InputError, naming the file, if it is missing, damaged, or of another version or other features.

    Likewise for a link in the folder that leads out of it.
    """
    path = folder / META
    if not path.is_file():
        raise InputError(
            f"{folder} holds no policy ({META} is missing); train one with `placelab train --out {folder}`"
        )
    check_links(folder)
    meta = read_document(path, Meta, version=VERSION, remedy="`placelab train` writes it")
    check_features(path, "unit", meta.unit_features, UNIT_FEATURES)
    check_features(path, "device", meta.device_features, DEVICE_FEATURES)
    check_features(path, "pair", meta.pair_features, PAIR_FEATURES)
    return meta


def check_features(path: Path, what: str, theirs: tuple[str, ...], ours: tuple[str, ...]) -> None:
    """Raise InputError, naming the file, for features that are not those of this version, in its order."""
    if theirs != ours:
        differing = ", ".join(sorted(set(theirs) ^ set(ours))) or "their order"
        raise InputError(f"{path}: this policy was trained on other {what} features ({differing}); train it again")
