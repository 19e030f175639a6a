"""The releases of Slurm that are known here, and the pyslurm that goes with each.

pyslurm X.Y belongs to Slurm X.Y. Debian has skipped 25.11, and 26.05 keeps its interface, with the
older names behind a switch: so pyslurm 25.11 is built unmodified against headers that call
themselves 25.11.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Version = tuple[int, ...]
"""Such as (25, 11) for a release, or (25, 11, 2)."""


class Release(NamedTuple):
    """What is known of a release of Slurm.

    Attributes:
        tried: whether the tests have run under it (docs/live/testbed.md).
        pyslurm: the version of pyslurm that was seen to work with it, "" for none.
        header_version: what Slurm's headers have to call themselves for that, "" for what they do.
        flags: what the compiler has to be told for that.
    """

    tried: bool = False
    pyslurm: str = ""
    header_version: str = ""
    flags: str = ""


RELEASES: dict[Version, Release] = {
    (24, 11): Release(tried=True),
    (25, 11): Release(pyslurm="25.11.2"),
    (26, 5): Release(
        tried=True,
        pyslurm="25.11.2",
        header_version="0x190b02",
        flags="-DSLURM_BACKWARD_COMPAT -Dslurm_free_ctl_conf=slurm_free_conf "
        "-DESLURM_ERROR_ON_DESC_TO_RECORD_COPY=ESLURM_DISABLED",
    ),
}

LEAST: Version = (23, 11)
"""The first release whose JSON the backends can read."""

_UNKNOWN = Release()


def release_of(version: str) -> Version:
    """Return the release of a version such as 25.11.2, () where that is none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()


def named(release: Version) -> str:
    """Return a release as Slurm writes it, such as 26.05."""
    return f"{release[0]}.{release[1]:02d}"


def known(release: Version) -> Release:
    """Return what is known of a release, which may be nothing."""
    return RELEASES.get(release, _UNKNOWN)
