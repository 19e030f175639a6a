"""What a site's tables mean for jobs: tiers, limits, shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hetsched_core.traces.cluster_file import parse_cluster
from hetsched_core.traces.site_jobs import under_site
from hetsched_core.traces.workload import Workload
from hetsched_core.types import RequirementSet, Submission
from hetsched_core.types.site import Limit, SiteSettings
from tests.hetsched_core.worlds import submission

HEAD = """schema = "hetsched-cluster/1"
[[nodes]]
nodes = "n1"
gpu_type = "a100"
gpus = 8
"""
PARTITIONS = """
[[partitions]]
name = "gpu"
nodes = "n1"
tier = 10
[[partitions]]
name = "low"
nodes = "n1"
"""


def job(name: str = "j", gpus: int = 1, **said: object) -> Submission:
    made = submission(name, 100.0, (gpus,))
    said = {"account": "physics", "user": "alice", "partition": "gpu", "qos": "normal"} | said
    return replace(made, job=replace(made.job, **said))  # type: ignore[arg-type]


def under(site: str, *jobs: Submission) -> tuple[Workload, SiteSettings | None]:
    return under_site(Workload(jobs), parse_cluster(HEAD + site))


def limits_of(site: str, one: Submission) -> dict[str, Limit]:
    """The limits that a job comes under."""
    workload, settings = under(site, one)
    assert settings is not None
    (found,) = workload.submissions
    return {name: settings.limits[name] for name in found.job.limits}


@pytest.mark.parametrize(
    "site", ["", PARTITIONS, '[[qos]]\nname = "normal"\npriority = 5\nmax_gpus_per_user = 1\n']
)
def test_where_nothing_is_said_of_these_jobs_nothing_changes(site: str) -> None:
    workload = Workload((job(qos="other"), job("k", 8, qos="other")))
    found, settings = under_site(workload, parse_cluster(HEAD + site))
    assert found is workload
    assert settings is None


def test_a_job_gives_way_where_its_qos_all_its_partitions_or_it_itself_says_so() -> None:
    site = """
