"""Slurm's words for why a job waits, and what each means for its placement.

The words are those of `job_state_reason` (slurm.h; "Job Reason Codes" in Slurm's documentation) as
Slurm 24.11 to 26.05 print them; a test asks the library of the testbed's Slurm for its own.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hetsched_core.types import ReasonCode

_WORDS: dict[ReasonCode | None, str] = {
    # Slurm has not come to the job yet, or tells why its last run ended.
    None: """
        None Priority Resources BeginTime Prolog Cleaning SchedDefer FedJobLock
        SystemFailure JobLaunchFailure NonZeroExitCode RaisedSignal TimeLimit InactiveLimit
        OutOfMemory
    """,
    ReasonCode.QUOTA: """
        AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
        AssocGrpBB AssocGrpBBMinutes AssocGrpBBRunMinutes
        AssocGrpBilling AssocGrpBillingMinutes AssocGrpBillingRunMinutes
        AssocGrpCpuLimit AssocGrpCPUMinutesLimit AssocGrpCPURunMinutesLimit
        AssocGrpEnergy AssocGrpEnergyMinutes AssocGrpEnergyRunMinutes
        AssocGrpGRES AssocGrpGRESMinutes AssocGrpGRESRunMinutes
        AssocGrpJobsLimit AssocGrpSubmitJobsLimit AssocGrpWallLimit
        AssocGrpLicense AssocGrpLicenseMinutes AssocGrpLicenseRunMinutes
        AssocGrpMemLimit AssocGrpMemMinutes AssocGrpMemRunMinutes
        AssocGrpNodeLimit AssocGrpNodeMinutes AssocGrpNodeRunMinutes
        AssocGrpUnknown AssocGrpUnknownMinutes AssocGrpUnknownRunMinutes
        AssocMaxBBMinutesPerJob AssocMaxBBPerJob AssocMaxBBPerNode
        AssocMaxBillingMinutesPerJob AssocMaxBillingPerJob AssocMaxBillingPerNode
        AssocMaxCpuMinutesPerJobLimit AssocMaxCpuPerJobLimit AssocMaxCpuPerNode
        AssocMaxEnergyMinutesPerJob AssocMaxEnergyPerJob AssocMaxEnergyPerNode
        AssocMaxGRESMinutesPerJob AssocMaxGRESPerJob AssocMaxGRESPerNode
        AssocMaxJobsLimit AssocMaxSubmitJobLimit AssocMaxWallDurationPerJobLimit
        AssocMaxLicenseMinutesPerJob AssocMaxLicensePerJob
        AssocMaxMemMinutesPerJob AssocMaxMemPerJob AssocMaxMemPerNode
        AssocMaxNodeMinutesPerJob AssocMaxNodePerJobLimit
        AssocMaxUnknownMinutesPerJob AssocMaxUnknownPerJob AssocMaxUnknownPerNode
        QOSJobLimit QOSResourceLimit QOSTimeLimit QOSUsageThreshold
        QOSGrpBB QOSGrpBBMinutes QOSGrpBBRunMinutes
        QOSGrpBilling QOSGrpBillingMinutes QOSGrpBillingRunMinutes
        QOSGrpCpuLimit QOSGrpCPUMinutesLimit QOSGrpCPURunMinutesLimit
        QOSGrpEnergy QOSGrpEnergyMinutes QOSGrpEnergyRunMinutes
        QOSGrpGRES QOSGrpGRESMinutes QOSGrpGRESRunMinutes
        QOSGrpJobsLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit
        QOSGrpLicense QOSGrpLicenseMinutes QOSGrpLicenseRunMinutes
        QOSGrpMemLimit QOSGrpMemoryMinutes QOSGrpMemoryRunMinutes
        QOSGrpNodeLimit QOSGrpNodeMinutes QOSGrpNodeRunMinutes
        QOSGrpUnknown QOSGrpUnknownMinutes QOSGrpUnknownRunMinutes
        QOSMaxBBPerJob QOSMaxBBPerNode QOSMaxBBPerUser
        QOSMaxBillingMinutesPerJob QOSMaxBillingPerJob QOSMaxBillingPerNode QOSMaxBillingPerUser
        QOSMaxCpuMinutesPerJobLimit QOSMaxCpuPerJobLimit QOSMaxCpuPerNode QOSMaxCpuPerUserLimit
        QOSMaxEnergyMinutesPerJob QOSMaxEnergyPerJob QOSMaxEnergyPerNode QOSMaxEnergyPerUser
        QOSMaxGRESMinutesPerJob QOSMaxGRESPerJob QOSMaxGRESPerNode QOSMaxGRESPerUser
        QOSMaxJobsPerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxWallDurationPerJobLimit
        QOSMaxLicenseMinutesPerJob QOSMaxLicensePerJob QOSMaxLicensePerUser
        QOSMaxMemoryMinutesPerJob QOSMaxMemoryPerJob QOSMaxMemoryPerNode QOSMaxMemoryPerUser
        QOSMaxNodeMinutesPerJob QOSMaxNodePerJobLimit QOSMaxNodePerUserLimit
        QOSMaxUnknownMinutesPerJob QOSMaxUnknownPerJob QOSMaxUnknownPerNode QOSMaxUnknownPerUser
        QOSMinBB QOSMinBilling QOSMinCpuNotSatisfied QOSMinEnergy QOSMinGRES QOSMinLicense
        QOSMinMemory QOSMinNode QOSMinUnknown
        MaxBBPerAccount MaxBillingPerAccount MaxCpuPerAccount MaxEnergyPerAccount MaxGRESPerAccount
        MaxJobsPerAccount MaxLicensePerAccount MaxMemoryPerAccount MaxNodePerAccount
        MaxSubmitJobsPerAccount MaxUnknownPerAccount
        MaxBBRunMinsPerAccount MaxBillingRunMinsPerAccount MaxCpuRunMinsPerAccount
        MaxEnergyRunMinsPerAccount MaxGRESRunMinsPerAccount MaxLicenseRunMinsPerAccount
        MaxMemoryRunMinsPerAccount MaxNodeRunMinsPerAccount MaxUnknownRunMinsPerAccount
        MaxBBRunMinsPerUser MaxBillingRunMinsPerUser MaxCpuRunMinsPerUser MaxEnergyRunMinsPerUser
        MaxGRESRunMinsPerUser MaxLicenseRunMinsPerUser MaxMemoryRunMinsPerUser
        MaxNodeRunMinsPerUser MaxUnknownRunMinsPerUser
        MaxMemPerLimit JobArrayTaskLimit AccountingPolicy
        AccountNotAllowed InvalidAccount InvalidQOS QOSNotAllowed
    """,
    ReasonCode.LICENSES: "Licenses",
    ReasonCode.HELD: "JobHeldUser JobHeldAdmin JobHoldMaxRequeue",
    ReasonCode.DEPENDENCY: "Dependency",
    ReasonCode.DEPENDENCY_NEVER: "DependencyNeverSatisfied",
    ReasonCode.NOT_STARTED: """
        ReqNodeNotAvail NodeDown FrontEndDown NvidiaImexChannels MpiPortsBusy MaxPoweredUpNodes
        PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit PartitionConfig
        Reservation ReservationDeleted ReservationInvalid
        BadConstraints Constraints BurstBufferResources BurstBufferStageIn BurstBufferOperation
        DeadLine
    """,
}

CODES = {word: code for code, words in _WORDS.items() for word in words.split()}
"""Slurm's word -> the reason that it stands for, None if the job may start any moment."""


