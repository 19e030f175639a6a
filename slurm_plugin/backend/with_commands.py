"""The backend that runs Slurm's commands: for sites whose Slurm no pyslurm fits."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from ClusterShell.NodeSet import NodeSet

from hetsched_core.traces.sacct.fields import parse_duration
from slurm_plugin.backend.arrays import elements_of
from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Recipients,
    Release,
    Requeue,
    Signal,
    Terms,
    Together,
)
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError
from slurm_plugin.backend.gres import (
    condition,
    gpu_counts,
    gpus_in,
    gpus_per_node,
    memory_mb_in,
    node_names,
)
from slurm_plugin.backend.limits import jobs_are_private, read_limits
from slurm_plugin.backend.state import (
    Asked,
    JobState,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
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
        for name in ("squeue", "scontrol", "scancel"):
            if shutil.which(name) is None:
                raise BackendError(
                    f"there is no command {name} in PATH; install Slurm's client commands"
                )

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        nodes = _rows(_run(["scontrol", "show", "nodes", "--json"]), "nodes")
        jobs = _rows(_run(["squeue", "--all", "--states=all", "--json"]), "jobs")
        kept = _rows(_run(["scontrol", "show", "reservations", "--json"]), "reservations")
        found = (_job(row) for row in jobs)
        return SlurmState(
            tuple(map(_node, nodes)),
            {job.id: job for job in found},
            tuple(map(_reservation, kept)),
        )

    def script(self, job: str) -> str:
        """Return a job's script."""
        return script_by_command(job)

    def asked(self, job: str) -> Asked:
        """Return what a job asks for."""
        return asked_by(job)

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        configuration = _run(["scontrol", "show", "config"])
        found = re.search(r"^KillWait\s*=\s*(\d+)", configuration, re.MULTILINE)
        # As text: scontrol's JSON of partitions needs slurmdbd, which may be away.
        partitions = _run(["scontrol", "show", "partitions", "--oneliner"])
        limits = re.findall(r"PartitionName=(\S+).* MaxTime=(\S+)", partitions)
        longest_s = {name: parse_duration(text) for name, text in limits}
        kill_wait_s = float(found[1]) if found else 0.0
        private = jobs_are_private(configuration)
        return SlurmSite(kill_wait_s, longest_s, read_limits(), private)

    def apply(self, change: Change) -> None:
        """Make one change."""
        change_by_command(change)


def change_by_command(change: Change) -> None:
    """Make one change by Slurm's commands.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.apply`.
    """
    match change:
        case Hold(name, nodes, seconds, deny):
            _hold(name, nodes, seconds, deny)
        case Drop(name):
            _drop(name)
        case Enter(job, hold, nodes, None):
            _update(job, ReservationName=hold, ReqNodeList=",".join(nodes), StartTime="now")
        case Enter(job, hold, nodes, count, gpu_type, terms, _, dependency):
            _update(
                job,
                ReservationName=hold,
                ReqNodeList=",".join(nodes),
                NumNodes=len(nodes),
                NumTasks=len(nodes),
                # What is empty takes away what was asked for in another way.
                TresPerJob="",
                TresPerTask="",
                TresPerNode=f"gres/{gpus_per_node(count or 0, gpu_type)}",
                StartTime="now",
                **_terms(terms),
                **({"Dependency": dependency} if dependency else {}),
            )
        case Leave(job, own, nodes):
            named = ",".join(nodes)
            _update(
                job, ReservationName="", ReqNodeList=named, **({} if own is None else _own(own))
            )
        case Depend(job, dependency):
            _update(job, Dependency=dependency)
        case Signal(job, signal, to):
            _run(["scancel", *_RECIPIENTS[to], f"--signal={signal}", job])
        case Cancel(job):
            _run(["scancel", job])
        case Requeue(job):
            _run(["scontrol", "requeue", job])
        case Release(job):
            _run(["scontrol", "release", job])
        case Together():
            raise TypeError("what is placed together is made one by one")


_FLAGS = "FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER,OVERLAP"
"""Jobs that began before, or last longer, are no obstacle; what is left in it when it ends waits
on, like all others; and other reservations may lie on the same nodes."""


def _hold(name: str, nodes: tuple[str, ...], seconds: int, deny: str) -> None:
    end = f"EndTime=now+{seconds}seconds"
    where = f"Nodes={_listed(nodes)}"
    try:
        _run(["scontrol", "update", f"ReservationName={name}", end, where])
    except RefusedError:
        user = f"Users=-{deny}"
        made = ["scontrol", "create", "reservation", f"ReservationName={name}", "StartTime=now"]
        _run([*made, end, where, f"Flags={_FLAGS}", user])


def _drop(name: str) -> None:
    try:
        _run(["scontrol", "delete", f"ReservationName={name}"])
    except RefusedError:
        # Jobs run in it: it ends now, and they run on.
        _run(["scontrol", "update", f"ReservationName={name}", "EndTime=now+1seconds"])


def _listed(nodes: tuple[str, ...]) -> str:
    return str(NodeSet.fromlist(nodes))


def _own(own: Asked) -> dict[str, str | int]:
    """Return what puts a job back into a shape."""
    most = "" if own.most_nodes is None else f"-{own.most_nodes}"
    kind = f":{own.gpu_type}" if own.gpu_type else ""
    wanted: dict[str, str | int] = {
        "NumNodes": f"{own.least_nodes}{most}",
        "NumTasks": own.tasks,
        "TresPerNode": "",
        "TresPerJob": f"gres/gpu{kind}:{own.gpus}",
    }
    if own.cpus_per_task:
        wanted["CPUsPerTask"] = own.cpus_per_task
    if own.memory_mb_per_node:
        wanted["MinMemoryNode"] = own.memory_mb_per_node
    if own.time_limit_s is not None:
        wanted["TimeLimit"] = math.ceil(own.time_limit_s / 60.0)
    return wanted


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


