"""What is sent to other processes: large parts of it once, by their content.

A parcel's bytes name its parts by their digits; a process that has met a part does not unpack it again, so that what
it has derived from the part, such as compiled tables, is still there.
"""

import hashlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import cloudpickle

from graphs.foundation.errors import InputError

KEPT_SENT = 256  # parts that a sender remembers
KEPT_MET = 16  # parts that a process keeps

Sent = TypeVar("Sent")
_met: OrderedDict[str, Any] = OrderedDict()


@dataclass(frozen=True)
class Parcel(Generic[Sent]):
    """Bytes, and what was made of each part that they name, and of the parts of parts, by its digits."""

    data: bytes
    parts: Mapping[str, Sent]


class Sender(Generic[Sent]):
    """Packs objects; those of the shared types become parts, which must not change."""

    def __init__(self, shared: tuple[type, ...], send: Callable[[bytes], Sent]) -> None:
        self._shared, self._send = shared, send
        self._sent: OrderedDict[int, tuple[object, str, Mapping[str, Sent]]] = OrderedDict()  # by identity

    def parcel(self, value: object) -> Parcel[Sent]:
        """The value's bytes. Raises InputError if it cannot be given to another process."""
        parts: dict[str, Sent] = {}
        file = io.BytesIO()
        try:
            _Packer(file, self._shared, lambda part: self._digits(part, parts), value).dump(value)
        except InputError:
            raise
        except Exception as error:  # pickling raises anything, for objects that are no plain data
            raise InputError(f"it cannot be given to another process: {error}") from error
        return Parcel(file.getvalue(), parts)

    def forget(self) -> None:
        """Send all parts again when they are needed again."""
        self._sent.clear()

    def _digits(self, part: object, parts: dict[str, Sent]) -> str:
        if id(part) not in self._sent:
            parcel = self.parcel(part)
            digits = hashlib.sha256(parcel.data).hexdigest()
            sent = next((all_of[digits] for _, _, all_of in self._sent.values() if digits in all_of), None)
            made = {**parcel.parts, digits: self._send(parcel.data) if sent is None else sent}
            self._sent[id(part)] = part, digits, made
            if len(self._sent) > KEPT_SENT:
                self._sent.popitem(last=False)
        self._sent.move_to_end(id(part))
        _, digits, known = self._sent[id(part)]
        parts.update(known)
        return digits


def packed(value: object) -> bytes:
    """The bytes of a value without parts. Raises InputError if it cannot be given to another process."""
    return Sender((), lambda data: data).parcel(value).data


def unpacked(data: bytes, parts: Mapping[str, bytes] | None = None) -> Any:
    """The value of a parcel; its parts are those met before, where they were."""
    return _Unpacker(data, parts or {}).load()


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Writes digits in the place of parts."""

    def __init__(self, file: io.BytesIO, shared: tuple[type, ...], digits: Callable[[object], str], whole: object):
        super().__init__(file)
        self._shared, self._digits_of, self._whole = shared, digits, whole

    def persistent_id(self, value: object) -> str | None:
        """The digits of a part; None for all else."""
        return self._digits_of(value) if type(value) in self._shared and value is not self._whole else None


class _Unpacker(pickle.Unpickler):
    """Reads parts where there are digits."""

    def __init__(self, data: bytes, parts: Mapping[str, bytes]) -> None:
        super().__init__(io.BytesIO(data))
        self._parts = parts

    def persistent_load(self, digits: str) -> Any:
        """The part of these digits."""
        if digits not in _met:
            _met[digits] = unpacked(self._parts[digits], self._parts)
            if len(_met) > KEPT_MET:
                _met.popitem(last=False)
        _met.move_to_end(digits)
        return _met[digits]