[[partitions]]
name = "low"
nodes = "n1"
gives_way = true
[[partitions]]
name = "gpu"
nodes = "n1"
tier = 2
[[qos]]
name = "scavenger"
gives_way = true
"""
    jobs = [
        job("a", partition="low"),
        job("b", partition="low,gpu"),
        job("c"),
        job("d", qos="scavenger"),
        job("e", gives_way=True),
    ]
    workload, _ = under(site, *jobs)
    assert [one.job.id for one in workload.submissions if one.job.gives_way] == ["a", "d", "e"]


def test_tiers_are_of_the_partition_then_of_the_qos_then_the_jobs_own_without_gaps() -> None:
    qos = '[[qos]]\nname = "high"\npriority = 1000\n[[qos]]\nname = "normal"\n'
    jobs = [
        job("a", partition="low"),
        job("b", partition="low", qos="high"),
        job("c"),
        job("d", qos="high"),
        job("e", tier=3),
        job("f", partition="low,gpu"),
        job("g", partition="low", tier=-1),
    ]
    workload, settings = under(PARTITIONS + qos, *jobs)
    assert {one.job.id: one.job.tier for one in workload.submissions} == {
        "g": 0,
        "a": 1,
        "b": 2,
        "c": 3,
        "f": 3,
        "e": 4,
        "d": 5,
    }
    assert settings is not None
    assert settings.limits == {}


def test_tiers_of_a_workload_count_without_any_table() -> None:
    workload, settings = under("", job("a", tier=7), job("b", tier=-2))
    assert [one.job.tier for one in workload.submissions] == [1, 0]
    assert settings is not None


def test_shares_reach_the_settings() -> None:
    text = (
        '[shares]\nhalf_life = "1-0"\nperiod = 60\n[[accounts]]\nname = "physics"\nshares = 3\n'
        "users = { alice = 2 }\n"
    )
    _, settings = under(text, job())
    assert settings is not None
    assert (settings.half_life_s, settings.period_s) == (86_400.0, 60.0)
    assert settings.tree is not None
    assert settings.tree.shares == {("physics", ""): 3, ("physics", "alice"): 2}


def test_limits_have_names_that_say_whose_they_are_and_jobs_share_them() -> None:
    text = (
        '[[qos]]\nname = "normal"\nmax_gpus = 6\nmax_jobs = 9\nmax_gpus_per_user = 4\n'
        "max_jobs_per_account = 3\n"
    )
    assert limits_of(text, job()) == {
        "QOS normal: GPUs": Limit(gpus=6),
        "QOS normal: jobs": Limit(jobs=9),
        "QOS normal: GPUs of user alice": Limit(gpus=4),
        "QOS normal: jobs of account physics": Limit(jobs=3),
    }
    workload, _ = under(text, job("a"), job("b"), job("c", user="bob"))
    a, b, c = (one.job.limits for one in workload.submissions)
    assert a is b
    assert set(a) ^ set(c) == {"QOS normal: GPUs of user alice", "QOS normal: GPUs of user bob"}


TREE = """
[[accounts]]
name = "root"
max_jobs = 90
[[accounts]]
name = "science"
max_gpus = 64
max_jobs_per_user = 7
[[accounts]]
name = "physics"
parent = "science"
max_gpus = 16
users = { alice = { max_gpus = 8 }, bob = { max_jobs = 2 } }
"""


def test_limits_of_accounts_hold_for_those_in_them_and_users_have_their_own() -> None:
    above = {
        "account physics: GPUs": Limit(gpus=16),
        "account science: GPUs": Limit(gpus=64),
        "account root: jobs": Limit(jobs=90),
    }
    assert limits_of(TREE, job()) == {
        **above,
        "account physics: GPUs of user alice": Limit(gpus=8),
        "account physics: jobs of user alice": Limit(jobs=7),
    }
    assert limits_of(TREE, job(user="bob")) == {
        **above,
        "account physics: jobs of user bob": Limit(jobs=2),
    }
    assert limits_of(TREE, job(account="new")) == {"account root: jobs": Limit(jobs=90)}


def test_of_one_kind_that_of_the_partition_goes_first_then_that_of_the_qos() -> None:
    text = TREE + '[[qos]]\nname = "normal"\nmax_gpus = 6\nmax_jobs_per_user = 5\n'
    assert limits_of(text, job()) == {
        "QOS normal: GPUs": Limit(gpus=6),
        "QOS normal: jobs of user alice": Limit(jobs=5),
        "account root: jobs": Limit(jobs=90),
    }
    partition = '[[partitions]]\nname = "gpu"\nnodes = "n1"\nmax_gpus = 2\n'
    assert limits_of(text + partition, job()) == {
        "partition gpu: GPUs": Limit(gpus=2),
        "QOS normal: jobs of user alice": Limit(jobs=5),
        "account root: jobs": Limit(jobs=90),
    }


def test_a_job_that_a_limit_never_lets_start_is_rejected() -> None:
    text = '[[qos]]\nname = "normal"\nmax_gpus_per_user = 4\n[[qos]]\nname = "shut"\nmax_jobs = 0\n'
    workload, _ = under(text, job("a", 4), job("b", 5), job("c", qos="shut"))
    assert [one.job.id for one in workload.submissions] == ["a"]
    assert [(each.job, each.reason) for each in workload.rejected] == [
        ("b", "QOS normal has a limit below what it asks for"),
        ("c", "QOS shut has a limit below what it asks for"),
    ]


def test_a_job_accepts_no_count_that_a_limit_never_leaves_it() -> None:
    text = '[[qos]]\nname = "normal"\nmax_gpus_per_user = 4\nmax_gpus = 6\n'
    elastic = job("a", 4)
    elastic = replace(elastic, job=replace(elastic.job, requirements=RequirementSet((2, 4, 5, 8))))
    workload, _ = under(text, elastic)
    (shown,) = workload.submissions
    assert shown.job.requirements.counts == (2, 4)


def test_jobs_of_a_qos_without_a_table_are_counted() -> None:
    text = '[[qos]]\nname = "normal"\nmax_gpus_per_user = 4\n'
    workload, _ = under(text, job("a"), job("b", qos="odd"), job("c", qos=""))
    (said,) = workload.assumptions
    assert said.startswith("2 jobs of QOS without a table in the cluster file (none, odd)")
