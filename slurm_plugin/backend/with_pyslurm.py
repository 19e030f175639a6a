"""The backend that calls Slurm's library through pyslurm."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from slurm_plugin.backend.accounting import AccountingReader
from slurm_plugin.backend.arrays import elements_of
from slurm_plugin.backend.asked_once import AskedOnce, Untold, exclusive_of
from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Depend,
    Drop,
    Enter,
    Hold,
    Leave,
    Release,
    Requeue,
    RequeueEnded,
    Signal,
    Terms,
)
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError
from slurm_plugin.backend.gres import (
    SHARES,
    UNTYPED,
    condition,
    gpu_part,
    is_asleep,
    licenses_in,
    node_names,
    node_range,
    other_gres,
)
from slurm_plugin.backend.records import state_of
from slurm_plugin.backend.running import require_commands, run_command
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
from slurm_plugin.backend.with_commands import (
    change_by_command,
    last_number,
    read_gpus_used,
    read_over,
    read_reservations,
    script_by_command,
    site_by_command,
)

_SYSTEM_CONF = "/etc/slurm/slurm.conf"

_STATES = {
    "PENDING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    # A flag goes before the state: these wait, held.
    "REQUEUE_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    # By a SIGSTOP; it keeps all that it holds.
    "STOPPED": JobState.RUNNING,
    "STAGE_OUT": JobState.COMPLETING,
    "COMPLETING": JobState.COMPLETING,
    "SUSPENDED": JobState.SUSPENDED,
}

_NOTHING = Untold()

_ANEW, _MOST_ANEW = 8, 500
"""Of so many reads one makes a job anew though it seems to be as before; of more where a read would
do so for more jobs than this.

To read the sums of what it asks for costs as much as all else. They follow what else is shown, but
for a change of `--gpus` alone: that shows in nothing else that pyslurm tells.
"""

_shown = attrgetter(
    *("account", "admin_comment", "allocated_nodes", "array_id", "array_task_id"),
    *("array_tasks_parallel", "array_tasks_waiting", "cpus", "cpus_per_task"),
    *("eligible_time", "end_time", "excluded_nodes"),
    *(
        "heterogeneous_id",
        "is_batch_job",
        "is_requeueable",
        "max_nodes",
        "memory_per_cpu",
        "memory_per_node",
    ),
    *("min_cpus_per_node", "ntasks", "ntasks_per_node", "num_nodes", "partition", "priority"),
    *("qos", "requeue_count", "required_nodes", "reservation", "resource_sharing", "start_time"),
    *("state", "state_reason", "submit_time", "temporary_disk_per_node", "time_limit"),
)
"""Returns what `_job` reads of a job, but texts that may be no UTF-8, collections, and sums."""

_FLAGS = {
    "MAINTENANCE": "MAINT",
    "IGNORE_RUNNING_JOBS": "IGNORE_JOBS",
    "SPECIFIC_NODES": "SPEC_NODES",
    "NO_JOB_HOLD_AFTER_END": "NO_HOLD_JOBS_AFTER_END",
}
"""Slurm's words for what pyslurm calls otherwise."""


