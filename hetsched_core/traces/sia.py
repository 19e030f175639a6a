"""Workloads of Sia and Pollux (docs/formats/published.md): each line is a job of an application.

Sources: Jayaram Subramanya et al., "Sia", SOSP '23, github.com/siasosp23/artifacts; Qiao et al.,
"Pollux", OSDI '21, github.com/petuum/adaptdl. The work of a job is that of its application: so many
epochs (`max_epochs` of `applications.py` there) of its data set (iterations times batch size of
`traces/APPLICATION/validation-*.csv`).
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched_core.errors import InputError
from hetsched_core.traces.workload import LATEST_S, RejectedJob, Workload, arrival_order
from hetsched_core.types import Job, RequirementSet, Submission

COLUMNS = ("name", "time", "application", "num_replicas")

APPLICATIONS = {
    "bert": ("bert-base-squad", 2 * 88_644),
    "cifar10": ("resnet18-cifar10", 100 * 50_000),
    "imagenet": ("resnet50-imagenet", 90 * 1_281_167),
    "ncf": ("neumf-ml20m", 10 * 4_970_845),
}
"""Application -> the built-in model that it is, and its work in samples."""


_ASSUMPTIONS = (
    "Applications of Sia have the speeds of the nearest built-in models, whatever the batch size.",
    "The work is all epochs of the application: that larger batches need more of them is left out.",
)


def is_sia(first_line: str) -> bool:
    """Whether a file with this header is such a workload."""
    return set(COLUMNS) <= set(first_line.split(","))


def read_sia(lines: Iterable[str], source: str, prefix: str, elastic: bool) -> Workload:
    """Read such a workload.

    Args:
        lines: The file's lines, from the header on.
        source: Names the file in messages.
        prefix: Begins each id: names come again in other files.
        elastic: Whether half and twice a job's GPUs will do as well.

    Raises:
        InputError: A line is not of the form; the message names it.
    """
    submissions: dict[str, Submission] = {}
    rejected = []
    header: list[str] = []
    for number, line in enumerate(lines, 1):
        cells = line.split(",")
        if not header or not line.strip():
            header = header or (cells if line.strip() else [])
            continue
        try:
            row = dict(zip(header, cells, strict=True))
            job_id, name = f"{prefix}{row['name']}", row["application"]
            gpus, time = int(row["num_replicas"]), float(row["time"])
            if not row["name"] or not 0 <= time <= LATEST_S:
                raise ValueError(f"name is {row['name']!r}, time {time:g}")
            counts = {n for n in (gpus // 2, gpus, gpus * 2) if n} if elastic else {gpus}
            requirements = RequirementSet(tuple(sorted(counts)))
        except (ValueError, InputError) as error:
            raise InputError(
                f"{source}: line {number} is no job of a workload of Sia: {error}; expected "
                f"{','.join(header)}, with a name and a time of 0 to {LATEST_S:g} s"
            ) from None
        if job_id in submissions:
            rejected.append(RejectedJob(job_id, "an earlier job has the same name", number))
        elif name not in APPLICATIONS:
            reason = f"no built-in model is its application, {name}"
            rejected.append(RejectedJob(job_id, reason, number))
        else:
            profile, samples = APPLICATIONS[name]
            job = Job(
                job_id,
                time,
                requirements,
                profile,
                total_samples=samples,
                name=name,
                asked_count=gpus,
                assumed=frozenset({"profile", "total_samples"}),
            )
            submissions[job_id] = Submission(job, samples)
    return Workload(
        tuple(sorted(submissions.values(), key=arrival_order)),
        assumptions=_ASSUMPTIONS,
        rejected=tuple(rejected),
    )
