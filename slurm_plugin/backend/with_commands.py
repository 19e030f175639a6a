"""The backend that runs Slurm's commands: for sites whose Slurm no pyslurm fits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hetsched_core.traces.sacct.fields import parse_duration
from slurm_plugin.backend.accounting import AccountingReader
from slurm_plugin.backend.arrays import elements_of
from slurm_plugin.backend.asked_once import AskedOnce
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
    RequeueEnded,
    Signal,
    Terms,
    Together,
)
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError, TakenError
from slurm_plugin.backend.gres import (
    NO_LIMIT,
    condition,
    gpu_counts,
    gpu_part,
    gpus_in,
    gpus_in_use,
    is_asleep,
    licenses_in,
    memory_mb_in,
    node_names,
    node_range,
    other_gres,
)
from slurm_plugin.backend.limits import cluster_of, cpus_per_node, jobs_are_private
from slurm_plugin.backend.records import state_of
from slurm_plugin.backend.running import require_commands, run_command
from slurm_plugin.backend.shares import unbilled, weighs
from slurm_plugin.backend.site import SlurmSite
from slurm_plugin.backend.splits import Splits
from slurm_plugin.backend.state import (
    HostRequest,
    JobState,
    Resources,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SlurmState,
)

# Slurm's words for a pending job may stand beside COMPLETING, which is what counts.
_STATES = (
    ("COMPLETING", JobState.COMPLETING),
    ("SUSPENDED", JobState.SUSPENDED),
    ("RUNNING", JobState.RUNNING),
    ("CONFIGURING", JobState.RUNNING),
    ("PENDING", JobState.PENDING),
)


_PLAIN = re.compile(r"[\w=.,:/\[\]+*?%@-]+")
"""Words that scontrol reads from its input as it does from its command line."""

SIGNAL_S = 4.0
"""Where a job is just being queued again, scancel tries anew after 5 s, and so on for 45 s.

It would not only keep everything waiting, but in the end stop the job's next run.
"""

_RECIPIENTS = {
    Recipients.STEPS: (),
    Recipients.SCRIPT: ("--batch",),
    Recipients.ALL: ("--full",),
}


HOLD_FLAGS = "FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER,OVERLAP"
"""A job may run for longer than the reservation. That may be made over jobs that run and over other
reservations, and what waits in it when it ends is not held."""

OUTCOMES = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
    }
)
"""Slurm's words for how a job has ended."""

_COMES_BACK = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
"""Words beside COMPLETING of a job that will be queued again; it may have an outcome, too."""


class CommandsBackend:
    """Slurm through `squeue`, `scontrol` and their JSON output (Slurm 23.11 or later)."""

    def __init__(self) -> None:
        """Look for the commands.

        Raises:
            BackendError: they are not here.
        """
        require_commands("squeue", "scontrol", "scancel")
        self._once, self._splits = AskedOnce(run_command), Splits(run_command)
        self._accounting = AccountingReader()

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        nodes = _node_rows()
        jobs = _rows(run_command(["squeue", "--all", "--states=all", "--json"]), "jobs")
        waiting = {
            str(row["job_id"]): row
            for row in jobs
            if isinstance(row, Mapping) and "PENDING" in (row.get("job_state") or ())
        }
        once = self._once.of({job: (_number(row, "submit_time"),) for job, row in waiting.items()})
        exclusive = {job: untold.exclusive for job, untold in once.items()}
        state = self._splits.told(read_state(nodes, jobs, exclusive))
        return replace(state, reservations=read_reservations())

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        return site_by_command(self._accounting, self._once)

    def script(self, job: str) -> str:
        """Return a job's script."""
        return script_by_command(job)

    def apply(self, change: Change) -> None:
        """Make one change."""
        change_by_command(change)


def site_by_command(accounting: AccountingReader, once: AskedOnce) -> SlurmSite:
    """Return what the site has set; `once` follows it.

    Raises:
        AwayError: as `SlurmBackend.site`.
    """
    configuration = read_configuration()
    kill_wait = re.search(r"^KillWait\s*=\s*(\d+) sec", configuration, re.MULTILINE)
    # As text: scontrol's JSON of partitions needs slurmdbd, which may be away.
    partitions = run_command(["scontrol", "show", "partitions", "--oneliner"])
    once.follow(partitions)
    limits = re.findall(r"PartitionName=(\S+).* MaxTime=(\S+)", partitions)
    told = accounting.latest(configuration)
    return SlurmSite(
        float(kill_wait[1]) if kill_wait else 0.0,
        {name: parse_duration(text) for name, text in limits},
        told.limits,
        jobs_are_private(configuration),
        cluster_of(configuration),
        told.shares,
        cpus_per_node(partitions),
        read_licenses(),
        unbilled(partitions) if weighs(configuration, "FairShare") else frozenset(),
    )


