"""The backend that runs Slurm's commands: for sites whose Slurm no pyslurm fits."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hetsched_core.traces.sacct.fields import parse_duration
from slurm_plugin.backend.arrays import elements_of
from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Park,
    Place,
    Push,
    Recipients,
    Release,
    Requeue,
    SetAside,
    Signal,
    Terms,
    Together,
)
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError
from slurm_plugin.backend.gres import (
    condition,
    gpu_counts,
    gpu_request,
    gpus_held,
    gpus_per_node,
    node_names,
)
from slurm_plugin.backend.limits import cluster_of, jobs_are_private, read_limits
from slurm_plugin.backend.records import state_of
from slurm_plugin.backend.state import (
    Asked,
    JobState,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    SlurmState,
)

_TIMEOUT_S = 60.0

_AWAY = (
    "Unable to contact slurm controller",
    "Unable to establish controller",
    "Connection refused",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Protocol authentication error",
    "Invalid authentication credential",
    "Munge encode failed",
    "failure to communicate",
    "Backup controller",
    "Unexpected missing socket",
    # scontrol's words for a job's change that no controller has answered.
    "Unexpected message received",
)
"""What the commands say when nobody answers: their exit code does not tell."""

# Slurm's words for a pending job may stand beside COMPLETING, which is what counts.
_STATES = (
    ("COMPLETING", JobState.COMPLETING),
    ("SUSPENDED", JobState.SUSPENDED),
    ("RUNNING", JobState.RUNNING),
    ("CONFIGURING", JobState.RUNNING),
    ("PENDING", JobState.PENDING),
)


_RECIPIENTS = {
    Recipients.STEPS: (),
    Recipients.SCRIPT: ("--batch",),
    Recipients.ALL: ("--full",),
}


OUTCOMES = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
    }
)
"""Slurm's words for how a job has ended."""


class CommandsBackend:
    """Slurm through `squeue`, `scontrol` and their JSON output (Slurm 23.11 or later)."""

    def __init__(self) -> None:
        """Look for the commands.

        Raises:
            BackendError: they are not here.
        """
        require_commands("squeue", "scontrol", "scancel")

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        nodes = _run(["scontrol", "show", "nodes", "--json"])
        return read_state(nodes, _run(["squeue", "--all", "--states=all", "--json"]))

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        configuration = read_configuration()
        found = re.search(r"^KillWait\s*=\s*(\d+)", configuration, re.MULTILINE)
        # As text: scontrol's JSON of partitions needs slurmdbd, which may be away.
        partitions = _run(["scontrol", "show", "partitions", "--oneliner"])
        limits = re.findall(r"PartitionName=(\S+).* MaxTime=(\S+)", partitions)
        longest_s = {name: parse_duration(text) for name, text in limits}
        kill_wait_s = float(found[1]) if found else 0.0
        private = jobs_are_private(configuration)
        cluster = cluster_of(configuration)
        return SlurmSite(kill_wait_s, longest_s, read_limits(), private, cluster)

    def apply(self, change: Change) -> None:
        """Make one change."""
        change_by_command(change)


def require_commands(*names: str) -> None:
    """Look for commands of Slurm's.

    Raises:
        BackendError: one is not here.
    """
    for name in names:
        if shutil.which(name) is None:
            raise BackendError(
                f"there is no command {name} in PATH; install Slurm's client commands"
            )


def read_configuration() -> str:
    """Return what `scontrol show config` prints.

    Raises:
        AwayError: Slurm does not answer.
    """
    return _run(["scontrol", "show", "config"])


def change_by_command(change: Change) -> None:
    """Make one change by Slurm's commands.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.apply`.
    """
    match change:
        case Place(job, nodes, count, _, gpu_type, terms, dependency):
            _update(
                job,
                ReqNodeList=",".join(nodes),
                NumTasks=len(nodes),
                TresPerNode=f"gres/{gpus_per_node(count, gpu_type)}",
                StartTime="now",
                **_terms(terms),
                **({} if dependency is None else {"Dependency": dependency}),
            )
        case Park(job, count, delay_s, on, gpu_type, terms):
            _update(
                job,
                ReqNodeList="",
                NumTasks=on,
                TresPerNode=f"gres/{gpus_per_node(count, gpu_type)}",
                StartTime=f"now+{delay_s}",
                **_terms(terms),
            )
        case SetAside(job):
            # scontrol takes no empty list for several elements; they have no pins yet.
            unpin = {} if "[" in job else {"ReqNodeList": ""}
            _update(job, Dependency=change.dependency, **unpin)
        case Push(job, delay_s):
            _update(job, StartTime=f"now+{delay_s}")
        case Signal(job, signal, to):
            _run(["scancel", f"--signal={signal}", *_RECIPIENTS[to], job])
        case Cancel(job):
            _run(["scancel", job])
        case Requeue(job):
            _run(["scontrol", "requeue", job])
        case Release(job):
            _run(["scontrol", "release", job])
        case Together():
            raise TypeError("what is placed together is made one by one")


