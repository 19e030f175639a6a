"""From allocations to jobs: models, work, shapes, and what is said about all of it."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.throughput import ProfileSet, SizeClass, builtin_speeds, profile_set
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.jobs import Assumption, LogTypes, RejectReason, jobs_from_log
from hetsched_core.traces.node_types import NodeTypes
from hetsched_core.traces.rules import Rule, Rules
from hetsched_core.traces.sacct import LoggedAllocation, LoggedState
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Cluster, EndState, LoggedRun, Node, RequirementSet, Submission
from tests.hetsched_core.traces.worlds import allocation as of_log
from tests.hetsched_core.worlds import cluster_of

CLUSTER = ClusterFile(
    Cluster(
        (
            *(Node(f"a{i}", "a100", 4, cpus=32, memory_mb=256_000) for i in range(2)),
            *(Node(f"v{i}", "v100", 4, cpus=16, memory_mb=128_000) for i in range(4)),
        )
    ),
    NodeTypes((("old*", "k80"),)),
)
K80S = ClusterFile(cluster_of(k=("k80", 8)))
SPEEDS = builtin_speeds(CLUSTER.cluster, ["k80", "h100", "nvidia_a100-sxm4-40gb"])
MODELS = profile_set(ProfileSet.LOG)
SIZES = {profile.name: profile.size for profile in MODELS}
HOUR = 3600.0


def allocation(**changes: Any) -> LoggedAllocation:
    """A completed hour on one V100 that any type would have done for."""
    values: dict[str, Any] = {
        "job_id": "7",
        "user": "ann",
        "account": "ml",
        "submit_s": 1000.0,
        "eligible_s": 1000.0,
        "start_s": 1100.0,
        "end_s": 1100.0 + HOUR,
        "time_limit_s": 86_400.0,
        "nodes": ("v0",),
        "cpus": 4,
        "memory_mb": 32_000.0,
        "gpus": (("v100", 1),),
        "requested_gpus": ((None, 1),),
        "line": 1,
    }
    return of_log(**(values | changes))


def several(numbers: Iterable[int], **changes: Any) -> list[LoggedAllocation]:
    return [allocation(job_id=str(n), line=n + 1, **changes) for n in numbers]


def convert(*logged: LoggedAllocation, cluster: ClusterFile = CLUSTER, **options: Any) -> Workload:
    return jobs_from_log(logged, cluster, SPEEDS, MODELS, **options)


def only(*logged: LoggedAllocation, **options: Any) -> Submission:
    (submission,) = convert(*logged, **options).submissions
    return submission


def counted(workload: Workload, assumption: Assumption) -> int:
    """How many jobs the workload says this is assumed of."""
    found = [text for text in workload.assumptions if str(assumption) in text]
    return int(found[0].split(" of ")[0]) if found else 0


def speed(profile: str, gpu_type: str, gpus: int, nodes: int = 1) -> float:
    return gpus * SPEEDS.per_gpu(profile, gpu_type, gpus, nodes)


# Work ---------------------------------------------------------------------------------------------


def held(*nodes: str, **gpus: int) -> dict[str, Any]:
    """GPUs on nodes, by type; those of type `untyped` have none in the log."""
    counts = tuple((None if name == "untyped" else name, n) for name, n in gpus.items())
    return {"gpus": counts, "nodes": nodes, "n_nodes": len(nodes)}


RUNNING = {"state": LoggedState.RUNNING, "end_s": None}


@pytest.mark.parametrize(
    ("log", "gpu_type", "nodes", "seconds", "assumption"),
    [
        (held("v0", v100=1), "v100", 1, HOUR, None),
        (held("v0", "v1", "v2", v100=6), "v100", 3, HOUR, None),
        # Of several types: at the pace of the slowest.
        (held("a0", "v0", a100=2, v100=2), "v100", 2, HOUR, Assumption.SEVERAL_TYPES),
        # A type that the cluster lacks.
        (held("h0", h100=1), "h100", 1, HOUR, None),
        # Untyped GPUs have the type of their nodes.
        (held("a1", untyped=2), "a100", 1, HOUR, Assumption.UNTYPED),
        (held("v0", "v3", untyped=2), "v100", 2, HOUR, Assumption.UNTYPED),
        (held("old7", untyped=2), "k80", 1, HOUR, Assumption.UNTYPED),
        ({"elapsed_s": 0.0, "end_s": 1100.0}, "v100", 1, 1.0, Assumption.NO_TIME),
        # A run without end holds its GPUs until its limit at most.
        (RUNNING | {"elapsed_s": 500.0}, "v100", 1, 500.0, Assumption.RUNNING),
        (RUNNING | {"elapsed_s": 9e4, "time_limit_s": HOUR}, "v100", 1, HOUR, Assumption.RUNNING),
    ],
)
def test_work_is_what_the_model_does_on_the_logged_gpus_in_the_logged_time(
    log: dict[str, Any], gpu_type: str, nodes: int, seconds: float, assumption: Assumption | None
) -> None:
    row = allocation(**log)
    gpus = row.gpu_count
    found = convert(row)
    (submission,) = found.submissions
    job = submission.job
    assert submission.samples == pytest.approx(speed(job.profile, gpu_type, gpus, nodes) * seconds)
    assert job.total_samples == submission.samples
    assert job.requirements == RequirementSet.rigid(gpus)
    assert job.asked_count == gpus
    assert "total_samples" in job.assumed
    assert submission.ends_as is EndState.COMPLETED
    if seconds > 1:
        assert submission.logged == (LoggedRun(1100.0, 1100.0 + seconds, gpus),)
    assert assumption is None or counted(found, assumption) == 1


def test_several_runs_are_one_job_of_their_summed_work_submitted_at_the_first() -> None:
    first = allocation(state=LoggedState.REQUEUED, elapsed_s=1000.0, end_s=2100.0, restarts=0)
    second = allocation(
        submit_s=2100.0,
        start_s=9000.0,
        end_s=9000.0 + 2 * HOUR,
        elapsed_s=2 * HOUR,
        **held("a0", a100=2),
        restarts=1,
        state=LoggedState.FAILED,
        line=2,
    )
    found = only(second, first)
    profile = found.job.profile
    expected = speed(profile, "v100", 1) * 1000.0 + speed(profile, "a100", 2) * 2 * HOUR
    assert found.samples == pytest.approx(expected)
    assert found.job.submit_s == 1000.0
    assert found.job.requirements == RequirementSet.rigid(2)
    assert found.ends_as is EndState.FAILED
    assert counted(convert(first, second), Assumption.SEVERAL_RUNS) == 1
    # What the site did is kept run by run beside the job.
    assert found.logged == (LoggedRun(1100.0, 2100.0, 1), LoggedRun(9000.0, 9000.0 + 2 * HOUR, 2))


def test_a_job_that_was_suspended_held_its_gpus_until_its_end() -> None:
    suspended = allocation(elapsed_s=HOUR - 600.0, suspended_s=600.0)
    assert only(suspended).logged == (LoggedRun(1100.0, 1100.0 + HOUR, 1),)


def test_a_row_that_is_there_twice_counts_once_and_another_job_of_the_same_id_stays() -> None:
    row = allocation()
    other = allocation(user="ben", start_s=90_000.0, submit_s=89_000.0, end_s=93_600.0, line=3)
    found = convert(row, allocation(line=2), other)
    assert [s.job.id for s in found.submissions] == ["7", "7#1"]
    assert found.submissions[0].samples == only(row).samples
    assert counted(found, Assumption.REPEATED) == 1
    assert counted(convert(row), Assumption.REPEATED) == 0


def test_a_run_without_end_holds_its_gpus_until_the_next_run_at_most() -> None:
    lost = allocation(**RUNNING, elapsed_s=80_000.0)
    later = allocation(restarts=1, start_s=1400.0, end_s=1500.0, elapsed_s=100.0, line=2)
    found = only(lost, later)
    assert found.samples == pytest.approx(speed(found.job.profile, "v100", 1) * (300.0 + 100.0))


@pytest.mark.parametrize(
    ("states", "ends_as", "assumption"),
    [
        ("COMPLETED", EndState.COMPLETED, None),
        ("TIMEOUT CANCELLED PREEMPTED", EndState.COMPLETED, Assumption.CUT_SHORT),
        ("FAILED OUT_OF_MEMORY NODE_FAIL BOOT_FAIL DEADLINE", EndState.FAILED, Assumption.FAILED),
    ],
)
def test_a_state_says_how_a_job_ends(
    states: str, ends_as: EndState, assumption: Assumption | None
) -> None:
    for state in map(LoggedState, states.split()):
        log = allocation(state=state)
        assert only(log).ends_as is ends_as
        for possible in (Assumption.CUT_SHORT, Assumption.FAILED):
            assert counted(convert(log), possible) == (possible is assumption)


def test_what_the_log_says_of_a_job_is_kept() -> None:
    job = only(allocation(eligible_s=1050.0)).job
    assert (job.name, job.user, job.account, job.partition) == ("train", "ann", "ml", "gpu")
    assert (job.submit_s, job.eligible_s, job.time_limit_s) == (1000.0, 1050.0, 86_400.0)
    assert (job.cpus_per_gpu, job.memory_mb_per_gpu) == (4.0, 32_000.0)
    assert only(allocation(time_limit_s=None)).job.time_limit_s is None
    assert only(allocation(eligible_s=900.0)).job.eligible_s is None


# Models -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hours", "gpus", "size"),
    [(0.5, 1, "S"), (0.5, 4, "M"), (9, 1, "M"), (9, 4, "L"), (12.5, 4, "L"), (13, 4, "XL")],
)
def test_a_model_is_drawn_from_the_class_of_the_gpu_hours(
    hours: float, gpus: int, size: str
) -> None:
    log = allocation(elapsed_s=hours * HOUR, **held("a0", a100=gpus))
    found = only(log).job
    assert SIZES[found.profile] == SizeClass(size)
    assert "profile" in found.assumed


def test_models_of_a_class_that_fit_the_logged_gpus_are_drawn_about_as_often() -> None:
    drawn = [s.job.profile for s in convert(*several(range(600))).submissions]
    medium = [name for name, size in SIZES.items() if size is SizeClass.MEDIUM]
    assert set(drawn) == set(medium)
    assert min(map(drawn.count, medium)) > 150
    long = convert(*several(range(100), elapsed_s=90 * HOUR, end_s=1100.0 + 90 * HOUR))
    assert {s.job.profile for s in long.submissions} == {"resnet50-imagenet", "bert-base-512"}


def test_the_seed_changes_what_is_drawn_and_nothing_else_does() -> None:
    many = several(range(50))
    once = convert(*many)
    assert convert(*many) == once
    random.Random(3).shuffle(many)
    assert convert(*many).submissions == once.submissions
    assert convert(*many, seed=1).submissions != once.submissions


@given(st.lists(st.integers(0, 999), min_size=1, max_size=30, unique=True), st.integers(0, 5))
def test_one_more_job_in_the_log_changes_no_other(ids: list[int], seed: int) -> None:
    logs = [allocation(job_id=str(n), line=n + 1, submit_s=500.0 + n % 7) for n in ids]
    fewer = convert(*logs[:-1], seed=seed)
    more = convert(*logs, seed=seed)
    kept = tuple(s for s in more.submissions if s.job.id != str(ids[-1]))
    assert kept == fewer.submissions


def test_the_tasks_of_an_array_run_the_same_model_and_parts_of_a_job_are_jobs() -> None:
    tasks = [allocation(job_id=f"9_{n}", job_id_raw=str(9 + n), line=n) for n in range(1, 20)]
    found = convert(*tasks)
    assert len(found.submissions) == 19
    assert len({s.job.profile for s in found.submissions}) == 1
    parts = [allocation(job_id=f"5+{n}", job_id_raw=str(5 + n), line=n + 1) for n in range(2)]
    assert [s.job.id for s in convert(*parts).submissions] == ["5+0", "5+1"]


def test_a_job_of_a_class_without_a_fitting_model_gets_one_of_another_class() -> None:
    small = tuple(p for p in MODELS if p.size is SizeClass.SMALL)
    found = jobs_from_log([allocation()], CLUSTER, SPEEDS, profiles=small)
    assert found.submissions[0].job.profile in [p.name for p in small]
    assert counted(found, Assumption.OTHER_CLASS) == 1


def test_a_job_moved_to_another_cluster_gets_a_model_that_runs_there_where_there_is_one() -> None:
    logs = several(range(30), **held("a", a100=1), elapsed_s=5 * HOUR)
    found = convert(*logs, cluster=K80S)
    assert {s.job.profile for s in found.submissions} == {"unet-256"}


# GPU types ----------------------------------------------------------------------------------------

GPT = Rules((Rule(profile="gpt2-medium-wikitext"),))
LONG_NAME = (("nvidia_a100-sxm4-40gb", 1),)
LONG = {"gpus": LONG_NAME, "requested_gpus": LONG_NAME, "nodes": ("x",)}


@pytest.mark.parametrize(
    ("changes", "rules", "accepted", "guessed"),
    [
        pytest.param({}, Rules(), None, 0, id="no type asked for"),
        pytest.param({"requested_gpus": (("V100", 1),)}, Rules(), {"v100"}, 0, id="one asked for"),
        pytest.param({"requested_gpus": ()}, Rules(), None, 1, id="not told what was asked for"),
        pytest.param(held("a0", a100=1), GPT, {"a100"}, 0, id="the one that the model fits"),
        pytest.param(LONG, Rules(), {"a100"}, 0, id="in the words of the cluster"),
    ],
)
def test_a_job_accepts_the_types_that_it_asked_for_or_all_that_its_model_fits(
    changes: dict[str, Any], rules: Rules, accepted: set[str] | None, guessed: int
) -> None:
    found = convert(allocation(**changes), rules=rules)
    (job,) = (s.job for s in found.submissions)
    assert job.gpu_types == accepted
    assert ("gpu_types" in job.assumed) is bool(guessed)
    assert counted(found, Assumption.ANY_TYPE) == guessed


@pytest.mark.parametrize(
    ("log", "cluster", "known_as"),
    [
        ("A100", ("a100", "v100"), "a100"),
        ("nvidia_a100-sxm4-40gb", ("v100", "a100"), "a100"),
        ("v100", ("tesla_v100-sxm2-16gb",), "tesla_v100-sxm2-16gb"),
        ("a100", ("a100_80",), "a100"),
        ("h100", ("a100",), "h100"),
        ("mystery", ("v100",), "mystery"),
        ("a100", ("a100_1g.5gb",), "a100"),
        ("other", ("mystery",), "other"),
        # What is taken to be as fast as a V100 is none for all that.
        ("v100", ("mystery",), "v100"),
    ],
)
def test_two_names_are_one_type_only_where_both_are_certain(
    log: str, cluster: tuple[str, ...], known_as: str
) -> None:
    types = LogTypes(ClusterFile(cluster_of(**{name: (name, 1) for name in cluster})))
    assert types.known_as(log) == known_as


def test_untyped_gpus_on_unknown_nodes_are_of_the_only_type_of_the_cluster() -> None:
    found = convert(allocation(**held("x1", untyped=2)), cluster=K80S)
    (submission,) = found.submissions
    expected = speed(submission.job.profile, "k80", 2) * HOUR
    assert submission.samples == pytest.approx(expected)
    assert counted(found, Assumption.ONLY_TYPE) == 1


def test_a_job_keeps_to_the_types_that_it_ran_on_where_that_is_wanted() -> None:
    rules = Rules((Rule(gpu_types=frozenset({"a100"})),))
    log = [
        allocation(),
        allocation(job_id="8", line=2, **held("a0", "v0", a100=2, v100=2)),
        allocation(job_id="9", line=3, **held("h0", h100=1)),
    ]
    found = convert(*log, rules=rules, logged_types=True)
    types = {s.job.id: s.job.gpu_types for s in found.submissions}
    # Two are all types of the cluster, which has none of the third.
    assert types == {"7": {"v100"}, "8": {"a100", "v100"}, "9": frozenset()}
    assert counted(found, Assumption.LOGGED_TYPE) == 3
    assert all("gpu_types" in s.job.assumed for s in found.submissions)
    # The work is what it was.
    assert [s.samples for s in found.submissions] == [s.samples for s in convert(*log).submissions]


# Shapes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "gpu_type", "counts"),
    [
        (1, None, (1, 2)),
        (3, None, (1, 3, 6)),
        (8, None, (4, 8, 16)),
        (8, "a100", (4, 8)),
    ],
)
def test_elastic_jobs_accept_half_all_and_twice_their_gpus_as_far_as_a_type_has_them(
    gpus: int, gpu_type: str | None, counts: tuple[int, ...]
) -> None:
    asked = {"requested_gpus": ((gpu_type, gpus),)}
    log = allocation(**held("a0", "a1", a100=gpus), **asked)
    small = Rules((Rule(profile="resnet18-cifar10"),))
    elastic, rigid = only(log, rules=small, elastic=True), only(log, rules=small)
    assert elastic.job.requirements.counts == counts
    assert rigid.job.requirements.counts == (gpus,)
    assert elastic.samples == rigid.samples
    assert elastic.job.asked_count == gpus


def test_what_a_job_needs_beside_gpus_is_cut_down_to_what_its_nodes_have() -> None:
    v100s = (("v100", 4),)
    log = allocation(gpus=v100s, requested_gpus=v100s, cpus=64, memory_mb=64_000.0)
    found = convert(log)
    (job,) = (s.job for s in found.submissions)
    assert (job.cpus_per_gpu, job.memory_mb_per_gpu) == (4.0, 16_000.0)
    assert "cpus_per_gpu" in job.assumed
    assert counted(found, Assumption.SHRUNK) == 1
    # An A100 node has the CPUs, and any type will do.
    assert only(replace(log, requested_gpus=((None, 4),))).job.cpus_per_gpu == 8.0
    # On several nodes it is what as many nodes have.
    sizes = ClusterFile(Cluster(tuple(Node(f"v{n}", "v100", 4, cpus=n) for n in (64, 16, 8))))
    log = allocation(**held("v64", "v16", v100=8), cpus=80)
    assert only(log, cluster=sizes).job.cpus_per_gpu == 4.0
    # Nothing is cut down where the cluster does not count it.
    job = only(
        allocation(cpus=500, memory_mb=9e9), cluster=ClusterFile(cluster_of(v0=("v100", 4)))
    ).job
    assert (job.cpus_per_gpu, job.memory_mb_per_gpu) == (500.0, 9e9)


# Rules --------------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides() -> None:
    counts = RequirementSet((1, 2, 4))
    train = Rule(
        job_name=("tr*",), profile="unet-256", gpu_types=frozenset({"a100"}), requirements=counts
    )
    rules = Rules((Rule(user=("zoe",), profile="cyclegan-256"), train, Rule(profile="lstm-ptb")))
    found = only(allocation(), rules=rules, elastic=True).job
    assert (found.profile, found.gpu_types) == ("unet-256", frozenset({"a100"}))
    assert found.requirements == counts
    assert "profile" not in found.assumed
    assert only(allocation(name="x"), rules=rules).job.profile == "lstm-ptb"


def test_a_rule_that_no_job_follows_is_told_with_its_patterns() -> None:
    rules = Rules(
        (
            Rule(job_name=("train*",), requirements=RequirementSet((1,))),
            Rule(job_name=("tarin*", "fit"), user=("ann",), requirements=RequirementSet((2,))),
            Rule(requirements=RequirementSet((4,))),
        )
    )
    told = [text for text in convert(allocation(), rules=rules).assumptions if "Rule" in text]
    assert [text.partition(" decides nothing")[0] for text in told] == [
        "Rule 2 (job_name tarin* or fit, user ann)",
        "Rule 3 (any)",
    ]
    both = convert(allocation(), allocation(job_id="8", name="x"), rules=rules)
    assert not [text for text in both.assumptions if "Rule 3" in text]


@pytest.mark.parametrize(
    ("changes", "rules", "reason"),
    [
        ({}, GPT, RejectReason.RULE_TOO_LARGE),
        ({"elapsed_s": None, "end_s": None}, Rules(), RejectReason.ELAPSED),
        (held("x1", untyped=2), Rules(), RejectReason.TYPE),
    ],
)
def test_a_job_of_no_fitting_model_known_time_or_known_type_is_rejected(
    changes: dict[str, Any], rules: Rules, reason: RejectReason
) -> None:
    found = convert(allocation(**changes), rules=rules)
    assert [(r.job, r.reason, r.line) for r in found.rejected] == [("7", reason, 1)]
    assert found.rejections() == ((reason, 1),)
