"""Where a testbed's cluster lives, and the configuration files that describe it to Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.submit import JOB_SUBMIT, MODULE
from slurm_plugin.testbed.fake_site import (
    NODE_CPUS,
    NODE_DISK_MB,
    NODE_MEMORY_MB,
    FakeNode,
    FakeSite,
    Partition,
)

CLUSTER = "testbed"
_CONTROLLER, _DATABASE_DAEMON, _DATABASE, _FIRST_NODE = 0, 1, 2, 4


@dataclass(frozen=True, slots=True)
class Layout:
    """A cluster: where its files are, which ports it listens on, and what it is made of.

    `port` is the first of `ports` consecutive ones, all on the loopback interface. `plugins` is
    Slurm's `PluginDir`.
    """

    base: Path
    plugins: Path
    port: int
    host: str
    site: FakeSite

    @property
    def nodes(self) -> tuple[FakeNode, ...]:
        """Its nodes."""
        return self.site.nodes

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
        types = dict.fromkeys(kind for node in self.nodes for kind, _ in node.kinds)
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
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
JobSubmitPlugins=lua
RequeueExit=99
KillWait=10
MessageTimeout=5
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
        nodes = [self._node(at, node) for at, node in enumerate(self.nodes)]
        partitions = [_partition(each) for each in self.site.partitions]
        return head + "\n".join([*self.site.settings, *nodes, *partitions, ""])

    def _node(self, at: int, node: FakeNode) -> str:
        gpus = ",".join(f"gpu:{kind}:{count}" for kind, count in node.kinds)
        features = f" Features={','.join(node.features)}" if node.features else ""
        return (
            f"NodeName={node.name} NodeHostname={self.host} NodeAddr=127.0.0.1 "
            f"Port={self.port + _FIRST_NODE + at} CPUs={NODE_CPUS} RealMemory={NODE_MEMORY_MB} "
            f"TmpDisk={NODE_DISK_MB} Gres={gpus}{features} Weight={node.weight} State=UNKNOWN"
        )

    def _gres_conf(self) -> str:
        return "".join(line for node in self.nodes for line in self._gpus(node))

    def _gpus(self, node: FakeNode) -> Iterator[str]:
        first = 0
        for kind, count in node.kinds:
            # Slurm counts GPUs of a type only where each has a device file.
            files = f"{self.devices}/nvidia[{first}-{first + count - 1}]"
            yield f"NodeName={node.name} Name=gpu Type={kind} File={files}\n"
            first += count

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


def _partition(each: Partition) -> str:
    words = [
        f"PartitionName={each.name}",
        f"Nodes={each.nodes}",
        f"Default={'YES' if each.default else 'NO'}",
        f"MaxTime={each.max_time}",
        f"PriorityTier={each.priority_tier}",
        *each.settings,
        # As a site of GPUs has it: fair share counts them, and no CPUs.
        "TRESBillingWeights=GRES/gpu=1.0",
        "State=UP",
    ]
    return " ".join(words)
