"""The backend that calls Slurm's library through pyslurm."""

from __future__ import annotations

import os
import time
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from slurm_plugin.backend.arrays import elements_of
from slurm_plugin.backend.change import (
    Cancel,
    Change,
    Park,
    Place,
    Push,
    Release,
    Requeue,
    SetAside,
    Signal,
    Terms,
    Together,
)
from slurm_plugin.backend.errors import AwayError, BackendError, RefusedError
from slurm_plugin.backend.gres import (
    UNTYPED,
    condition,
    gpu_request,
    gpus_per_node,
    node_names,
)
from slurm_plugin.backend.limits import cluster_of, read_limits
from slurm_plugin.backend.records import state_of
from slurm_plugin.backend.state import (
    Asked,
    JobState,
    SlurmJob,
    SlurmNode,
    SlurmSite,
    SlurmState,
)
from slurm_plugin.backend.with_commands import (
    change_by_command,
    read_configuration,
    require_commands,
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

_OURS = "hetsched/"
"""How the AdminComment of a job of ours begins."""

_UNPIN = ["", ""]
"""pyslurm leaves a node list alone that is empty; one of nothings clears it."""


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
        self._by_gpu: dict[tuple[int, int], bool] = {}

    def read(self) -> SlurmState:
        """Return all nodes and jobs."""
        try:
            nodes, jobs = self._pyslurm.Nodes.load(), self._pyslurm.Jobs.load()
        except self._pyslurm.RPCError as error:
            raise meaning(error, "reading") from None
        state = state_of(nodes.items(), _node, jobs.items(), self._job)
        if len(self._by_gpu) > 2 * len(jobs) + 1000:
            self._by_gpu.clear()
        return state

    def _job(self, job: Any) -> SlurmJob:
        return _job(job, self._user(job), self._memory_is_by_gpu(job))

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

    def _memory_is_by_gpu(self, job: Any) -> bool:
        """Whether what pyslurm shows as memory of a node is that of a GPU, which it does not tell.

        While a job is in one shape, the memory of the whole job tells; then it is remembered.
        """
        each = job.memory_per_node
        if not each or not (job.admin_comment or "").startswith(_OURS):
            return False
        key = (job.id, job.submit_time)
        if key not in self._by_gpu:
            if job.state == "PENDING" and job.required_nodes:
                return False
            if job.state == "PENDING":
                in_all, nodes = job.requested_tres, job.ntasks or 1
            else:
                in_all, nodes = job.allocated_tres, job.num_nodes or 1
            memory_mb = in_all.mem.count if in_all is not None and in_all.mem is not None else 0
            self._by_gpu[key] = (memory_mb or 0) > each * nodes
        return self._by_gpu[key]

    def site(self) -> SlurmSite:
        """Return what the site has set."""
        try:
            configuration = self._pyslurm.slurmctld.Config.load()
            partitions = self._pyslurm.Partitions.load()
        except self._pyslurm.RPCError as error:
            raise meaning(error, "reading the configuration") from None
        longest_s = {name: _seconds(each.max_time) for name, each in partitions.items()}
        # pyslurm's own listing of the limits lacks those of users, and those of accounts.
        kill_wait_s = float(configuration.kill_wait_time or 0)
        private = not {"jobs", "all"}.isdisjoint(configuration.private_data)
        # pyslurm does not tell where slurmctld is.
        cluster = cluster_of(read_configuration())
        return SlurmSite(kill_wait_s, longest_s, read_limits(), private, cluster)

    def apply(self, change: Change) -> None:
        """Make one change."""
        describe = self._pyslurm.JobSubmitDescription
        if not change.job.isdecimal():
            # int() would read 10_1, an element of an array, as another job.
            return change_by_command(change)
        try:
            job = self._pyslurm.Job(int(change.job))
            match change:
                case Place(_, nodes, count, _, gpu_type, terms):
                    job.modify(
                        describe(
                            required_nodes=list(nodes),
                            ntasks=len(nodes),
                            gres_per_node=gpus_per_node(count, gpu_type),
                            begin_time="now",
                            **_terms(terms),
                        )
                    )
                case Park(_, count, delay_s, on, gpu_type, terms):
                    job.modify(
                        describe(
                            required_nodes=_UNPIN,
                            ntasks=on,
                            gres_per_node=gpus_per_node(count, gpu_type),
                            begin_time=int(time.time()) + delay_s,
                            **_terms(terms),
                        )
                    )
                case Push(_, delay_s):
                    job.modify(describe(begin_time=int(time.time()) + delay_s))
                case Signal(_, signal, to):
                    job.send_signal(f"SIG{signal}", steps=to.value)
                case Requeue():
                    job.requeue()
                case Release():
                    job.release()
                case Cancel():
                    job.cancel()
                case SetAside() | Together():
                    raise TypeError(f"{change}: not for a job that is no element of an array")
        except self._pyslurm.RPCError as error:
            raise meaning(error, str(change)) from None
        except (OverflowError, ValueError) as error:
            # pyslurm takes no number that Slurm has no room for.
            raise RefusedError(f"{change}: {error}") from None


def _terms(terms: Terms) -> dict[str, int]:
    wanted = {
        "time_limit": terms.time_limit_min,
        "cpus_per_task": terms.cpus,
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
    # slurm_errno.h: 1000 to 1999 are about communication and protocol, 2000 on about the request.
    # Below are the system's own: a connection refused, timed out or reset.
    number = getattr(error, "errno", None) or 0
    text = f"{what}: {error} ({number})"
    return AwayError(text) if 0 < number < 2000 else RefusedError(text)


def _count(held: Any) -> int:
    """Return how many GPUs a trackable resource of pyslurm's stands for; 0 for None."""
    return 0 if held is None else int(held.count)


def _job(job: Any, user: str, memory_is_by_gpu: bool) -> SlurmJob:
    state = _STATES.get(job.state, JobState.ENDED)
    asked = ",".join(f"{name}={count}" for name, count in (job.gres_per_node or {}).items())
    count, gpu_type = gpu_request(asked)
    nodes = () if state is JobState.PENDING else node_names(job.allocated_nodes)
    if not count and len(nodes) == 1:
        count = _count((job.gres or {}).get("gpu"))
    array = str(job.array_id or "")
    elements = elements_of(str(job.id), array, job.array_task_id, job.array_tasks_waiting or "")
    return SlurmJob(
        id=elements.id,
        name=_text(job, "name"),
        user=user,
        account=job.account or "",
        partition=job.partition or "",
        state=state,
        reason=job.state_reason or "None",
        mark=job.admin_comment or "",
        nodes=nodes,
        pinned=node_names(job.required_nodes),
        gpus_per_node=count,
        gpu_type=gpu_type,
        submit_s=float(job.submit_time or 0),
        begin_s=float(job.eligible_time or 0) or None,
        start_s=None if state is JobState.PENDING else float(job.start_time or 0) or None,
        end_s=float(job.end_time or 0) or None if state is JobState.ENDED else None,
        time_limit_s=_seconds(job.time_limit),
        restarts=int(job.requeue_count or 0),
        held=job.priority == 0,
        asked=_asked(
            job.cpus_per_task or 0,
            0 if memory_is_by_gpu else job.memory_per_node or 0,
            job.memory_per_cpu or 0,
            job.memory_per_node or 0 if memory_is_by_gpu else 0,
        ),
        cpus=job.cpus or 0,
        submit_line=_text(job, "submit_line"),
        qos=job.qos or "",
        array=array,
        element=elements.element,
        unsplit=elements.unsplit,
        dependency=_dependency(job.dependencies) if job.array_id else "",
        outcome=job.state if state is JobState.ENDED else "",
    )


def _dependency(found: dict[str, Any] | None) -> str:
    kinds = {kind: jobs for kind, jobs in (found or {}).items() if isinstance(jobs, list)}
    return ",".join(f"{kind}:{job}" for kind, jobs in kinds.items() for job in jobs)


def _text(job: Any, name: str) -> str:
    """Return a text of a user's, who may give any bytes; pyslurm takes them for UTF-8."""
    try:
        return getattr(job, name) or ""
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", "replace")


# Jobs ask for much the same: the same objects compare at once.
_asked = lru_cache(maxsize=4096)(Asked)


def _node(node: Any) -> SlurmNode:
    return SlurmNode(
        name=node.name,
        condition=condition(str(node.state).split("+")),
        gpus=_gpus(node.configured_gres),
        gpus_used=_gpus(node.allocated_gres),
        cpus=node.effective_cpus or node.total_cpus,
        cpus_used=node.allocated_cpus or 0,
        memory_mb=node.real_memory - (node.memory_reserved_for_system or 0),
        memory_used_mb=node.allocated_memory or 0,
        partitions=frozenset(node.partitions or ()),
    )


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
