"""What sacctmgr, sshare and scontrol print of a site, as tables of a cluster file."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile, format_cluster, parse_cluster
from hetsched_core.traces.site_file import (
    AccountTable,
    PartitionRules,
    QosTable,
    ShareSettings,
    UserTable,
)
from hetsched_core.traces.slurm_site import SlurmTables, read_site
from hetsched_core.types import Cluster, Node, Window

ASSOC = """\
Cluster|Account|Par Name|User|Partition|Share|GrpTRES|GrpJobs|MaxJobs
campus|root||||1|||
campus|root||root||1|||
campus|science|root|||3|cpu=512,gres/gpu=64||
campus|physics|science|||parent|||10
campus|physics||alice||2|gres/gpu=8||10
campus|physics||bob||1|||10
campus|physics||carol||parent||2|10
campus|biology|root|||1|gres/gpu:a100=4|40|
"""
ACCOUNTS = (
    AccountTable(name="science", shares=3, max_gpus=64),
    AccountTable(
        name="physics",
        parent="science",
        shares=None,
        max_jobs_per_user=10,
        users={"alice": UserTable(2, 8), "carol": UserTable(None, None, 2)},
    ),
    AccountTable(name="biology", max_jobs=40),
)
QOS = """\
Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|GrpJobs|MaxTRESPU|MaxJobsPU|MaxTRESPA|MaxJobsPA|MinTRES
normal|0|00:00:00||requeue||1.000000|||gres/gpu=8,cpu=64||||
high|1000|00:00:00|normal|cluster|DenyOnLimit|1.000000|gres/gpu=32|50||5|gres/gpu=16|20|
"""
QOS_TABLES = (
    QosTable(name="normal", gives_way=True, max_gpus_per_user=8),
    QosTable(
        name="high",
        priority=1000,
        max_gpus=32,
        max_jobs=50,
        max_jobs_per_user=5,
        max_gpus_per_account=16,
        max_jobs_per_account=20,
    ),
)
SSHARE = """\
Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare
root|||0.000000|51000|1.000000|
 root|root|1|0.250000|0|0.000000|1.000000
 science||3|0.750000|40000|0.800000|
  physics||parent|0.750000|40000|0.800000|
   physics|alice|2|0.666667|10000|0.250000|0.500000
  lab||2147483647|0.250000|0|0.000000|
 biology||1|0.250000|11000|0.200000|
  biology|dan|1|1.000000|11000|1.000000|0.250000
"""
PARTITIONS = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   AllocNodes=ALL Default=YES QoS=high
   Nodes=n[1-2],cpu[1-4]
   PriorityJobFactor=1 PriorityTier=10 RootOnly=NO ReqResv=NO OverSubscribe=NO
   State=UP TotalCPUs=128 TotalNodes=6 SelectTypeParameters=NONE

PartitionName=cpu
   QoS=N/A
   Nodes=cpu[1-4]
   PriorityJobFactor=1 PriorityTier=1

PartitionName=low QoS=unknown Nodes=n2 PriorityJobFactor=1 PriorityTier=1 State=UP
"""
RESERVATIONS = """\
ReservationName=upkeep StartTime=2027-01-02T03:00:00 EndTime=2027-01-02T05:00:00 Duration=02:00:00
   Nodes=n[1-2],cpu1 NodeCnt=3 CoreCnt=96 Features=(null) Flags=MAINT,SPEC_NODES
   TRES=cpu=96
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)

ReservationName=course StartTime=2027-01-03T03:00:00 EndTime=2027-01-03T05:00:00 Duration=02:00:00
   Nodes=n1 NodeCnt=1 CoreCnt=32 Features=(null) PartitionName=(null) Flags=SPEC_NODES
"""
FROM_ACCOUNTING = """\
Name|NodeName|TimeStart|TimeEnd|Flags
upkeep|n[1-2],cpu1|2027-01-02T03:00:00|2027-01-02T05:00:00|MAINT,SPEC_NODES
course|n1|2027-01-03T03:00:00|2027-01-03T05:00:00|SPEC_NODES
"""
CLUSTER = ClusterFile(Cluster((Node("n1", "a100", 8), Node("n2", "a100", 8))))


def read(*texts: str) -> SlurmTables:
    return read_site((f"file{at}", text) for at, text in enumerate(texts))


def test_associations_tell_accounts_users_and_their_limits() -> None:
    found = read(ASSOC)
    assert found.accounts == ACCOUNTS
    # Users that are as every user of their account are left out, and so is Slurm's own.
    assert found.notes == (
        "Account science: a limit of cpu is left out: limits count GPUs of all types.",
        "Account biology: a limit of gres/gpu:a100 is left out: limits count GPUs of all types.",
    )


def test_a_delimiter_at_the_end_of_each_line_changes_nothing() -> None:
    assert read("\n".join(f"{line}|" for line in ASSOC.splitlines())).accounts == ACCOUNTS


def test_qos_tell_priorities_and_limits() -> None:
    assert read(QOS).qos == QOS_TABLES


def test_shares_tell_the_tree_by_how_far_names_are_moved_in() -> None:
    assert read(SSHARE).accounts == (
        AccountTable(name="science", shares=3),
        AccountTable(name="physics", parent="science", shares=None, users={"alice": UserTable(2)}),
        AccountTable(name="lab", parent="science", shares=None),
        AccountTable(name="biology"),
    )
    # Associations say more, and go before.
    assert read(SSHARE, ASSOC).accounts == read(ASSOC, SSHARE).accounts == ACCOUNTS


