"""Which limit on GPUs binds a job."""

from dataclasses import replace

import pytest

from hetsched_core.types.site import Limit
from slurm_plugin.backend import GpuLimit, GpuLimits
from slurm_plugin.backend.limits import parse_limits
from tests.slurm_plugin.backend.fake import PENDING

PARTITIONS = """\
PartitionName=gpu AllowGroups=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=NONE
PartitionName=small AllowGroups=ALL AllowQos=ALL Default=NO QoS=part DefaultTime=NONE
"""

# What sacctmgr of Slurm 26.05 prints.
QOS = """\
normal|||||||||
small|DenyOnLimit|cpu=64,gres/gpu=4|||||||00:03:00
part||gres/gpu=6|||gres/gpu=40||||
big|DenyOnLimit,OverPartQOS|gres/gpu=16|||||||
shared|||gres/gpu:a100=1,gres/gpu=2|gres/gpu=9|gres/gpu=3|4|8|20|
typed||gres/gpu:a100=1|||||||
"""

ASSOCIATIONS = """\
root||||||||
root|root|||||||
lab|||root||gres/gpu=12||30|
group|||lab|gres/gpu=7||3||
group|ann|||gres/gpu=7||3||
group|bob|||gres/gpu=5||3||1-00:00:00
group|bob|small||gres/gpu=3||||
other|||root|||||
other|cat|||||||
"""

LIMITS = parse_limits(PARTITIONS, QOS, ASSOCIATIONS)


@pytest.mark.parametrize(
    ("partition", "qos", "account", "user", "limit"),
    [
        ("gpu", "normal", "other", "cat", None),
        ("gpu", "small", "other", "cat", GpuLimit(4, "QOS small: MaxTRESPerJob")),
        # The partition's QOS goes before the job's, unless that says otherwise.
        ("small", "small", "other", "cat", GpuLimit(6, "QOS part: MaxTRESPerJob")),
        ("small", "big", "other", "cat", GpuLimit(16, "QOS big: MaxTRESPerJob")),
        # What several jobs may have together binds each of them.
        ("gpu", "shared", "other", "cat", GpuLimit(2, "QOS shared: MaxTRESPerUser")),
        ("gpu", "typed", "other", "cat", None),
        # Associations, down from the account above.
        ("gpu", "normal", "lab", "", GpuLimit(12, "account lab: GrpTRES")),
        ("gpu", "normal", "group", "ann", GpuLimit(7, "user ann in account group: MaxTRESPerJob")),
        ("gpu", "normal", "group", "bob", GpuLimit(5, "user bob in account group: MaxTRESPerJob")),
        ("small", "normal", "group", "bob", GpuLimit(6, "QOS part: MaxTRESPerJob")),
        # A QOS's limit of a kind takes the place of the association's.
        ("gpu", "big", "group", "bob", GpuLimit(12, "account lab: GrpTRES")),
        ("gpu", "normal", "nowhere", "dan", None),
    ],
)
def test_the_first_limit_of_each_kind_counts_and_the_least_of_them_binds(
    partition: str, qos: str, account: str, user: str, limit: GpuLimit | None
) -> None:
    job = replace(PENDING, partition=partition, qos=qos, account=account, user=user)
    assert LIMITS.of(job) == limit


def test_a_user_s_limit_in_one_partition_goes_before_that_in_all() -> None:
    limits = replace(LIMITS, of_partition={})
    job = replace(PENDING, partition="small", qos="normal", account="group", user="bob")
    assert limits.of(job) == GpuLimit(3, "user bob in account group: MaxTRESPerJob")


@pytest.mark.parametrize(
    ("qos", "user", "longest_s"),
    [("small", "bob", 180.0), ("normal", "bob", 86400.0), ("normal", "ann", None)],
)
def test_the_longest_time_of_a_job_is_its_qos_s_or_else_its_association_s(
    qos: str, user: str, longest_s: float | None
) -> None:
    job = replace(PENDING, partition="gpu", qos=qos, account="group", user=user)
    assert LIMITS.longest_s(job) == longest_s


def test_limits_over_several_jobs_are_named_for_those_who_share_them() -> None:
    def over(partition: str, qos: str, account: str, user: str) -> dict[str, Limit]:
        job = replace(PENDING, partition=partition, qos=qos, account=account, user=user)
        return LIMITS.over_several(job)

    assert over("gpu", "normal", "group", "ann") == {
        "account lab: GrpTRES": Limit(gpus=12),
        "user ann in account group: MaxJobsPerUser": Limit(jobs=3),
        "account lab: GrpJobs": Limit(jobs=30),
    }
    assert over("gpu", "shared", "other", "cat") == {
        "QOS shared: MaxTRESPerUser of user cat": Limit(gpus=2),
        "QOS shared: MaxTRESPerAccount of account other": Limit(gpus=9),
        "QOS shared: GrpTRES": Limit(gpus=3),
        "QOS shared: MaxJobsPerUser of user cat": Limit(jobs=4),
        "QOS shared: MaxJobsPerAccount of account other": Limit(jobs=8),
        "QOS shared: GrpJobs": Limit(jobs=20),
    }
    assert over("small", "normal", "other", "cat") == {"QOS part: GrpTRES": Limit(gpus=40)}


def test_without_limits_nothing_binds() -> None:
    assert GpuLimits().of(PENDING) is None


def test_another_form_is_told_from_no_limits() -> None:
    with pytest.raises(ValueError, match="shorter"):
        parse_limits("", "normal|only|three\n", "")
