"""A file that is appended to without a buffer, so that it fails where it is written and not where it is closed."""

from io import FileIO
from pathlib import Path

from graphs.foundation.files import named_if_refused


class AppendedFile:
    """A file to append to. Raises InputError, naming the file, if it cannot be written."""

    def __init__(self, path: Path) -> None:
        """The folder is made if need be."""
        self._path = path
        with named_if_refused(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(path, "a")

    def write(self, content: bytes) -> None:
        """Append all of it."""
        with named_if_refused(self._path):
            while content:
                content = content[self._file.write(content) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