def test_a_tree_that_is_not_told_is_flat_and_that_is_said() -> None:
    found = read("Account|User|Share\nscience||3\nphysics||2\n")
    assert [account.parent for account in found.accounts] == ["root", "root"]
    assert found.notes == (
        "file0 does not tell which account is in which: all are taken to be in root.",
    )


@pytest.mark.parametrize(
    "texts", [(RESERVATIONS,), (FROM_ACCOUNTING,), (RESERVATIONS, FROM_ACCOUNTING)]
)
def test_maintenance_closes_nodes_and_nothing_starts_that_reaches_into_it(
    texts: tuple[str, ...],
) -> None:
    said = read_site((("file", text) for text in texts), ZoneInfo("Europe/Oslo"))
    begin_s = datetime(2027, 1, 2, 2, tzinfo=UTC).timestamp()
    window = Window(frozenset({"n1", "n2"}), begin_s, begin_s + 7200.0, "upkeep", strict=True)
    file = said.added_to(CLUSTER)
    assert file.windows == (window,)
    assert parse_cluster(format_cluster(file, [])).windows == (window,)
    (note,) = said.notes
    assert note.endswith("left out, since no log tells which jobs ran in them: course.")


def test_without_a_zone_times_of_reservations_are_taken_for_utc_and_that_is_said() -> None:
    said = read(RESERVATIONS.partition("\n\n")[0])
    assert said.windows[0].from_s == datetime(2027, 1, 2, 3, tzinfo=UTC).timestamp()
    assert said.notes == ("Times of reservations are taken for UTC; name their zone with --tz.",)


def test_a_site_without_reservations_has_no_windows() -> None:
    assert read("No reservations in the system\n") == SlurmTables()


def test_partitions_tell_nodes_and_tier_and_have_the_limits_of_their_qos() -> None:
    said = read(PARTITIONS, QOS)
    file = said.added_to(CLUSTER)
    assert file.partitions == {"gpu": {"n1", "n2"}, "low": {"n2"}}
    assert file.site.partitions == {
        "gpu": PartitionRules(
            tier=10,
            max_gpus=32,
            max_jobs=50,
            max_jobs_per_user=5,
            max_gpus_per_account=16,
            max_jobs_per_account=20,
        )
    }
    assert any("Partition low has QOS unknown" in note for note in said.notes)
    assert file.site.shares is None


def test_what_slurm_says_goes_before_the_cluster_file_and_reads_back_from_it() -> None:
    before = parse_cluster(
        format_cluster(CLUSTER) + '[[accounts]]\nname = "old"\n[[qos]]\nname = "kept"\n'
    )
    file = read(ASSOC, PARTITIONS).added_to(before)
    assert file.site.accounts == ACCOUNTS
    assert [qos.name for qos in file.site.qos] == ["kept"]
    assert file.site.shares == ShareSettings()
    again = parse_cluster(format_cluster(file))
    assert (again.site, again.partitions) == (file.site, file.partitions)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["begins with ''", "sacctmgr -P show assoc", "sshare -a -P", "show partition"]),
        ("Account|User|Share\n", ["there is no account in it"]),
        ("Name|Priority\n", ["there is no QOS in it"]),
        ("Account|User|Share\nphysics|alice\n", ["line 2 has 2 fields for 3 columns", "-P"]),
        ("Account|User|Share\n|alice|1\n", ["line 2: Account is empty"]),
        ("Account|User|Share\nphysics||many\n", ["line 2: share: 'many' is no number"]),
        ("Account|User|Share|GrpTRES\np||1|gres/gpu=x\n", ["grptres: gres/gpu: 'x'"]),
        ("Account|User|Share|GrpTRES\np||1|gres\n", ["'gres' is not NAME=NUMBER"]),
        ("Account|Par Name|User|Share\np|lost||1\n", ["unknown account 'lost'"]),
        ("Account|Par Name|User|Share\np|q||1\nq|p||1\n", ["in itself"]),
        (
            "Cluster|Account|User|Share\none|p||1\ntwo|p||1\n",
            ["line 3: associations of several clusters (one, two)", "cluster=NAME"],
        ),
        ("Name|Priority\n|1\n", ["line 2: Name is empty"]),
        ("Name|Priority|MaxJobsPU\nq|1|-1\n", ["maxjobspu: '-1' is no number"]),
        ("\nPartitionName= Nodes=n1\n", ["partition of line 2: PartitionName is empty"]),
        ("PartitionName=g Nodes=n[1- X=1\n", ["partition of line 1: 'n[1-' is no node list"]),
        ("PartitionName=g PriorityTier=high\n", ["'high' is no number"]),
        ("ReservationName=r Nodes=n1\n", ["reservation of line 1: it is from '' to ''"]),
        (FROM_ACCOUNTING.replace("T05", "T03"), ["line 2: it is from '2027-01-02T03", "after"]),
        (FROM_ACCOUNTING.replace("-02T", "-x"), ["line 2: '2027-01-x03:00:00'"]),
        (RESERVATIONS.replace("n[1-2]", "n[1-"), ["line 1: 'n[1-,cpu1' is no node list"]),
    ],
)
def test_output_that_cannot_be_read_is_refused_with_its_line(
    text: str, expected: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith("file0")
    assert not [part for part in expected if part not in str(caught.value)], caught.value
