"""What a backend's bulk read does not tell of a job, asked of squeue once for each new job."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from slurm_plugin.backend.errors import RefusedError

_FIELDS = (
    *("JobID", "tres-per-job", "tres-per-socket", "tres-per-task"),
    *("cpus-per-tres", "mem-per-tres", "Exclusive", "OverSubscribe"),
)
_FORMAT = f"--Format={','.join(f'{name}:.0|' for name in _FIELDS)}"

_MOST_NAMED = 1000
"""Beyond so many jobs, all are asked for."""

_ALONE = {"NODE": "node", "USER": "user", "MCS": "mcs", "TOPO": "topo"}


@dataclass(frozen=True, slots=True)
class Untold:
    """What squeue tells of a job, in Slurm's own texts, "" for nothing.

    `exclusive` is `node`, `user`, `mcs` or `topo`: within what it shares no node with others.
    """

    per_job: str = ""
    per_socket: str = ""
    per_task: str = ""
    cpus_per_gpu: str = ""
    memory_per_gpu: str = ""
    exclusive: str = ""


Key = tuple[object, ...]


@dataclass(slots=True)
class AskedOnce:
    """Asks by `run`, which runs a command, for the jobs that it has not seen."""

    run: Callable[[list[str]], str]
    _known: dict[str, tuple[Key, Untold]] = field(default_factory=dict)
    _sharing: list[str] = field(default_factory=list)

    def follow(self, partitions: str) -> None:
        """Ask for every job anew if partitions let jobs share nodes otherwise than before.

        Args:
            partitions: what `scontrol show partitions --oneliner` prints.
        """
        sharing = re.findall(r"\b(?:PartitionName|Exclusive|OverSubscribe)=\S+", partitions)
        if sharing != self._sharing:
            self._sharing = sharing
            self._known.clear()

    def of(self, jobs: Mapping[str, Key]) -> Mapping[str, Untold]:
        """Return what is not told of jobs; of one that has just gone, nothing.

        Args:
            jobs: Slurm's number of each job -> what differs when it has to be asked for anew. Of
                what was known then, it need only be the beginning.

        Raises:
            AwayError: Slurm does not answer.
        """
        new = [job for job, key in jobs.items() if self._key(job)[: len(key)] != key]
        if new:
            told = self._ask(new)
            # Elements of an array that wait by themselves are shown as one if not asked for so.
            if unseen := [job for job in new if job not in told]:
                told |= self._ask(unseen, "--array")
            self._known |= {job: (jobs[job], told.get(job, Untold())) for job in new}
        if len(self._known) > 2 * len(jobs) + 1000:
            self._known = {job: self._known[job] for job in jobs}
        return {job: self._known[job][1] for job in jobs}

    def _key(self, job: str) -> Key:
        return self._known[job][0] if job in self._known else ()

    def _ask(self, jobs: Collection[str], *options: str) -> dict[str, Untold]:
        named = [f"--jobs={','.join(jobs)}"] if len(jobs) <= _MOST_NAMED else []
        words = ["squeue", "--noheader", "--all", "--states=all", *options, *named, _FORMAT]
        try:
            text = self.run(words)
        except RefusedError:
            # The only one asked for has gone.
            return {}
        return dict(map(_read, text.splitlines()))


_untold = lru_cache(maxsize=4096)(Untold)  # many jobs ask for the same, and share it


def _read(line: str) -> tuple[str, Untold]:
    job, *texts, alone, shared, _ = line.split("|")
    told = ("" if text in {"N/A", "(null)"} else text for text in texts)
    per_job, per_socket, per_task, cpus_per_gpu, memory_per_gpu = told
    # Slurm up to 25.11 has no such column.
    exclusive = _ALONE.get(alone, "") if alone else exclusive_of(shared)
    return job, _untold(per_job, per_socket, per_task, cpus_per_gpu, memory_per_gpu, exclusive)


def exclusive_of(shared: str) -> str:
    """Read `OverSubscribe` as Slurm up to 25.11 shows it; later ones say NO for every job."""
    return "node" if shared == "NO" else _ALONE.get(shared, "")
