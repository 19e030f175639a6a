"""Letting programs that were linked with a newer glibc start on an older one.

A program names, for each library it needs, the symbol versions that it uses, and the loader refuses
it if one is missing. Here such names are pointed at an old version of the same library; the few
functions that really are new come from `shim.c`. Layouts: System V ABI, figures 4-3 and 5-2, and
the Linux Standard Base, "Symbol Versioning", for ELF64 little endian.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

_ELF64_LE = b"\x7fELF\x02\x01"
_SHT_GNU_VERNEED = 0x6FFFFFFE
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NEED = struct.Struct("<HHIII")
_NEED_ENTRY = struct.Struct("<IHHII")
_VERSION = re.compile(rb"GLIBC_(\d+)\.(\d+)")


def host_glibc() -> tuple[int, int]:
    """Return the version of the C library that this process runs with."""
    said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    match = re.search(r"(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def is_elf(path: Path) -> bool:
    """Whether a file is a program or library that `relabel` understands."""
    with path.open("rb") as file:
        return file.read(len(_ELF64_LE)) == _ELF64_LE


def relabel(path: Path, newest: tuple[int, int]) -> int:
    """Point every need for a glibc newer than `newest` at an older one, in place.

    Returns:
        How many needs were changed.
    """
    image = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", image, 0x28)
    (count,) = struct.unpack_from("<H", image, 0x3C)
    sections = [_SECTION.unpack_from(image, table + _SECTION.size * at) for at in range(count)]
    changed = 0
    for section in sections:
        if section[1] == _SHT_GNU_VERNEED:
            names = sections[section[6]][4]
            changed += _relabel_section(image, section[4], names, newest)
    if changed:
        path.write_bytes(image)
    return changed


def _relabel_section(image: bytearray, need: int, names: int, newest: tuple[int, int]) -> int:
    changed = 0
    while True:
        _, count, _, first, next_need = _NEED.unpack_from(image, need)
        too_new: list[int] = []
        old: tuple[tuple[int, int], int, int] | None = None
        entry = need + first
        for _ in range(count):
            digest, _, _, name, next_entry = _NEED_ENTRY.unpack_from(image, entry)
            text = bytes(image[names + name : image.index(0, names + name)])
            if match := _VERSION.match(text):
                version = (int(match[1]), int(match[2]))
                if version > newest:
                    too_new.append(entry)
                elif old is None or version < old[0]:
                    old = (version, digest, name)
            entry += next_entry
        if old is not None:
            for entry in too_new:
                struct.pack_into("<I", image, entry, old[1])
                struct.pack_into("<I", image, entry + 8, old[2])
            changed += len(too_new)
        if not next_need:
            return changed
        need += next_need