def read_configuration() -> str:
    """Return what `scontrol show config` prints.

    Raises:
        AwayError: Slurm does not answer.
    """
    return run_command(["scontrol", "show", "config"])


def read_licenses() -> dict[str, int]:
    """Return how many licences of each kind jobs may have together, as far as Slurm tells."""
    found: dict[str, int] = {}
    for line in run_command(["scontrol", "show", "licenses", "--oneliner"]).splitlines():
        told = dict(re.findall(r"(\w+)=(\S+)", line))
        if name := told.pop("LicenseName", ""):
            counts = {key: int(value) for key, value in told.items() if value.isdecimal()}
            # What others have of a licence that several clusters share.
            gone = counts.get("Reserved", 0) + counts.get("LastDeficit", 0)
            found[name] = counts.get("Total", 0) - gone
    return found


def script_by_command(job: str) -> str:
    """Return a job's script.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.script`.
    """
    return run_command(["scontrol", "write", "batch_script", job, "-"])


def change_by_command(change: Change) -> None:
    """Make one change by Slurm's commands.

    Raises:
        AwayError, RefusedError: as `SlurmBackend.apply`.
    """
    match change:
        case Enter(job, reservation, nodes, _, resources, terms, due, dependency, partitions):
            _update(
                job,
                **({"ReqNodeList": ",".join(nodes)} if nodes else {}),
                **_request(resources),
                **_terms(terms),
                ReservationName=reservation,
                **({"StartTime": "now"} if due else {}),
                **({"Dependency": dependency} if dependency else {}),
                **({"Partition": ",".join(partitions)} if partitions else {}),
            )
        case Leave(job, nodes, resources, terms, partitions):
            _update(
                job,
                ReservationName="",
                ReqNodeList=",".join(nodes),
                **_request(resources),
                **_terms(terms),
                **({"Partition": ",".join(partitions)} if partitions else {}),
            )
        case Depend(job, dependency):
            _update(job, Dependency=dependency)
        case Hold():
            _hold(change)
        case Drop(name):
            drop_by_command(name)
        case Signal(job, signal, to):
            # Without `--ctld` scancel asks for the job's steps itself, and tries for minutes where
            # Slurm keeps other elements of the job's array as one that waits.
            words = ["scancel", "--ctld", f"--signal={signal}", *_RECIPIENTS[to], job]
            run_command(words, timeout_s=SIGNAL_S, late=RefusedError)
        case Cancel(job):
            run_command(["scancel", job])
        case Requeue(job):
            run_command(["scontrol", "requeue", "incomplete", job])
        case RequeueEnded(job):
            run_command(["scontrol", "requeue", job])
        case Release(job):
            run_command(["scontrol", "release", job])
        case Together():
            raise TypeError("what is placed together is made one by one")