def _terms(terms: Terms) -> dict[str, int]:
    wanted = {
        "TimeLimit": terms.time_limit_min,
        "CPUsPerTask": terms.cpus,
        "MinMemoryNode": terms.memory_mb,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _update(job: str, **values: str | int) -> None:
    _run(["scontrol", "update", f"JobId={job}", *(f"{k}={v}" for k, v in values.items())])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            # Names of jobs are whatever bytes their users gave.
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AwayError(f"{command[0]} has not answered within {_TIMEOUT_S:g} s") from None
    said = " ".join(done.stderr.split())
    if any(words in said for words in _AWAY):
        raise AwayError(f"{command[0]}: {said}")
    if done.returncode:
        raise RefusedError(f"{' '.join(command)}: {said or done.stdout.strip()}")
    return done.stdout


def read_state(nodes: str, jobs: str) -> SlurmState:
    """Read what `scontrol show nodes --json` and `squeue --json` print.

    Raises:
        BackendError: it has another form.
        AwayError: it tells of errors.
    """
    return state_of(_named(nodes, "nodes", "name"), _node, _named(jobs, "jobs", "job_id"), _job)


def _named(text: str, key: str, name: str) -> Iterator[tuple[object, Mapping[str, Any]]]:
    for row in _rows(text, key):
        yield row.get(name) if isinstance(row, Mapping) else None, row


def _rows(text: str, key: str) -> Iterable[Any]:
    try:
        document = json.loads(text)
        rows = document[key]
    except (ValueError, KeyError, TypeError):
        raise BackendError(
            f"Slurm's answer has no list {key!r}; this backend needs Slurm 23.11 or later"
        ) from None
    if errors := document.get("errors"):
        raise AwayError(f"Slurm answers with errors: {errors}")
    return rows if isinstance(rows, list) else []


def _job(row: Mapping[str, Any]) -> SlurmJob:
    words = row["job_state"]
    words = {words} if isinstance(words, str) else set(words)
    state = next((state for word, state in _STATES if word in words), JobState.ENDED)
    count, gpu_type = gpu_request(row.get("tres_per_node") or "")
    nodes = () if state is JobState.PENDING else node_names(row.get("nodes"))
    if not count and len(nodes) == 1:
        count = gpus_held(row.get("tres_alloc_str") or "")
    begin_s = _number(row, "eligible_time") or None
    minutes = _number(row, "time_limit")
    by_gpu = int((row.get("memory_per_tres") or "0").rpartition(":")[2])
    array = f"{_number(row, 'array_job_id') or 0:.0f}".removeprefix("0")
    task = _number(row, "array_task_id")
    elements = elements_of(
        str(row["job_id"]),
        array,
        None if task is None else int(task),
        row.get("array_task_string") or "",
    )
    return SlurmJob(
        id=elements.id,
        name=_text(row, "name"),
        user=_text(row, "user_name"),
        account=_text(row, "account"),
        partition=_text(row, "partition"),
        state=state,
        reason=_reason(row),
        mark=_text(row, "admin_comment"),
        nodes=nodes,
        pinned=node_names(row.get("required_nodes")),
        gpus_per_node=count,
        gpu_type=gpu_type,
        submit_s=_number(row, "submit_time") or 0.0,
        begin_s=begin_s,
        start_s=None if state is JobState.PENDING else _number(row, "start_time") or None,
        end_s=_number(row, "end_time") or None if state is JobState.ENDED else None,
        time_limit_s=None if minutes is None else minutes * 60.0,
        restarts=int(row.get("restart_cnt", 0)),
        held=bool(row.get("hold")) or _number(row, "priority") == 0.0,
        asked=Asked(
            cpus_per_task=0 if row.get("cpus_per_tres") else _whole(row, "cpus_per_task") or 1,
            # Slurm shows what is asked for by GPU as if it were by node, too.
            memory_mb_per_node=0 if by_gpu else _whole(row, "memory_per_node"),
            memory_mb_per_cpu=_whole(row, "memory_per_cpu"),
            memory_mb_per_gpu=by_gpu,
        ),
        cpus=_whole(row, "cpus"),
        submit_line=_text(row, "submit_line"),
        qos=_text(row, "qos"),
        array=array,
        element=elements.element,
        unsplit=elements.unsplit,
        dependency=_text(row, "dependency"),
        outcome=_outcome(words) if state is JobState.ENDED else "",
    )


def _outcome(words: set[str]) -> str:
    return next((word for word in sorted(words) if word in OUTCOMES), "")


def _reason(row: Mapping[str, Any]) -> str:
    # Of a job whose launch has failed the one says that its user holds it, the other the truth.
    words = row.get("state_description") or ""
    return words if "launch" in words else _text(row, "state_reason") or "None"


def _whole(row: Mapping[str, Any], key: str) -> int:
    return int(_number(row, key) or 0)


def _node(row: Mapping[str, Any]) -> SlurmNode:
    words = row["state"]
    return SlurmNode(
        name=_text(row, "name"),
        condition=condition([words] if isinstance(words, str) else words),
        gpus=gpu_counts(row.get("gres", "")),
        gpus_used=tuple(each for each in gpu_counts(row.get("gres_used", "")) if each[1]),
        cpus=int(row.get("effective_cpus") or row["cpus"]),
        cpus_used=int(row["alloc_cpus"]),
        memory_mb=int(row["real_memory"] - (row.get("specialized_memory") or 0)),
        memory_used_mb=int(row["alloc_memory"]),
        partitions=frozenset(row.get("partitions") or ()),
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key, "")
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, and no text")
    return value


def _number(row: Mapping[str, Any], key: str) -> float | None:
    """Read Slurm's numbers, which may be plain, unset or infinite."""
    value = row.get(key)
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)
