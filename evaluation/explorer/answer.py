"""Answer: what a request is answered with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec


@dataclass(frozen=True)
class Answer:
    """A status, and content of a kind."""

    content: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
        """An answer in JSON."""
        return cls(msgspec.json.encode(content), "application/json", status)

    @classmethod
    def refusal(cls, sentence: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> Answer:
        """Why there is no other answer, in a sentence."""
        return cls.of({"error": sentence}, status)

    @classmethod
    def file(cls, name: str, content: bytes, kind: str = "application/octet-stream") -> Answer:
        """A file to keep; its name has letters, digits, "-", "_" and "." alone."""
        return cls(content, kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
