"""Settings of policies: those that mean nothing are refused, unusual ones keep the contracts."""

from __future__ import annotations

import pytest

from hetsched_core.contract import check_policy
from hetsched_core.errors import InputError
from hetsched_core.policy import Policy, make_policy

HLAS = [
    ("groups=-1", "groups=-1 .* groups count from 0"),
    ("queues=0", "queues=0: .* from 1 to 64"),
    ("queues=65", "queues=65: .* from 1 to 64"),
    ("first_threshold_s=0", "first_threshold_s=0.0 .* above 0"),
    ("threshold_factor=0.5", "threshold_factor=0.5: .* 1 or more"),
    ("ageing_s=-1", "ageing_s=-1.0 is neither none nor 0"),
    ("ageing_s=inf", "ageing_s=inf is neither none nor 0"),
]

REFUSED = [
    ("allox-jobs", "together=0", "allox-jobs.together=0: jobs count from 1"),
    ("gavel", "reallocate_s=-1", "gavel.reallocate_s=-1.0 is not a number of at least 0"),
    ("gavel", "reallocate_s=inf", "gavel.reallocate_s=inf is not a number of at least 0"),
    ("hadar", "states=0", "count from 1"),
    ("hadar", "beam=0", "count from 1"),
    ("hadar", "communication=1.5", "share"),
    ("hadare", "copies=-1", "count from 0"),
    ("hadare", "last_nodes=-1", "count from 0"),
    ("hadare", "bandwidth_gb_s=0", "not above 0"),
    ("hadare", "order=longest", "valid: remaining, shortest, turns"),
    ("hare", "grid_growth=1", r"from 1\.01 to 100"),
    ("hare", "grid_growth=1e9", r"from 1\.01 to 100"),
    *((name, *row) for name in ("hlas", "hlas-p", "hlas-l", "hlas-slots") for row in HLAS),
    *((f"hlas-{p}", f"convergence={at}", "between 0 and 1") for p in "pl" for at in (0, 1)),
    *((name, "gap=2", f"{name}.gap=2.0 is not between 0 and 1") for name in ("hops", "steady")),
    ("hops", "lam=-1", "hops.lam=-1.0 is not between 0 and inf"),
    ("hops", "window=0", "hops.window=0.0 is not between"),
    ("hops", "speed_step=-0.1", "hops.speed_step=-0.1 is not between"),
    ("hops", "plan_ahead_s=-1", "hops.plan_ahead_s=-1.0 is not between"),
    ("hops", "profile_limit_s=0", "hops.profile_limit_s=0.0 is not between"),
    ("sia", "p=0", "sia.p=0.0 is not a number below 0"),
    ("sia", "p=-inf", "sia.p=-inf is not a number below 0"),
    ("sia", "leave_out=0", "sia.leave_out=0.0 is not a number above 0"),
    ("sia", "change=-0.1", "sia.change=-0.1 is not a number of at least 0"),
    ("sia", "gap=-1", "sia.gap=-1.0 is not a number of at least 0"),
    ("sia", "gap=inf", "sia.gap=inf is not a number of at least 0"),
    ("sia", "nodes=0", "sia.nodes=0 is not a number of at least 1"),
    ("slurm", "backfill=aggressive", "valid: conservative, easy, none"),
    ("slurm", "bf_interval_s=-1", "slurm.bf_interval_s=-1.0"),
    ("slurm", "bf_max_job_test=0", "slurm.bf_max_job_test=0"),
    ("slurm", "default_time_s=inf", "slurm.default_time_s=inf"),
    ("slurm", "weight_age=-5", "slurm.weight_age=-5"),
    ("slurm", "decay_half_life_s=nan", "slurm.decay_half_life_s='nan'"),
    ("slurm", "partitions=long", "'long' is not NAME=NUMBER"),
    ("slurm", "partitions=long=1,=2", "'=2' is not NAME=NUMBER"),
    ("slurm", "partitions=long=-1", "'long=-1' is not NAME=NUMBER"),
    ("steady", "patience_s=0", "steady.patience_s=0.0 is not between"),
    ("steady", "power=-1", "steady.power=-1.0 is not between"),
    ("steady", "floor_s=0", "steady.floor_s=0.0 is not between"),
    ("steady", "urgent=-1", "steady.urgent=-1.0 is not between"),
    ("steady", "mixed=-0.1", "steady.mixed=-0.1 is not between"),
    ("steady", "window=0", "steady.window=0.0 is not between"),
    ("tiresias", "queues=0", "make no queues"),
    ("tiresias", "threshold_gpu_s=0", "make no queues"),
    ("tiresias", "factor=1", "make no queues"),
]


def made(policy: str, settings: str) -> Policy:
    """The policy with settings in text, as in `a=1 b=2`."""
    pairs = (pair.partition("=") for pair in settings.split())
    return make_policy(policy, {name: value for name, _, value in pairs})


@pytest.mark.parametrize(("policy", "setting", "message"), REFUSED)
def test_a_setting_that_means_nothing_is_refused(policy: str, setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made(policy, setting)


@pytest.mark.parametrize(
    ("policy", "settings", "broken", "seeds"),
    [
        ("gavel", "reallocate_s=90", "", [3]),
        ("gavel", "reallocate_s=90 point=interior", "", [3]),
        ("gavel", "reallocate_s=90 objective=total-throughput", "", [3]),
        ("gavel", "reallocate_s=90 objective=makespan", "", [3]),
        ("gavel", "reallocate_s=90 objective=finish-time-fairness", "", [3]),
        # Where all are planned anew, and where a restart counts for nothing, jobs move for nothing.
        ("hadar", "replan=full", "equal-jobs idle-stops", range(8)),
        ("hops", "neighbours=id restart_weight=0", "equal-jobs idle-stops", [10]),
        ("hadare", "copies=2", "", range(4)),
        ("hadare", "order=remaining", "", range(8)),
        ("hadare", "order=shortest", "", range(8)),
        # Formula (10) knows a V100 by its name.
        ("hadare", "rates=measured", "names", range(4)),
        ("hops", "neighbours=id priority=las", "", [10]),
        ("hops", "lam=inf adjustment=false priority=srtf", "", [10]),
        ("hops", "plan_ahead_s=25 priority=finish_time_fairness", "", [10]),
        ("slurm", "backfill=easy bf_interval_s=0", "", range(4)),
        ("slurm", "backfill=none weight_job_size=10", "", range(4)),
        (
            "slurm",
            "weight_age=1000 weight_fairshare=500 calc_period_s=60 bf_max_job_test=3",
            "",
            range(4),
        ),
    ],
)
def test_every_other_setting_keeps_the_contracts_but_these(
    policy: str, settings: str, broken: str, seeds: list[int]
) -> None:
    verdict = check_policy(made(policy, settings), seeds=seeds)
    found = sorted({breach.contract for breach in verdict.breaches})
    assert found == broken.split(), str(verdict)