def _rows(text: str, key: str) -> Iterable[Mapping[str, Any]]:
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
    nodes = () if state is JobState.PENDING else node_names(row.get("nodes"))
    tres = row.get("tres_alloc_str" if nodes else "tres_req_str") or ""
    gpus, gpu_types = gpus_in(tres)
    begin_s = _number(row, "eligible_time") or None
    minutes = _number(row, "time_limit")
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
        name=row.get("name", ""),
        user=row.get("user_name", ""),
        account=row.get("account", ""),
        partition=row.get("partition", ""),
        state=state,
        reason=_reason(row),
        mark=row.get("admin_comment", ""),
        nodes=nodes,
        pinned=node_names(row.get("required_nodes")),
        gpus=gpus,
        gpu_types=gpu_types,
        submit_s=_number(row, "submit_time") or 0.0,
        begin_s=begin_s,
        start_s=None if state is JobState.PENDING else _number(row, "start_time") or None,
        end_s=_number(row, "end_time") or None if state is JobState.ENDED else None,
        time_limit_s=None if minutes is None else minutes * 60.0,
        restarts=int(row.get("restart_cnt", 0)),
        held=bool(row.get("hold")) or _number(row, "priority") == 0.0,
        least_nodes=_whole(row, "node_count") or 1,
        most_nodes=_whole(row, "max_nodes") or None,
        memory_mb=memory_mb_in(tres),
        reservation=row.get("resv_name") or "",
        partitions=frozenset(filter(None, (row.get("partition") or "").split(","))),
        constraint=row.get("features") or "",
        excluded=node_names(row.get("excluded_nodes")),
        exclusive="exclusive" in (row.get("exclusive") or row.get("shared") or ()),
        batch=bool(row.get("batch_flag", True)),
        het=bool(_whole(row, "het_job_id")),
        throttle=_whole(row, "array_max_tasks"),
        priority=_whole(row, "priority"),
        licenses=row.get("licenses") or "",
        cpus=_whole(row, "cpus"),
        submit_line=row.get("submit_line", ""),
        qos=row.get("qos", ""),
        array=array,
        element=elements.element,
        unsplit=elements.unsplit,
        dependency=row.get("dependency", ""),
        outcome=_outcome(words) if state is JobState.ENDED else "",
    )


def script_by_command(job: str) -> str:
    """Return a job's script.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.script`.
    """
    return _run(["scontrol", "write", "batch_script", job, "-"])


def asked_by(job: str) -> Asked:
    """Return what a job asks for, each thing in the way in which its user asked.

    Raises:
        AwayError: Slurm does not answer.
        RefusedError: there is no such job.
    """
    rows = list(_rows(_run(["scontrol", "show", "job", job, "--json"]), "jobs"))
    if not rows:
        raise RefusedError(f"scontrol shows no job {job}")
    row = rows[0]
    minutes = _number(row, "time_limit")
    gpus, gpu_types = gpus_in(row.get("tres_req_str") or "")
    by_gpu = _last_number(row.get("memory_per_tres"))
    cpus_per_gpu = _last_number(row.get("cpus_per_tres"))
    return Asked(
        gpus=gpus,
        gpu_type=gpu_types[0] if len(gpu_types) == 1 else "",
        least_nodes=_whole(row, "node_count") or 1,
        most_nodes=_whole(row, "max_nodes") or None,
        tasks=_whole(row, "tasks") or 1,
        cpus_per_task=0 if cpus_per_gpu else _whole(row, "cpus_per_task") or 1,
        cpus_per_gpu=cpus_per_gpu,
        # Slurm shows what is asked for by GPU as if it were by node, too.
        memory_mb_per_node=0 if by_gpu else _whole(row, "memory_per_node"),
        memory_mb_per_cpu=_whole(row, "memory_per_cpu"),
        memory_mb_per_gpu=by_gpu,
        time_limit_s=None if minutes is None else minutes * 60.0,
    )


def _last_number(text: str | None) -> int:
    """Read the number of `gres/gpu:2`; 0 for nothing."""
    number = (text or "0").rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def _outcome(words: set[str]) -> str:
    return next((word for word in sorted(words) if word in OUTCOMES), "")


def _reason(row: Mapping[str, Any]) -> str:
    # Of a job whose launch has failed the one says that its user holds it, the other the truth.
    words = row.get("state_description") or ""
    return words if "launch" in words else row.get("state_reason", "None")


def _whole(row: Mapping[str, Any], key: str) -> int:
    return int(_number(row, key) or 0)


def _node(row: Mapping[str, Any]) -> SlurmNode:
    words = row["state"]
    return SlurmNode(
        name=row["name"],
        condition=condition([words] if isinstance(words, str) else words),
        gpus=gpu_counts(row.get("gres", "")),
        gpus_used=tuple(each for each in gpu_counts(row.get("gres_used", "")) if each[1]),
        cpus=row.get("effective_cpus") or row["cpus"],
        cpus_used=row["alloc_cpus"],
        memory_mb=row["real_memory"] - (row.get("specialized_memory") or 0),
        memory_used_mb=row["alloc_memory"],
        partitions=frozenset(row.get("partitions") or ()),
        features=frozenset(row.get("active_features") or ()),
    )


def _reservation(row: Mapping[str, Any]) -> SlurmReservation:
    return SlurmReservation(
        row["name"],
        node_names(row.get("node_list")),
        _number(row, "start_time") or 0.0,
        _number(row, "end_time") or math.inf,
    )


def _number(row: Mapping[str, Any], key: str) -> float | None:
    """Read Slurm's numbers, which may be plain, unset or infinite."""
    value = row.get(key)
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)
