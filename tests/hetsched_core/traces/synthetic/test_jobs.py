"""Generated jobs: what they ask for, and that only what was asked to change changes."""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput import ProfileSet, SizeClass, builtin_tables, profile_set
from hetsched_core.traces.summary import summarise
from hetsched_core.traces.synthetic.cluster import synthetic_cluster
from hetsched_core.traces.synthetic.jobs import BLOCK, SyntheticWorkload
from hetsched_core.traces.synthetic.options import SyntheticOptions
from hetsched_core.traces.synthetic.statistics import TRACES
from hetsched_core.types import Cluster, Node, Speeds, SpeedTable, Submission

ONE_TYPE = synthetic_cluster(800, ["a100"])
THREE_TYPES = synthetic_cluster(240, ["a100", "v100", "k80"])
MODELS = profile_set(ProfileSet.LOG)


@cache
def tables(cluster: Cluster) -> dict[str, SpeedTable]:
    return builtin_tables(cluster.gpu_types, cluster.gpus)


def options(**chosen: object) -> SyntheticOptions:
    return SyntheticOptions(**{"jobs": 5000, **chosen})  # type: ignore[arg-type]


def draw(chosen: SyntheticOptions, cluster: Cluster = THREE_TYPES) -> SyntheticWorkload:
    return SyntheticWorkload.of(chosen, cluster, MODELS, tables(cluster))


def jobs(chosen: SyntheticOptions, cluster: Cluster = THREE_TYPES) -> list[Submission]:
    return list(draw(chosen, cluster).submissions())


def asked(submission: Submission) -> int:
    """The number of GPUs that the trace gave a job."""
    assert submission.job.asked_count is not None
    return submission.job.asked_count


def run_s(submission: Submission, cluster: Cluster, gpu_type: str) -> float:
    """Seconds on a type, on as few nodes as can be."""
    n = asked(submission)
    speed = tables(cluster)[submission.job.profile].per_gpu(gpu_type, n, 1 if n <= 8 else 2)
    return submission.samples / (n * speed) if speed else math.inf


@pytest.mark.parametrize(
    ("trace", "scale"), [*((trace, 1.0) for trace in sorted(TRACES)), ("philly", 0.25)]
)
def test_a_workload_shows_the_statistics_of_its_trace_and_the_load_asked_for(
    trace: str, scale: float
) -> None:
    like = TRACES[trace]
    drawn = draw(options(like=trace, jobs=30_000, load=0.8, time_scale=scale), ONE_TYPE)
    found = summarise(drawn.workload(), Speeds(ONE_TYPE, drawn.tables), ONE_TYPE)
    assert found.load == pytest.approx(0.8, rel=1e-4)
    if scale == 1.0:
        assert found.arrival_cv == pytest.approx(like.arrival_cv, rel=0.15)
    published = [scale * seconds for _, seconds in like.percentiles]
    # Few jobs of supercloud are near its tenth percentile, so it is known to a tenth only.
    assert found.run_s == pytest.approx(published, rel=0.15)
    assert found.mean_run_s == pytest.approx(scale * like.mean_s, rel=0.1)
    assert any("0.25 times" in sentence for sentence in drawn.assumptions) is (scale == 0.25)


def test_the_load_is_that_of_the_gpus_at_their_mean_speed() -> None:
    cluster = Cluster((Node("a", "a100", 8), *(Node(f"k{n}", "k80", 8) for n in range(3))))
    drawn = draw(options(load=0.5, typed_share=0.0, jobs=2000), cluster)
    total = 0.0
    for submission in drawn.submissions():
        weighed = [
            (cluster.gpus_by_type()[t], 1 / run_s(submission, cluster, t))
            for t in submission.job.gpu_types or cluster.gpu_types
            if cluster.gpus_by_type()[t] >= asked(submission)
        ]
        gpus = sum(gpus for gpus, _ in weighed)
        total += asked(submission) * gpus / sum(gpus * speed for gpus, speed in weighed)
    assert total / (drawn.span_s * cluster.gpus) == pytest.approx(0.5, rel=1e-4)
    assert drawn.load == pytest.approx(0.5)


def test_jobs_come_in_order_over_all_blocks_and_as_often_as_in_the_trace() -> None:
    submissions = jobs(options(jobs=BLOCK + 100))
    assert [s.job.id for s in submissions] == [str(n) for n in range(1, BLOCK + 101)]
    times = [s.job.submit_s for s in submissions]
    assert times[0] == 0
    assert all(a <= b for a, b in pairwise(times))
    per_hour = (len(submissions) - 1) / (times[-1] / 3600)
    assert per_hour == pytest.approx(TRACES["philly"].arrivals_per_h)


def test_one_seed_makes_the_same_jobs_every_time_and_another_seed_makes_others() -> None:
    asked_for = {"elastic_share": 0.5, "load": 0.8}
    drawn = draw(options(**asked_for))
    once = list(drawn.submissions())
    assert list(drawn.submissions()) == jobs(options(**asked_for)) == once
    assert jobs(options(**asked_for, seed=1)) != once
    for submission in once:
        # Sizes are written with six digits.
        assert float(f"{submission.samples:.6g}") == submission.samples
        assert submission.samples == submission.job.total_samples


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"elastic_share": 1.0}, {"requirements"}),
        ({"users": 7}, {"user", "account"}),
        ({"typed_share": 1.0}, {"gpu_types", "total_samples", "time_limit_s"}),
        ({"load": 0.1}, {"submit_s"}),
        ({"arrival_cv": 2.0}, {"submit_s"}),
        ({"day_night": 1.0}, {"submit_s"}),
    ],
)
def test_an_option_changes_what_it_is_for_and_nothing_else(
    change: dict[str, object], changed: set[str]
) -> None:
    fields = ("submit_s", "requirements", "profile", "total_samples", "time_limit_s", "gpu_types")
    before, after = jobs(options(jobs=300)), jobs(options(jobs=300, **change))
    found = {
        name
        for a, b in zip(before, after, strict=True)
        for name in (*fields, "user", "account", "asked_count")
        if getattr(a.job, name) != getattr(b.job, name)
    }
    assert found == changed


