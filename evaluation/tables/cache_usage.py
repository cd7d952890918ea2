"""What the cache of captured graphs holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.text import Text

from evaluation.records.formatting import memory
from evaluation.records.printed import Printed
from graphs.capture.cache import KIND, MOST_BYTES, kept_bytes
from graphs.foundation.cache_folder import cache_folder


@dataclass(frozen=True)
class CacheUsage(Printed):
    """Where the cache is, how many graphs it holds, and how many bytes they take."""

    folder: str
    graphs: int
    bytes: int
    most_bytes: int = MOST_BYTES  # the least recently used are removed beyond

    @classmethod
    def now(cls) -> CacheUsage:
        """As it is. Raises InputError where there is no place for a cache."""
        sizes = kept_bytes()
        return cls(str(cache_folder(KIND)), len(sizes), sum(sizes))

    def to_json(self) -> dict[str, object]:
        """As a flat record."""
        return asdict(self)

    def _shown(self) -> Text:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs:,} graphs"
        return Text(f"{self.folder}: {graphs}, {memory(self.bytes)} of at most {memory(self.most_bytes)}")
