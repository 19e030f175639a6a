"""Files of tensors that are whole or not there: a line of JSON, then what `torch.save` makes.

The line can be read without torch; a state without tensors is JSON itself and needs none at all.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_wrappers import files

SCHEMA = "hetsched-tensors/1"

_MOST_HEADER = 1 << 20


def write(path: Path, header: Mapping[str, object], tensors: object) -> None:
    """Write a file, over one that may be there.

    Args:
        path: the file, in a folder that is there.
        header: JSON values; `schema`, `bytes` and `crc32` are added.
        tensors: dicts, lists and tuples of tensors, numbers and texts, on whatever device.

    Raises:
        OSError: it cannot be written; what was there still is.
    """
    files.write_whole(path, [_packed(header, tensors)])


def write_once(path: Path, header: Mapping[str, object], tensors: object) -> bool:
    """Write a file unless it is there; of several that try at once one succeeds.

    Returns:
        Whether this call wrote it.

    Raises:
        OSError: it cannot be written.
    """
    return not path.exists() and files.write_once(path, [_packed(header, tensors)])


def read_header(path: Path) -> dict[str, Any]:
    """Return the line of JSON; needs no torch and does not look at the tensors' content.

    Raises:
        ValueError: the file is cut short, or no such file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        header = _header(path, file.readline(_MOST_HEADER))
        if os.fstat(file.fileno()).st_size != file.tell() + header["bytes"]:
            raise ValueError(f"{path} is cut short")
    return header


def read(path: str | Path) -> tuple[dict[str, Any], Any]:
    """Return the line of JSON and the tensors, these on the host.

    Nothing in the file is executed: torch loads only tensors and plain values.

    Raises:
        ValueError: the file is damaged, or no such file.
        OSError: it cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        header = _header(path, file.readline(_MOST_HEADER))
        content = file.read()
    if len(content) != header["bytes"] or zlib.crc32(content) != header["crc32"]:
        raise ValueError(f"{path} is damaged: its content is not what was written")
    if header.get("plain"):
        return header, json.loads(content)
    import torch

    try:
        return header, torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what it likes about what it cannot load
        raise ValueError(f"{path} holds more than tensors and plain values: {error}") from None


def _packed(header: Mapping[str, object], tensors: object) -> bytes:
    plain = _is_plain(tensors)
    content = json.dumps(tensors).encode() if plain else _saved(tensors)
    own = {"schema": SCHEMA, "plain": plain, "bytes": len(content), "crc32": zlib.crc32(content)}
    return json.dumps({**header, **own}).encode() + b"\n" + content


def _saved(tensors: object) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    return buffer.getvalue()


def _is_plain(state: object) -> bool:
    """Whether a state comes back from JSON as it was: no tensors, tuples or keys that are none."""
    if isinstance(state, dict):
        return all(type(key) is str and _is_plain(part) for key, part in state.items())
    if isinstance(state, list):
        return all(map(_is_plain, state))
    return state is None or type(state) in (bool, int, float, str)


def _header(path: Path, line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
        if header["schema"] == SCHEMA and isinstance(header["bytes"], int):
            return dict(header)
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no file of tensors")