def test_elastic_jobs_accept_their_number_and_others_up_to_eight_of_one_to_sixteen() -> None:
    sets = [(asked(s), s.job.requirements) for s in jobs(options(elastic_share=1.0))]
    small = [counts for n, counts in sets if n <= 16]
    assert all(n in counts for n, counts in sets)
    assert all(2 <= len(counts) <= 8 for counts in small)
    assert set(map(len, small)) == set(range(2, 9))
    assert {count for counts in small for count in counts} == set(range(1, 17))
    assert all(len(counts) == 1 for n, counts in sets if n > 16)


def test_jobs_ask_for_types_in_proportion_to_their_gpus_and_only_where_they_run() -> None:
    cluster = Cluster((*(Node(f"a{n}", "a100", 8) for n in range(6)), Node("k", "k80", 8)))
    found = Counter[str]()
    for submission in jobs(options(typed_share=1.0, jobs=20_000), cluster):
        assert submission.job.gpu_types is not None
        (gpu_type,) = submission.job.gpu_types
        assert run_s(submission, cluster, gpu_type) < math.inf
        assert cluster.gpus_by_type()[gpu_type] >= asked(submission)
        if submission.job.profile == "resnet18-cifar10" and asked(submission) <= 8:
            found[gpu_type] += 1
    assert found["k80"] / found.total() == pytest.approx(1 / 7, abs=0.02)


def test_a_job_accepts_all_types_but_those_that_its_model_does_not_fit() -> None:
    for submission in jobs(options(typed_share=0.0)):
        fitting = {t for t in THREE_TYPES.gpu_types if run_s(submission, THREE_TYPES, t) < math.inf}
        accepted = submission.job.gpu_types
        assert accepted == (None if len(fitting) == 3 else fitting)
        if submission.job.profile == "gpt2-medium-wikitext":
            assert fitting == {"a100"}


def test_a_model_is_of_the_class_of_the_jobs_gpu_hours() -> None:
    classes = {model.name: model.size for model in MODELS}
    for submission in jobs(options(typed_share=0.0), ONE_TYPE):
        hours = run_s(submission, ONE_TYPE, "a100") * asked(submission) / 3600
        if min(abs(hours - edge) for edge in (1, 10, 50)) > 1e-3:
            assert classes[submission.job.profile] is SizeClass.of(hours)


def test_no_job_is_larger_than_the_largest_type_and_that_is_said() -> None:
    cluster = synthetic_cluster(16, ["a100", "v100"])
    drawn = draw(options(), cluster)
    assert max(s.job.requirements.largest for s in drawn.submissions()) == 8
    assert any("more than 8 GPUs are left out" in sentence for sentence in drawn.assumptions)
    assert not any("left out" in sentence for sentence in draw(options()).assumptions)


def test_a_time_limit_is_a_round_one_and_long_enough_on_every_type_that_the_job_may_get() -> None:
    limits = set()
    for submission in jobs(options(typed_share=0.5)):
        job = submission.job
        assert job.time_limit_s is not None
        types = job.gpu_types or THREE_TYPES.gpu_types
        longest = max(run_s(submission, THREE_TYPES, t) for t in types)
        assert longest <= job.time_limit_s * (1 + 1e-9)
        limits.add(job.time_limit_s)
    assert len([limit for limit in limits if limit % 600]) < 40
    assert {600, 3600, 86_400} <= limits


def test_the_second_user_submits_half_as_much_as_the_first() -> None:
    users = Counter(s.job.user for s in jobs(options(jobs=40_000, users=50)))
    assert len(users) == 50
    assert users["user002"] / users["user001"] == pytest.approx(0.5, rel=0.05)
    assert users["user010"] / users["user001"] == pytest.approx(0.1, rel=0.1)
    accounts = {s.job.user: s.job.account for s in jobs(options(users=50))}
    assert (accounts["user004"], accounts["user005"]) == ("group01", "group02")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"jobs": 1}, "jobs = 1 is not within 2 and"),
        ({"load": 0.0}, "load = 0.0 is"),
        ({"load": float("nan")}, "load = nan is"),
        ({"day_night": 0.5}, "day_night = 0.5"),
        ({"elastic_share": 1.5}, "elastic_share = 1.5"),
        ({"typed_share": -0.1}, "typed_share = -0.1"),
        ({"max_requirements": 17}, "max_requirements = 17"),
        ({"largest_requirement": 4}, "largest_requirement = 4 is below max_requirements = 8"),
        ({"users": 0}, "users = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"arrival_cv": 0.5}, "variation of arrivals"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_its_bounds(
    change: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        draw(options(**change))


def test_models_that_run_nowhere_on_the_cluster_are_refused() -> None:
    cluster = Cluster((Node("n", "t400", 4),))
    large = [model for model in MODELS if model.name == "gpt2-medium-wikitext"]
    with pytest.raises(InputError, match=r"gpt2-medium-wikitext.*t400"):
        SyntheticWorkload.of(options(), cluster, large, tables(cluster))
