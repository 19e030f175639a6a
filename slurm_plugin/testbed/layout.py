"""What a testbed's cluster looks like, and the configuration files that say so to Slurm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hetsched_core.errors import InputError
from slurm_plugin.submit import JOB_SUBMIT, MODULE

DEFAULT_GPUS = "a100:4,v100:8,t4:4"
"""GPU types and counts that nodes get in turn."""

DEVICES_PER_NODE = 16
MAX_NODES = 512
CLUSTER = "testbed"
PARTITION = "gpu"
_CONTROLLER, _DATABASE_DAEMON, _DATABASE, _FIRST_NODE = 0, 1, 2, 4


@dataclass(frozen=True, slots=True)
class FakeNode:
    """A node of the testbed: a slurmd of this name with fake GPUs."""

    name: str
    gpu_type: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster: where its files are, which ports it listens on, and its nodes.

    `port` is the first of `ports` consecutive ones, all on the loopback interface. `plugins` is
    Slurm's `PluginDir`.
    """

    base: Path
    plugins: Path
    port: int
    host: str
    nodes: tuple[FakeNode, ...]

    @property
    def ports(self) -> int:
        """How many ports it needs."""
        return _FIRST_NODE + len(self.nodes)

    @property
    def database_daemon_port(self) -> int:
        """Where slurmdbd listens."""
        return self.port + _DATABASE_DAEMON

    @property
    def database_port(self) -> int:
        """Where MariaDB listens."""
        return self.port + _DATABASE

    @property
    def configuration(self) -> Path:
        """The folder of slurm.conf and the files beside it."""
        return self.base / "etc"

    @property
    def slurm_conf(self) -> Path:
        """What SLURM_CONF has to name."""
        return self.configuration / "slurm.conf"

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.base / "log"

    @property
    def runtime(self) -> Path:
        """The folder of sockets and process ids."""
        return self.base / "run"

    @property
    def devices(self) -> Path:
        """The folder of the fake GPUs' device files."""
        return self.base / "dev"

    @property
    def spank(self) -> Path:
        """The plug-in that gives sbatch the options of hetsched."""
        return self.base / "lib/hetsched_spank.so"

    def files(self) -> dict[str, str]:
        """Return the configuration files: name -> text."""
        return {
            "slurm.conf": self._slurm_conf(),
            "gres.conf": self._gres_conf(),
            "slurmdbd.conf": self._slurmdbd_conf(),
            "cgroup.conf": "CgroupPlugin=disabled\n",
            "job_submit.lua": JOB_SUBMIT.read_text(),
            # Where it could not be built, the options are those of `#HETSCHED` lines alone.
            "plugstack.conf": f"optional {self.spank}\n",
            "hetsched.lua": MODULE.read_text(),
        }

    def _slurm_conf(self) -> str:
        types = dict.fromkeys(node.gpu_type for node in self.nodes)
        tracked = ",".join(["gres/gpu", *(f"gres/gpu:{each}" for each in types)])
        base, run, log = self.base, self.runtime, self.logs
        head = f"""\
ClusterName={CLUSTER}
SlurmctldHost={self.host}(127.0.0.1)
SlurmctldPort={self.port + _CONTROLLER}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={run}/munge.sock,cred_expire=15
PluginDir={self.plugins}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
SlurmctldLogFile={log}/slurmctld.log
SlurmdLogFile={log}/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=1
PriorityType=priority/basic
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
JobSubmitPlugins=lua
RequeueExit=99
KillWait=10
MessageTimeout=3
MinJobAge=300
SlurmctldTimeout=60
SlurmdTimeout=60
InactiveLimit=0
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={self.database_daemon_port}
AccountingStoragePass={run}/munge.sock
AccountingStorageTRES={tracked}
"""
        lines = [
            f"NodeName={node.name} NodeHostname={self.host} NodeAddr=127.0.0.1 "
            f"Port={self.port + _FIRST_NODE + at} CPUs=32 RealMemory=64000 "
            f"Gres=gpu:{node.gpu_type}:{node.gpus} State=UNKNOWN"
            for at, node in enumerate(self.nodes)
        ]
        partition = f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
        return head + "\n".join([*lines, partition, ""])

    def _gres_conf(self) -> str:
        # Slurm counts GPUs of a type only where each has a device file.
        return "".join(
            f"NodeName={node.name} Name=gpu Type={node.gpu_type} "
            f"File={self.devices}/nvidia[0-{node.gpus - 1}]\n"
            for node in self.nodes
        )

    def _slurmdbd_conf(self) -> str:
        return f"""\
AuthType=auth/munge
AuthInfo=socket={self.runtime}/munge.sock
PluginDir={self.plugins}
DbdHost={self.host}
DbdAddr=127.0.0.1
DbdPort={self.database_daemon_port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self.database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
LogFile={self.logs}/slurmdbd.log
PidFile={self.runtime}/slurmdbd.pid
DebugLevel=info
"""


def fake_nodes(count: int, gpus: str = DEFAULT_GPUS) -> tuple[FakeNode, ...]:
    """Return `count` nodes, which get the types and counts of `gpus` in turn.

    Args:
        count: how many nodes.
        gpus: `type:count` pairs, separated by commas.

    Raises:
        InputError: there would be none or too many, or `gpus` is not of that form.
    """
    if not 1 <= count <= MAX_NODES:
        raise InputError(f"a testbed of {count} nodes; give 1 to {MAX_NODES}")
    kinds = [_kind(part, gpus) for part in gpus.split(",")]
    return tuple(FakeNode(f"n{at}", *kinds[at % len(kinds)]) for at in range(count))


def _kind(part: str, whole: str) -> tuple[str, int]:
    gpu_type, _, count = part.strip().partition(":")
    if not (gpu_type.isalnum() and count.isdigit() and 1 <= int(count) <= DEVICES_PER_NODE):
        raise InputError(
            f"{part!r} in {whole!r} is not a GPU type and a count of 1 to {DEVICES_PER_NODE}; "
            f"write for example {DEFAULT_GPUS}"
        )
    return gpu_type, int(count)