class PyslurmBackend:
    """Slurm through its own library."""

    def __init__(self) -> None:
        """Load pyslurm.

        Raises:
            BackendError: it is not here, or it would find no Slurm configuration, or the commands
                are not here that do what it cannot.
        """
        self._pyslurm = _import_pyslurm()
        require_commands("scontrol")
        self._users: dict[int, str] = {}
        self._once, self._splits = AskedOnce(run_command), Splits(run_command)
        self._accounting = AccountingReader()
        self._read: dict[int, tuple[int, SlurmJob]] = {}
        self._reads = 0

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        try:
            nodes, jobs = self._pyslurm.Nodes.load(), self._pyslurm.Jobs.load()
            reservations = self._reservations()
        except self._pyslurm.RPCError as error:
            raise meaning(error, "reading") from None
        rows = tuple((job.id, job) for job in jobs.values())
        live = {str(number): _key(job) for number, job in rows if job.state in _STATES}
        once = self._once.of(live)
        # Of the words for such a job pyslurm tells the first alone.
        over = read_over() if any(job.state == "COMPLETING" for _, job in rows) else frozenset()
        # It does not tell on how many GPUs the shares are that are in use.
        used = read_gpus_used() if any(map(_shares, nodes.values())) else {}
        before, self._read = self._read, {}
        self._reads += 1
        every = max(_ANEW, len(rows) // _MOST_ANEW)
        state = state_of(
            nodes.items(),
            lambda node: _node(node, used.get(node.name)),
            rows,
            lambda job: self._job(job, once.get(str(job.id), _NOTHING), over, before, every),
        )
        return replace(self._splits.told(state), reservations=reservations)

    def _reservations(self) -> tuple[SlurmReservation, ...]:
        try:
            return tuple(map(_reservation, self._pyslurm.Reservations.load().values()))
        except ValueError:
            # It knows neither all flags, nor names that are no UTF-8.
            return read_reservations()

    def _job(
        self,
        job: Any,
        untold: Untold,
        over: Collection[int],
        before: Mapping[int, tuple[int, SlurmJob]],
        every: int,
    ) -> SlurmJob:
        """Return a job: the same one as before if nothing of it has changed.

        It is made where something is shown otherwise, and in its turn, of `every` reads one.
        """
        told = self._user(job), job.id in over, untold
        texts = _text(job, "name"), _text(job, "submit_line")
        collections = job.constraints or (), *(job.gres_per_node or {}).items()
        # A hash takes a fraction of the memory of what is shown.
        row = hash((*_shown(job), *texts, *told, repr(collections), repr(job.dependencies)))
        known = before.get(job.id)
        in_turn = (job.id + self._reads) % every == 0
        if in_turn or known is None or known[0] != row:
            anew = _job(job, *told)
            known = row, known[1] if known is not None and known[1] == anew else anew
        self._read[job.id] = known
        return known[1]

    def _user(self, job: Any) -> str:
        # pyslurm asks the system for a name each time, which costs more than all else of a job.
        number = job.user_id
        if number not in self._users:
            name = job.user_name or ""
            if name == str(number):
                # Nobody knows the user now; the directory service may come back.
                return name
            self._users[number] = name
        return self._users[number]

    def site(self) -> SlurmSite:
        """Return what the site has set: pyslurm tells less of it than the commands do."""
        return site_by_command(self._accounting, self._once)

    def script(self, job: str) -> str:
        """Return a job's script."""
        if not job.isdecimal():
            return script_by_command(job)
        try:
            return str(self._pyslurm.Job(int(job)).get_batch_script() or "")
        except self._pyslurm.RPCError as error:
            raise meaning(error, f"reading the script of {job}") from None

    def apply(self, change: Change) -> None:
        """Make one change."""
        if (
            isinstance(change, Hold | Drop | Leave | Depend | Requeue | RequeueEnded)
            or not change.job.isdecimal()
            or (isinstance(change, Enter) and not _simple(change))
        ):
            # pyslurm takes no job out of a reservation, queues again what has ended, too, and int()
            # would read 10_1, an element of an array, as another job.
            return change_by_command(change)
        describe = self._pyslurm.JobSubmitDescription
        try:
            job = self._pyslurm.Job(int(change.job))
            match change:
                case Enter(_, reservation, nodes, _, resources, terms, due, partitions=partitions):
                    job.modify(
                        describe(
                            reservations=[reservation],
                            required_nodes=list(nodes) or None,
                            ntasks=resources and resources.tasks,
                            gres_per_node=resources and _without_prefix(resources.per_node),
                            # slurmctld makes its now of what is past: this clock may be wrong.
                            begin_time=1 if due else None,
                            partitions=list(partitions) or None,
                            **_terms(terms),
                        )
                    )
                case Signal(_, signal, to):
                    job.send_signal(f"SIG{signal}", steps=to.value)
                case Release():
                    job.release()
                case Cancel():
                    job.cancel()
                case _:
                    raise TypeError(f"{change} is not made by pyslurm")
        except self._pyslurm.RPCError as error:
            raise meaning(error, _named(change)) from None
        except (OverflowError, ValueError) as error:
            # pyslurm takes no number that Slurm has no room for.
            raise RefusedError(f"{_named(change)}: {error}") from None


def _named(change: Change) -> str:
    """Return a change as it is named to an admin: what, and to which job."""
    return f"{type(change).__name__.lower()} {change.job}".strip()


def _simple(change: Enter) -> bool:
    """Whether pyslurm can make it: it sends no numbers of nodes and of CPUs, and no empty texts."""
    resources = change.resources
    if change.dependency or change.terms.cpus is not None or change.terms.tasks_per_node:
        return False
    if resources is None:
        return True
    others = (resources.nodes, resources.per_job, resources.per_socket, resources.per_task)
    return others == (None,) * 4 and resources.per_node != ""


def _without_prefix(text: str | None) -> str | None:
    return text and text.replace("gres/", "").replace("gres:", "")


def _key(job: Any) -> tuple[object, ...]:
    """Return what differs when a job has to be asked for anew.

    Once it is placed it asks for GPUs by node alone, or as it did.
    """
    if job.reservation and job.gres_per_node:
        return (job.submit_time,)
    asked = _same(str(job.gres_per_node or ""))
    return (job.submit_time, job.num_nodes, job.max_nodes, job.ntasks, asked)


def _terms(terms: Terms) -> dict[str, int]:
    wanted = {
        "time_limit": terms.time_limit_min,
        "memory_per_node": terms.memory_mb,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _seconds(minutes: object) -> float | None:
    """Read minutes, which pyslurm gives as a word where there is no limit."""
    return minutes * 60.0 if isinstance(minutes, int) else None


@cache
def _import_pyslurm() -> Any:
    conf = Path(os.environ.get("SLURM_CONF") or _SYSTEM_CONF)
    # Without a configuration, importing pyslurm ends the process.
    if not os.access(conf, os.R_OK):
        raise BackendError(
            f"{conf} cannot be read; set SLURM_CONF to the cluster's slurm.conf, or run this where "
            f"{_SYSTEM_CONF} is"
        )
    try:
        import pyslurm
    except ImportError as error:
        raise BackendError(
            f"pyslurm cannot be imported ({error}); install the one of your Slurm's version, for "
            "example: pip install 'pyslurm==25.11.*', or choose the backend 'commands'"
        ) from None
    return pyslurm


def meaning(error: Any, what: str) -> BackendError:
    """Return what an error of pyslurm's, met in doing something, says of Slurm."""
    # slurm_errno.h: 1000 to 1999 are about communication and protocol, 2000 on about the resources.
    # Below are the system's own: a connection refused, timed out or reset.
    number = getattr(error, "errno", None) or 0
    text = f"{what}: {error} ({number})"
    return AwayError(text) if 0 < number < 2000 else RefusedError(text)


@lru_cache(maxsize=4096)
def _types(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types of `gpu` and `gpu:a100`, sorted."""
    return tuple(sorted(name.partition(":")[2] for name in names if ":" in name))


def _gpus_and_mb(tres: Any) -> tuple[dict[str, int], int]:
    """Return the GPUs of trackable resources of pyslurm's, by type, and the MiB."""
    if tres is None:
        return {}, 0
    gpus = {name: held.count for name, held in tres.gres.items()}
    return gpus, 0 if tres.mem is None else int(tres.mem.count or 0)


def _job(job: Any, user: str, over: bool, untold: Untold) -> SlurmJob:
    state = _STATES.get(job.state, JobState.ENDED)
    per_node = _text_of(job.gres_per_node)
    cpus_by_gpu, memory_by_gpu = map(last_number, (untold.cpus_per_gpu, untold.memory_per_gpu))
    entered = job.reservation and per_node
    others = ("", "", "") if entered else (untold.per_job, untold.per_socket, untold.per_task)
    per_job, per_socket, per_task = map(gpu_part, others)
    nodes = () if state is JobState.PENDING else node_names(job.allocated_nodes)
    gpus, memory_mb = _gpus_and_mb(job.allocated_tres if nodes else job.requested_tres)
    array = str(job.array_id or "")
    elements = elements_of(str(job.id), array, job.array_task_id, job.array_tasks_waiting or "")
    return SlurmJob(
        id=elements.id,
        name=_same(_text(job, "name")),
        user=user,
        account=_same(job.account or ""),
        partition=_same(job.partition or ""),
        state=state,
        reason=_same(job.state_reason or "None"),
        mark=job.admin_comment or "",
        nodes=nodes,
        pinned=node_names(job.required_nodes),
        gpus=gpus.get(UNTYPED, 0) or sum(gpus.values()),
        gpu_types=_types(tuple(gpus)),
        submit_s=float(job.submit_time or 0),
        begin_s=float(job.eligible_time or 0) or None,
        start_s=None if state is JobState.PENDING else float(job.start_time or 0) or None,
        end_s=float(job.end_time or 0) or None
        if state in (JobState.COMPLETING, JobState.ENDED)
        else None,
        time_limit_s=_seconds(job.time_limit),
        restarts=int(job.requeue_count or 0),
        held=job.priority == 0,
        asked=_asked(
            0 if cpus_by_gpu else job.cpus_per_task or 1,
            0 if memory_by_gpu else job.memory_per_node or 0,
            job.memory_per_cpu or 0,
            memory_by_gpu,
            cpus_by_gpu,
        ),
        cpus=job.cpus or 0,
        memory_mb=memory_mb,
        submit_line=_same(_text(job, "submit_line")),
        qos=_same(job.qos or ""),
        array=array,
        element=elements.element,
        unsplit=elements.unsplit,
        dependency=_dependency(job.dependencies),
        configuring=job.state == "CONFIGURING",
        outcome=job.state if state is JobState.ENDED else "",
        over=over and state is JobState.COMPLETING,
        partitions=_partitions(job.partition or ""),
        reservation=_same(job.reservation or ""),
        batch=bool(job.is_batch_job),
        requeues=bool(job.is_batch_job and job.is_requeueable),
        constraint=_same(",".join(job.constraints or ())),
        excluded=node_names(job.excluded_nodes),
        resources=_request(
            node_range(
                job.num_nodes or 0,
                _count_or_0(job.max_nodes),
                job.cpus or 0,
                job.ntasks or 0,
                _count_or_0(job.ntasks_per_node),
            ),
            job.ntasks or 0,
            per_job,
            gpu_part(per_node),
            per_socket,
            per_task,
        ),
        tasks_per_node=_count_or_0(job.ntasks_per_node),
        gres=other_gres(per_node),
        licenses=licenses_in(",".join(job.licenses or ())),
        disk_mb=job.temporary_disk_per_node or 0,
        cpus_least=_count_or_0(job.min_cpus_per_node),
        exclusive=exclusive_of(job.resource_sharing or ""),
        priority=job.priority or 0,
        throttle=_count_or_0(job.array_tasks_parallel),
        het_job=str(job.heterogeneous_id or ""),
        cron=bool(job.is_cronjob),
    )


def _count_or_0(value: object) -> int:
    """Read a count, for which pyslurm gives None or a word where there is none."""
    return value if isinstance(value, int) else 0


def _reservation(kept: Any) -> SlurmReservation:
    flags = str(kept.flags).rpartition(".")[2].split("|")
    return SlurmReservation(
        name=kept.name,
        nodes=node_names(kept.nodes),
        start_s=float(kept.start_time or 0),
        end_s=float(kept.end_time or 0),
        flags=frozenset(_FLAGS.get(word, word) for word in flags if word != "0"),
        users=",".join(kept.users or ()),
    )


def _features(node: Any) -> frozenset[str]:
    """Return the active features of a node; none where they are no UTF-8, which pyslurm needs."""
    try:
        return frozenset(node.active_features or ())
    except UnicodeDecodeError:
        return frozenset()


def _dependency(found: dict[str, Any] | None) -> str:
    kinds = {kind: jobs for kind, jobs in (found or {}).items() if isinstance(jobs, list)}
    return ",".join(f"{kind}:{job}" for kind, jobs in kinds.items() for job in jobs)


def _text(shown: Any, name: str) -> str:
    """Return a text that somebody gave, of any bytes; pyslurm takes them for UTF-8."""
    try:
        return getattr(shown, name) or ""
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")


# Jobs ask for much the same: the same objects compare at once, and are kept once.
_same = lru_cache(maxsize=4096)(str)
_asked = lru_cache(maxsize=4096)(HostRequest)
_request = lru_cache(maxsize=4096)(Resources)


@lru_cache(maxsize=4096)
def _partitions(names: str) -> tuple[str, ...]:
    return tuple(names.split(","))


def _shares(node: Any) -> bool:
    """Whether a node's GPUs are given in shares, too."""
    return any(name.partition(":")[0] in SHARES for name in node.configured_gres or ())


def _node(node: Any, gpus_used: tuple[tuple[str, int], ...] | None) -> SlurmNode:
    words = str(node.state).split("+")
    return SlurmNode(
        name=node.name,
        condition=condition(words),
        asleep=is_asleep(words),
        disk_mb=node.temporary_disk or 0,
        gres=other_gres(_text_of(node.configured_gres)),
        gpus=_gpus(node.configured_gres),
        gpus_used=_gpus(node.allocated_gres) if gpus_used is None else gpus_used,
        cpus=node.effective_cpus or node.total_cpus,
        cpus_used=node.allocated_cpus or 0,
        memory_mb=node.real_memory - (node.memory_reserved_for_system or 0),
        memory_used_mb=node.allocated_memory or 0,
        partitions=frozenset(node.partitions or ()),
        features=_features(node),
        up_since_s=float(node.slurmd_start_time or 0),
        reason=_same(_text(node, "reason")),
    )


def _text_of(gres: dict[str, int] | None) -> str:
    return ",".join(f"{name}:{count}" for name, count in (gres or {}).items())


def _gpus(gres: dict[str, int] | None) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for name, count in (gres or {}).items():
        kind, _, gpu_type = name.partition(":")
        if kind == "gpu" and count:
            found[gpu_type or UNTYPED] = count
    # What is in use is given twice: in all, and by type.
    if len(found) > 1:
        found.pop(UNTYPED, None)
    return tuple(sorted(found.items()))