def _terms(terms: Terms) -> dict[str, int]:
    wanted = {
        "TimeLimit": terms.time_limit_min,
        "TasksPerNode": terms.tasks_per_node,
        "CPUsPerTask": terms.cpus,
        "NumCPUs": terms.cpus_in_all,
        "MinCPUsNode": terms.cpus and terms.cpus * (terms.tasks_per_node or 1),
        "MinMemoryNode": terms.memory_mb,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _request(resources: Resources | None) -> dict[str, str | int]:
    if resources is None:
        return {}
    nodes = resources.nodes and f"{resources.nodes[0]}-{resources.nodes[1] or NO_LIMIT}"
    wanted = {
        "NumNodes": nodes,
        "NumTasks": resources.tasks,
        # All of them at once, since Slurm looks at what they give together.
        "TresPerJob": resources.per_job,
        "TresPerNode": resources.per_node,
        "TresPerSocket": resources.per_socket,
        "TresPerTask": resources.per_task,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _hold(hold: Hold) -> None:
    name = f"ReservationName={hold.name}"
    until = f"EndTime=now+{hold.seconds}"
    nodes = f"Nodes={','.join(hold.nodes)}"
    if not hold.owner:
        try:
            run_command(["scontrol", "update", name, until, nodes, "Flags-=MAINT"])
        except RefusedError as error:
            if not _unknown(error):
                raise
        else:
            return
    users = (f"Users=-{hold.denied}", *([f"Comment={hold.owner}"] if hold.owner else ()))
    words = ("StartTime=now", until, nodes, f"Flags={HOLD_FLAGS}", *users)
    try:
        run_command(["scontrol", "create", "reservation", name, *words])
    except RefusedError as refused:
        if "Duplicate reservation name" in str(refused):
            raise TakenError(str(refused)) from None
        if "Invalid account" not in str(refused):
            raise
        raise RefusedError(
            f"{refused}; this Slurm knows users by their associations: give {hold.denied} one "
            f"(sacctmgr add user {hold.denied} account=ACCOUNT), or name another that submits "
            "nothing in hold_denies"
        ) from None


def owner_of(name: str) -> str:
    """Return the owner that the comment of a reservation names, "" for none.

    Raises:
        AwayError: Slurm does not answer.
    """
    try:
        shown = run_command(["scontrol", "show", "reservation", name, "--oneliner"])
    except RefusedError:
        return ""  # it has just ended
    # No other answer of Slurm's has it.
    found = re.search(r" Comment=(\S+)", shown)
    return found[1] if found else ""


def drop_by_command(name: str) -> None:
    """Delete a reservation, or end it now if jobs run in it; one that is not there is no fault."""
    try:
        try:
            run_command(["scontrol", "delete", f"ReservationName={name}"])
        except RefusedError as error:
            if _unknown(error):
                return
            run_command(["scontrol", "update", f"ReservationName={name}", "EndTime=now+1"])
    except RefusedError as error:
        if not _unknown(error):
            raise


def _unknown(error: RefusedError) -> bool:
    """Whether Slurm has refused because there is no such reservation."""
    return "reservation is invalid" in str(error)


def _update(job: str, **values: str | int) -> None:
    words = ["update", f"JobId={job}", *(f"{name}={value}" for name, value in values.items())]
    # What stands on a command line every user can read while it runs.
    if all(map(_PLAIN.fullmatch, words)):
        run_command(["scontrol"], f"{' '.join(words)}\n")
    else:
        run_command(["scontrol", *words])


def read_state(
    nodes: Sequence[Any], jobs: Sequence[Any], exclusive: Mapping[str, str]
) -> SlurmState:
    """Read records of nodes and jobs, as Slurm's commands print them.

    Args:
        nodes: records of nodes.
        jobs: records of jobs.
        exclusive: Slurm's number of a job -> its `SlurmJob.exclusive`, which no record tells.

    Raises:
        BackendError: none can be read.
    """
    return state_of(
        _each(nodes, "name"),
        _node,
        _each(jobs, "job_id"),
        lambda row: _job(row, exclusive.get(str(row["job_id"]), "")),
    )


def _each(rows: Sequence[Any], name: str) -> Iterator[tuple[object, Any]]:
    for row in rows:
        yield row.get(name) if isinstance(row, Mapping) else None, row


def _rows(text: str, key: str) -> Sequence[Any]:
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


def _job(row: Mapping[str, Any], exclusive: str) -> SlurmJob:
    words = row["job_state"]
    words = {words} if isinstance(words, str) else set(words)
    state = next((state for word, state in _STATES if word in words), JobState.ENDED)
    nodes = () if state is JobState.PENDING else node_names(row.get("nodes"))
    tres = row.get("tres_alloc_str" if nodes else "tres_req_str") or ""
    gpus, gpu_types = gpus_in(tres)
    begin_s = _number(row, "eligible_time") or None
    minutes = _number(row, "time_limit")
    cpus_by_gpu, memory_by_gpu = (
        last_number(row.get(key) or "") for key in ("cpus_per_tres", "memory_per_tres")
    )
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
        gpus=gpus,
        gpu_types=gpu_types,
        submit_s=_number(row, "submit_time") or 0.0,
        begin_s=begin_s,
        start_s=None if state is JobState.PENDING else _number(row, "start_time") or None,
        end_s=_number(row, "end_time") or None
        if state in (JobState.COMPLETING, JobState.ENDED)
        else None,
        time_limit_s=None if minutes is None else minutes * 60.0,
        restarts=int(row.get("restart_cnt", 0)),
        held=bool(row.get("hold")) or _number(row, "priority") == 0.0,
        asked=HostRequest(
            cpus_per_task=0 if cpus_by_gpu else _whole(row, "cpus_per_task") or 1,
            # Slurm shows what is asked for by GPU as if it were by node, too.
            memory_mb_per_node=0 if memory_by_gpu else _whole(row, "memory_per_node"),
            memory_mb_per_cpu=_whole(row, "memory_per_cpu"),
            memory_mb_per_gpu=memory_by_gpu,
            cpus_per_gpu=cpus_by_gpu,
        ),
        cpus=_whole(row, "cpus"),
        memory_mb=memory_mb_in(tres),
        submit_line=_text(row, "submit_line"),
        qos=_text(row, "qos"),
        array=array,
        element=elements.element,
        unsplit=elements.unsplit,
        dependency=_text(row, "dependency"),
        configuring="CONFIGURING" in words,
        outcome=_outcome(words) if state is JobState.ENDED else "",
        over=_over(words),
        partitions=tuple(row.get("partition", "").split(",")),
        reservation=row.get("resv_name", ""),
        batch=bool(row.get("batch_flag", True)),
        requeues=bool(row.get("batch_flag", True) and row.get("requeue", True)),
        constraint=row.get("features", ""),
        excluded=node_names(row.get("excluded_nodes")),
        resources=Resources(
            node_range(
                _whole(row, "node_count"),
                _whole(row, "max_nodes"),
                _whole(row, "cpus"),
                _whole(row, "tasks"),
                _whole(row, "tasks_per_node"),
            ),
            _whole(row, "tasks"),
            *(gpu_part(row.get(f"tres_per_{each}")) for each in ("job", "node", "socket", "task")),
        ),
        tasks_per_node=_whole(row, "tasks_per_node"),
        gres=other_gres(row.get("tres_per_node")),
        licenses=licenses_in(row.get("licenses")),
        disk_mb=_whole(row, "minimum_tmp_disk_per_node"),
        cpus_least=_whole(row, "minimum_cpus_per_node"),
        exclusive=exclusive,
        priority=_whole(row, "priority"),
        throttle=_whole(row, "array_max_tasks"),
        het_job=f"{_whole(row, 'het_job_id')}".removeprefix("0"),
        cron=bool(row.get("cron")),
    )


@lru_cache(maxsize=4096)
def last_number(text: str) -> int:
    """Read the count of `gres/gpu:1024`, 0 of nothing."""
    found = re.search(r"(\d+)$", text)
    return int(found[1]) if found else 0


def read_reservations() -> tuple[SlurmReservation, ...]:
    """Return all reservations.

    Raises:
        AwayError: Slurm does not answer.
    """
    rows = _rows(run_command(["scontrol", "show", "reservations", "--json"]), "reservations")
    return tuple(map(_reservation, rows))


def _reservation(row: Mapping[str, Any]) -> SlurmReservation:
    return SlurmReservation(
        name=row["name"],
        nodes=node_names(row.get("node_list")),
        start_s=_number(row, "start_time") or 0.0,
        end_s=_number(row, "end_time") or 0.0,
        flags=frozenset(row.get("flags") or ()),
        users=row.get("users", ""),
    )


def _outcome(words: set[str]) -> str:
    return next((word for word in sorted(words) if word in OUTCOMES), "")


def _over(words: set[str]) -> bool:
    return "COMPLETING" in words and bool(_outcome(words)) and words.isdisjoint(_COMES_BACK)


def read_over() -> frozenset[int]:
    """Return Slurm's numbers of the jobs that are COMPLETING and will not be queued again.

    Raises:
        AwayError: Slurm does not answer.
    """
    rows = _rows(run_command(["squeue", "--all", "--states=COMPLETING", "--json"]), "jobs")
    return frozenset(row["job_id"] for row in rows if _over(set(row["job_state"])))


def read_gpus_used() -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Return `SlurmNode.gpus_used` of all nodes, by name.

    Raises:
        AwayError: Slurm does not answer.
    """
    return {row["name"]: gpus_in_use(row.get("gres_used", "")) for row in _node_rows()}


def _node_rows() -> Sequence[Any]:
    return _rows(run_command(["scontrol", "show", "nodes", "--json"]), "nodes")


def _reason(row: Mapping[str, Any]) -> str:
    # The one may be a kind, the other what there is to say. Of a job whose launch has failed the
    # one says that its user holds it.
    return str(row.get("state_description") or row.get("state_reason", "None"))


def _whole(row: Mapping[str, Any], key: str) -> int:
    return int(_number(row, key) or 0)


def _node(row: Mapping[str, Any]) -> SlurmNode:
    words = row["state"]
    words = [words] if isinstance(words, str) else words
    return SlurmNode(
        name=_text(row, "name"),
        condition=condition(words),
        asleep=is_asleep(words),
        disk_mb=_whole(row, "temporary_disk"),
        gres=other_gres(row.get("gres")),
        gpus=gpu_counts(row.get("gres", "")),
        gpus_used=gpus_in_use(row.get("gres_used", "")),
        cpus=int(row.get("effective_cpus") or row["cpus"]),
        cpus_used=int(row["alloc_cpus"]),
        memory_mb=int(row["real_memory"] - (row.get("specialized_memory") or 0)),
        memory_used_mb=int(row["alloc_memory"]),
        partitions=frozenset(row.get("partitions") or ()),
        features=frozenset(row.get("active_features") or ()),
        up_since_s=_number(row, "slurmd_start_time") or 0.0,
        reason=_text(row, "reason"),
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
