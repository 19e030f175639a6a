"""The files that a report was made from, so that another reader can tell that they are the same."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read: its path as given, its bytes, its SHA-256; "" for what is no file."""

    path: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """Read a file once more; of a pipe, which can be read only once, the path must do."""
        if not path.is_file():
            return cls(str(path), 0, "")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(str(path), path.stat().st_size, digest)
