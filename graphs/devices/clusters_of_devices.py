"""The cluster that devices in place of one make up: "a100x2" are the devices of `mixed:a100-80gbx2,link=nvlink3`."""

import re
from typing import NamedTuple

from graphs.devices.catalogue import catalogue
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

_DEVICES = re.compile(r"(?P<name>.+?)(?:x(?P<count>[1-9]\d{0,2}))?(?:@(?P<link>.+))?")
_LEFT_OUT = re.compile(r"nvidia|geforce|tesla|instinct|[-_ ]")
NETWORK = "10gbe"  # between servers, where several are named


class _Devices(NamedTuple):
    """Some of one name."""

    name: str  # in the catalogue
    number: int
    link: str


def cluster_of_devices(text: str) -> str:
    """The spec of the cluster that devices of the catalogue make up, on the links of their boards; "" for other text.

    Devices are joined by +, servers by /, as in `mixed`. Of several devices of a name, such as "a100", it is that of
    the largest memory. Raises InputError for devices of which some are in the catalogue and others are not, and for
    those that are not joined by +.
    """
    _check_joined(text)
    servers = []
    for server in text.split("/"):
        found = [each for each in map(_meant, server.split("+")) if each is not None]
        is_alone = len(found) == 1 and found[0].number == 1
        if len(found) <= server.count("+") or not (is_alone or all(each.link for each in found)):
            return ""
        servers.append([each._replace(link="") for each in found] if is_alone else found)
    links = {each.link for server in servers for each in server} - {""}
    same = f",link={min(links)}" if len(links) == 1 else ""
    shown = "/".join("+".join(_written(each, same) for each in server) for server in servers)
    return f"mixed:{shown}{same}{f',network={NETWORK}' if len(servers) > 1 else ''}"


def _check_joined(text: str) -> None:
    parts = re.split(r"[+/,]", text)
    unknown = [part for part in parts if _meant(part) is None]
    if len(unknown) == len(parts):
        return
    if unknown:
        raise InputError(f"{text}: {by_name.unknown('device', unknown[0], catalogue().devices)}")
    if "," in text:
        raise InputError(f"{text}: devices of a server are joined by +, as in {text.replace(',', '+')}")


def _written(devices: _Devices, same: str) -> str:
    counted = f"{devices.name}x{devices.number}" if devices.number > 1 else devices.name
    return counted if same or not devices.link else f"{counted}@{devices.link}"


def _meant(text: str) -> _Devices | None:
    """Devices of the catalogue, and what joins them; None for a name that means none."""
    match, known = _DEVICES.fullmatch(text), catalogue()
    alike = [name for name in known.devices if match and _is_called(name, match["name"])]
    if match is None or not alike:
        return None
    name = max(alike, key=lambda each: known.device(each).memory_bytes)
    return _Devices(name, int(match["count"] or 1), match["link"] or known.devices[name].link)


def _is_called(name: str, text: str) -> bool:
    """Whether a name of the catalogue is what a text means: "a100-80gb" is "A100" or "a10080", "rtx4090" "4090"."""
    asked = _LEFT_OUT.sub("", text.lower())
    whole = _LEFT_OUT.sub("", name)
    names = {whole, whole.removesuffix("gb"), _LEFT_OUT.sub("", name.rpartition("-")[0])} - {"", "rtx"}
    return not names.isdisjoint({asked, f"rtx{asked}"})
