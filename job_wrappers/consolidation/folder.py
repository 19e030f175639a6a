"""The folder through which the copies of a job and their tracker know of each other."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_wrappers import tensor_file

SCHEMA = "hetsched-round/1"
COPY_SCHEMA = "hetsched-copy/1"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Share:
    """What a copy is to do in a round.

    Attributes:
        steps: at most so many.
        first: its place in the order of all steps that were ever given out, from 0: it takes the
            batches `first` to `first + steps - 1`, which no other copy takes.
    """

    steps: int
    first: int


@dataclass(frozen=True)
class ConsolidationRound:
    """A round as its file tells it.

    Attributes:
        number: from 0.
        done: steps of all copies that have become part of the model before it.
        shares: copy -> what it is to do; of no copy at all, the job is over.
        ends_s: when copies are to report whatever they have, seconds UTC; None for no such time.
    """

    number: int
    done: int
    shares: Mapping[str, Share]
    ends_s: float | None = None


@dataclass(eq=False)
class Folder:
    """The folder of a job, as its tracker and its copies know it.

    Attributes:
        path: which is there, on a file system with hard links that all nodes see.
        nonce: names the job; files of another one are not taken.
    """

    path: Path
    nonce: str

    def round(self) -> ConsolidationRound | None:
        """Return the newest round; None before the first.

        Raises:
            ValueError: its file is of another job, or damaged.
        """
        names = sorted(self.path.glob("round-??????.json"))
        if not names:
            return None
        try:
            with names[-1].open("rb") as file:
                said = json.loads(file.read(_MOST_BYTES))
            if said["schema"] == SCHEMA and said["nonce"] == self.nonce:
                shares = {str(k): Share(**share) for k, share in said["shares"].items()}
                return ConsolidationRound(
                    int(said["number"]), int(said["done"]), shares, said["ends_s"]
                )
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{names[-1]} is damaged: it is no round of a job") from None
        raise ValueError(f"{names[-1]} is of another job: give every job a folder of its own")

    def model_path(self, number: int) -> Path:
        """Return the file with what the copies of a round start from."""
        return self.path / f"model-{number:06}.tensors"

    def report_path(self, number: int, copy: str) -> Path:
        """Return the file with what a copy has made of a round."""
        return self.path / f"round-{number:06}.{checked_name(copy)}.tensors"

    def present_path(self, copy: str) -> Path:
        """Return the file by which a copy says that it takes part."""
        return self.path / f"copy-{checked_name(copy)}.json"

    def present(self) -> dict[str, float]:
        """Return copy -> when it joined (seconds UTC), of those that take part."""
        joined = map(self._joined, sorted(self.path.glob("copy-*.json")))
        return dict(each for each in joined if each is not None)

    def _joined(self, path: Path) -> tuple[str, float] | None:
        """Return a copy and when it joined; None if it has just left, or is of another job."""
        try:
            with path.open("rb") as file:
                said = json.loads(file.read(_MOST_BYTES))
            if said["schema"] != COPY_SCHEMA or said["nonce"] != self.nonce:
                return None
            return checked_name(str(said["copy"])), float(said["joined_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def newest_model(self) -> tuple[int, Any]:
        """Return the steps in the newest model, and its state: when the job is over, its result.

        Raises:
            FileNotFoundError: there is none yet.
            ValueError: it is of another job, or damaged.
        """
        names = sorted(self.path.glob("model-??????.tensors"))
        if not names:
            raise FileNotFoundError(f"{self.path}: no copy has offered a start yet")
        header, state = tensor_file.read(names[-1])
        if header.get("nonce") != self.nonce:
            raise ValueError(f"{names[-1]} is of another job")
        return int(header["done"]), state

    def header(self, path: Path, number: int) -> dict[str, Any]:
        """Return the first line of a file of this job and round; needs no torch.

        Raises:
            ValueError: the file is of another job or round, or damaged.
            OSError: it is not there.
        """
        header = tensor_file.read_header(path)
        if header.get("nonce") != self.nonce or header.get("number") != number:
            raise ValueError("it is of another job or round")
        return header


def checked_name(copy: str) -> str:
    """Return a name that can be part of a file's.

    Raises:
        ValueError: it cannot.
    """
    if not _NAME.fullmatch(copy):
        raise ValueError(f"copy {copy!r}: expected letters, digits and . _ -")
    return copy