_TOGETHER = (
    *("AssociationJobLimit", "AssocMaxJobsLimit", "AssocGrpJobsLimit", "AssocGrpGRES"),
    *("QOSJobLimit", "QOSGrpJobsLimit", "QOSGrpGRES", "QOSMaxJobsPerUserLimit"),
    *("QOSMaxGRESPerUser", "MaxJobsPerAccount", "MaxGRESPerAccount"),
)


@lru_cache(maxsize=4096)
def word_of(said: str) -> str:
    """Return Slurm's word: of a sentence, such as pyslurm gives, the first."""
    word = re.match(r"\w*", said)
    return word[0] if word else ""


def limits_together(said: str) -> bool:
    """Whether Slurm's word names a limit on the jobs, or the GPUs, of several jobs together."""
    return word_of(said) in _TOGETHER


def limits_gres(said: str) -> bool:
    """Whether Slurm's word names a limit on GRES: on all GPUs, or on those of one type."""
    return code_of(said) is ReasonCode.QUOTA and "GRES" in word_of(said)


_CLOSED_PARTITION = frozenset({"PartitionDown", "PartitionInactive"})


@lru_cache(maxsize=4096)
def keeps_back(said: str) -> bool:
    """Whether Slurm's word of a job that is not placed keeps it back wherever it may be placed.

    A limit, or its partition. The throttle of an array is said of elements that wait behind others,
    and so of more than it keeps back. Licences are counted, and may have been free since.
    """
    if word_of(said) == "JobArrayTaskLimit":
        return False
    return partition_is_closed(said) or code_of(said) is ReasonCode.QUOTA


_TOO_LARGE = frozenset({"PartitionNodeLimit", "PartitionTimeLimit"})

_OF_JOB = frozenset(
    {
        *(*_TOO_LARGE, "PartitionConfig"),
        *("BadConstraints", "DeadLine"),
        *("BurstBufferResources", "BurstBufferStageIn", "BurstBufferOperation"),
    }
)


def of_job(said: str) -> bool:
    """Whether Slurm's word is of what the job asks for, and so of it wherever it may be placed.

    That is of the shape that it has now.
    """
    return word_of(said) in _OF_JOB


def exceeds_partition(said: str) -> bool:
    """Whether Slurm's word is that a job is larger than its partition allows now."""
    return word_of(said) in _TOO_LARGE


def partition_is_closed(said: str) -> bool:
    """Whether Slurm's word is that a job's partition takes no jobs now."""
    return word_of(said) in _CLOSED_PARTITION


_THERE = (
    *("ReqNodeNotAvail", "NodeDown", "FrontEndDown", "NvidiaImexChannels", "MpiPortsBusy"),
    *("Reservation", "MaxPoweredUpNodes", "Resources", "Priority"),
)


def of_nodes(said: str) -> bool:
    """Whether Slurm's word is of the nodes that a job was placed on, not of the job."""
    return word_of(said) in _THERE


@lru_cache(maxsize=4096)
def code_of(said: str) -> ReasonCode | None:
    """Return the reason that Slurm's word stands for.

    NOT_STARTED, which words that are in no table stand for, too, is said of where a job was placed,
    and of one that was not placed says nothing; all others hold wherever it stands.
    """
    return CODES.get(word_of(said), ReasonCode.NOT_STARTED)
