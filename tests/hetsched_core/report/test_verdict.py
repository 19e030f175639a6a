"""The verdict: whether the log can be trusted for a comparison, and then what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hetsched_core.measures.logged import Closeness, LoggedMeasures
from hetsched_core.measures.metrics import Measures
from hetsched_core.policy import PolicyInfo, policy_type
from hetsched_core.report.result import Result, ResultInput
from hetsched_core.report.units import SPACE
from hetsched_core.report.verdict import Trust, trust, verdict
from tests.hetsched_core.report.test_table import EMPTY

HOUR = 3600.0
INPUT = ResultInput(("log",), "cluster", 1, {"a": 1}, 100, {}, {}, {})
CLOSE = Closeness(
    jobs=100,
    close_share=0.5,
    waited=50,
    waited_close=20,
    p50_error_s=60.0,
    p90_error_s=600.0,
    avg_logged_wait_s=2 * HOUR,
    avg_wait_s=2 * HOUR,
    wait_rank_correlation=0.9,
)
LOGGED = LoggedMeasures(100, 5 * HOUR, HOUR, HOUR, 2 * HOUR, 9.0, HOUR, HOUR)


def of(jct_h: float, wait_h: float) -> Measures:
    return replace(EMPTY, avg_jct_s=jct_h * HOUR, avg_wait_s=wait_h * HOUR)


def result(
    close: Closeness | None = CLOSE,
    reordered: Measures | None = None,
    **policies: Measures,
) -> Result:
    measures: Mapping[str, Measures] = {"slurm": of(5, 2), **policies}
    closeness = {} if close is None else dict.fromkeys(measures, close)
    return Result(INPUT, measures, {}, None if close is None else LOGGED, closeness, {}, reordered)


def said(found: Result, infos: Mapping[str, PolicyInfo] | None = None) -> list[str]:
    return [sentence.replace(SPACE, " ") for sentence in verdict(found, infos or {})]


def test_it_says_first_whether_to_trust_the_log_then_the_best_policy_and_what_it_is_better_in() -> (
    None
):
    assert said(result(las=of(4, 1.5), steady=of(2.5, 0.5))) == [
        (
            "This log can be trusted for a comparison. Jobs wait 2.00 h under slurm and 2.00 h in "
            "the log, in a like order."
        ),
        (
            "steady has the shortest completion times: 2.50 h on average, 50 % below 5.00 h under "
            "slurm. Of that jobs wait 0.50 h instead of 2.00 h, and run 2.00 h instead of 3.00 h."
        ),
    ]


@pytest.mark.parametrize(
    ("close", "level", "why"),
    [
        (CLOSE, Trust.YES, "in a like order"),
        (replace(CLOSE, waited=1), Trust.NO, "Only 1 of 100 jobs wait for more than 5 minutes"),
        (
            replace(CLOSE, avg_wait_s=0.9 * HOUR),
            Trust.NO,
            "waited for 2.00 h on average; in the replay under slurm it is 0.90",
        ),
        (
            replace(CLOSE, wait_rank_correlation=0.2),
            Trust.NO,
            "under slurm are not those that waited long",
        ),
        (
            replace(CLOSE, wait_rank_correlation=None),
            Trust.NO,
            "under slurm are not those that waited long",
        ),
        (replace(CLOSE, avg_wait_s=3 * HOUR), Trust.PARTLY, "under slurm it is 3.00 h"),
        (
            replace(CLOSE, wait_rank_correlation=0.6),
            Trust.PARTLY,
            "correlation of the waits 0.60)",
        ),
    ],
)
def test_a_log_is_trusted_as_far_as_the_same_jobs_wait_as_long(
    close: Closeness, level: Trust, why: str
) -> None:
    found = trust(result(close))
    assert found is not None
    assert found[0] is level
    assert why in found[1][0].replace(SPACE, " ")


def test_where_jobs_run_on_other_types_than_in_the_log_that_is_told() -> None:
    found = trust(replace(result(), policies={"slurm": of(4.5, 2)}))
    assert found is not None
    assert found[0] is Trust.PARTLY
    assert "ran for 3.00 h on average; in the replay under slurm it is 2.50 h" in found[1][
        0
    ].replace(SPACE, " ")
    assert len(found[1]) == 1
    # What would take that out is named where it was not done, and would change something.
    for gpus, types, named in (
        ({"a": 1, "b": 1}, "asked", True),
        ({"a": 1, "b": 1}, "logged", False),
        ({"a": 1}, "asked", False),
    ):
        setting = replace(INPUT, gpus=gpus, settings={"types": types})
        found = trust(replace(result(), policies={"slurm": of(4.5, 2)}, input=setting))
        assert found is not None
        assert found[1][-1].startswith("`--types logged` holds") == named


def test_the_order_of_gpu_types_bounds_what_is_said() -> None:
    trusted, best = said(result(reordered=of(3.5, 1), las=of(4, 1.5), steady=of(2.5, 0.5)))
    assert (
        "a job takes 3.50 h or 5.00 h on average, depending on which nodes the cluster names first"
        in trusted
    )
    # Of one of them it depends on the order whether it is better.
    assert "Which policies are better depends on that." in trusted
    assert best == (
        "steady has the shortest completion times: 2.50 h on average, 29 to 50 % below 3.50 h or "
        "5.00 h under slurm."
    )
    # It is the same whichever way the nodes are named.
    turned = result(reordered=of(5, 2), slurm=of(3.5, 1), las=of(4, 1.5), steady=of(2.5, 0.5))
    assert said(turned)[1] == best
    assert said(result(reordered=of(2.5, 1), las=of(2.5, 0.5)))[1] == (
        "Which policy has the shortest completion times depends on the order of the cluster's "
        "nodes: las has 2.50 h on average, slurm 2.50 h or 5.00 h."
    )
    trusted, _ = said(result(reordered=of(4.9, 2), steady=of(2.5, 0.5)))
    assert trusted.startswith("This log can be trusted in part for a comparison. Under slurm")
    assert "depends on that" not in trusted
    trusted, _ = said(result(reordered=of(5.01, 2), steady=of(2.5, 0.5)))
    assert trusted.startswith("This log can be trusted for a comparison. ")


def test_a_policy_whose_queue_is_nearer_to_the_log_s_is_named() -> None:
    found = result(las=of(4, 1.5), fifo=of(6, 3))
    ranks = {"slurm": 0.69, "las": 0.74, "fifo": 0.82}
    near = {name: replace(CLOSE, wait_rank_correlation=rank) for name, rank in ranks.items()}
    trusted, _ = said(replace(found, closeness=near))
    assert (
        "(rank correlation of the waits 0.69). Under fifo the waits are nearer to the log's (rank "
        "correlation 0.82)" in trusted
    )
    ranks_alike = near | {"fifo": near["las"]}
    assert "nearer" not in said(replace(found, closeness=ranks_alike))[0]


def test_without_a_log_or_a_better_policy_no_more_is_said_than_holds() -> None:
    assert said(result(None, las=of(5, 2))) == [
        "No policy has shorter completion times than slurm here, on average."
    ]
    assert said(result(None)) == []
    assert trust(result(None)) is None


def test_what_the_best_policy_needs_is_said_with_it() -> None:
    infos = {name: policy_type(name).info for name in ("slurm", "las", "steady")}
    told = "It was told how much work each job is, which a real scheduler seldom knows."
    best = replace(of(2.5, 0.5), restarts=1234)
    found = replace(
        result(las=of(4, 1.5), steady=best), input=replace(INPUT, settings={"restart_cost_s": 30})
    )
    assert said(found, infos)[1].endswith(
        f"{told} It stops running jobs 1,234 times in all, and each restart takes 30 s."
    )
    hidden = replace(found, input=replace(INPUT, settings={"hide_sizes": True}))
    assert "It was told" not in said(hidden, infos)[1]
    assert told not in said(result(las=of(2, 1.5), steady=of(4, 0.5)), infos)[1]


def test_several_seeds_give_means_and_say_which_policies_may_be_as_good() -> None:
    seeds = {
        seed: {"slurm": of(6, 2), "las": of(las, 1), "sjf": of(4, 1), "steady": of(3, 1)}
        for seed, las in ((1, 2.8), (2, 3.2))
    }
    first = result(las=of(3.3, 1), sjf=of(4, 1), steady=of(3, 1), slurm=of(6, 2))
    (best,) = said(replace(first, other_seeds=seeds, logged=None))
    assert best.startswith("steady has the shortest completion times: 3.00 h on average, 50 % ")
    assert best.endswith("Within what the seeds alone make, las may be as good.")
    alone = {seed: {"slurm": of(5, 2), "las": of(las, 1)} for seed, las in ((1, 4), (2, 6.5))}
    (best,) = said(replace(result(las=of(4, 1)), other_seeds=alone, logged=None))
    assert best.endswith("Within what the seeds alone make, slurm may be as good.")
