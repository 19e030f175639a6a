"""A private Slurm with fake GPUs on one host: for the tests, the documentation, and trying out.

`install` fetches Slurm's packages into a prefix of its own, `Testbed` runs a cluster from there.
Neither touches a Slurm that the machine may have.
"""

from slurm_plugin.testbed.errors import TestbedError, TestbedUnavailableError
from slurm_plugin.testbed.fake_site import (
    DEFAULT_GPUS,
    NODE_CPUS,
    NODE_DISK_MB,
    NODE_MEMORY_MB,
    FakeNode,
    FakeSite,
    Partition,
    fake_nodes,
    parse_partitions,
    usual_site,
)
from slurm_plugin.testbed.install import (
    Installation,
    default_cache,
    find_installed,
    install,
    why_unavailable,
)
from slurm_plugin.testbed.layout import Layout
from slurm_plugin.testbed.testbed import Status, Testbed, default_directory

__all__ = [
    "DEFAULT_GPUS",
    "NODE_CPUS",
    "NODE_DISK_MB",
    "NODE_MEMORY_MB",
    "FakeNode",
    "FakeSite",
    "Installation",
    "Layout",
    "Partition",
    "Status",
    "Testbed",
    "TestbedError",
    "TestbedUnavailableError",
    "default_cache",
    "default_directory",
    "fake_nodes",
    "find_installed",
    "install",
    "parse_partitions",
    "usual_site",
    "why_unavailable",
]
