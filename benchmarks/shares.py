"""GPU hours of accounts under every policy that runs live, against what is due to them.

    python benchmarks/shares.py [--policies fifo,las,...] [--worlds equal,elastic,...]

Prints the tables of docs/policies/site.md. 32 GPUs of two types, jobs of an hour on average that
are all there from the start, a half-life of 4 hours; GPU hours of 20 hours, from the tenth on.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import click
import numpy as np

from hetsched_core.policy import make_policy, policy_names
from hetsched_core.records.runlog import RunLog
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import EndState, Job, RequirementSet, Submission
from hetsched_core.types.site import ShareTree, SiteSettings
from tests.hetsched_core.worlds import cluster_of, linear_speeds

HOUR_S = 3600.0
FROM_S, END_S = 10 * HOUR_S, 30 * HOUR_S
HALF_LIFE_S = 4 * HOUR_S

CLUSTER = cluster_of(
    **{f"a{at}": ("a100", 4) for at in range(4)}, **{f"v{at}": ("v100", 4) for at in range(4)}
)
SPEEDS = linear_speeds(
    CLUSTER,
    {"m": {"a100": 2.0, "v100": 1.0}, "k": {"a100": 3.0, "v100": 1.0}},
    several_nodes=0.9,
)
TREE = ShareTree({("A", ""): 3, ("B", ""): 1, ("C", ""): 4, ("A", "a"): 2})

RIGID = ((1,), (2,), (4,), (1,), (8,))
ELASTIC = ((1, 2, 4), (2, 4), (1, 2, 4, 8), (1,))
Draw = np.random.Generator


def jobs(
    draw: Draw,
    account: str,
    number: int,
    counts: tuple[tuple[int, ...], ...] = RIGID,
    mean_s: float = HOUR_S,
    *,
    user: str = "u",
    from_s: float = 0.0,
) -> Iterator[Submission]:
    """Yield jobs of one user, lognormal in length."""
    for at in range(number):
        mine = counts[draw.integers(len(counts))]
        samples = float(mean_s * draw.lognormal(0.0, 0.7) * np.median(mine) * 1.5)
        job = Job(
            id=f"{account}{user}{at:04d}",
            submit_s=from_s + 0.001 * at,
            requirements=RequirementSet(mine),
            profile="mk"[at % 2],
            total_samples=samples,
            time_limit_s=4 * mean_s,
            account=account,
            user=user,
        )
        yield Submission(job, samples, cancel_s=END_S)


WORLDS: dict[str, tuple[str, Callable[[Draw], list[Submission]]]] = {
    "equal": ("rigid jobs", lambda d: [*jobs(d, "A", 500), *jobs(d, "B", 500)]),
    "elastic": (
        "elastic jobs",
        lambda d: [*jobs(d, "A", 400, ELASTIC), *jobs(d, "B", 400, ELASTIC)],
    ),
    "short": (
        "B's a sixth as long",
        lambda d: [*jobs(d, "A", 500), *jobs(d, "B", 1000, mean_s=HOUR_S / 6)],
    ),
    "long": (
        "A's six times as long",
        lambda d: [*jobs(d, "A", 200, mean_s=6 * HOUR_S), *jobs(d, "B", 400)],
    ),
    "wide": (
        "A's of 1 and 2 GPUs, B's of 8",
        lambda d: [*jobs(d, "A", 900, ((1,), (2,))), *jobs(d, "B", 200, ((8,),))],
    ),
    "late": (
        "C, of 4 shares, comes at 15 h",
        lambda d: [
            *jobs(d, "A", 500),
            *jobs(d, "B", 500),
            *jobs(d, "C", 400, from_s=15 * HOUR_S),
        ],
    ),
    "users": (
        "A has four users, a with 2 shares",
        lambda d: [
            *(job for user in "abcd" for job in jobs(d, "A", 200, user=user)),
            *jobs(d, "B", 500),
        ],
    ),
}
"""What each world is, and its jobs."""


def replay(policy: str, world: str, *, shares: bool) -> RunLog:
    """Return what a policy does in a world, with the site's shares or without."""
    submissions = sorted(
        WORLDS[world][1](np.random.default_rng(1)), key=lambda each: each.job.submit_s
    )
    settings = SimulationSettings(
        round_s=300.0,
        restart_cost_s=30.0,
        grace_s=10.0,
        site=SiteSettings(TREE, half_life_s=HALF_LIFE_S),
    )
    settings = settings if shares else replace(settings, site=None)
    return simulate(submissions, CLUSTER, make_policy(policy), SPEEDS, settings)


def parts(log: RunLog, from_s: float, *, by_user: bool) -> tuple[dict[str, float], float]:
    """Return the part of the GPU time that each account or user had, and of that there was."""
    whose = {job.job.id: job.job.account + (job.job.user if by_user else "") for job in log.jobs}
    had: dict[str, float] = defaultdict(float)
    for run in log.runs:
        seconds = min(END_S, run.freed_s) - max(from_s, run.since_s)
        had[whose[run.job]] += max(0.0, seconds) * run.configuration.gpus
    whole = sum(had.values())
    there_was = CLUSTER.gpus * (END_S - from_s)
    return {name: part / whole for name, part in sorted(had.items())}, whole / there_was


def row(policy: str, world: str) -> str:
    """Return a row of a table: parts, GPUs in use, stops an hour and jobs done."""
    cells = [f"`{policy}`"]
    for shares in (True, False):
        log = replay(policy, world, shares=shares)
        from_s = 20 * HOUR_S if world == "late" else FROM_S
        had, busy = parts(log, from_s, by_user=world == "users")
        done = sum(job.end_state is EndState.COMPLETED for job in log.jobs)
        stops = sum(job.restarts for job in log.jobs) / (END_S / HOUR_S)
        cells.append(" ".join(f"{name} {100 * part:.1f}" for name, part in had.items()))
        cells += [f"{100 * busy:.0f}", f"{stops:.0f}", str(done)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table for each world."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    live = [name for name in policy_names() if make_policy(name).info.live]
    parser.add_argument("--policies", default=",".join(live))
    parser.add_argument("--worlds", default=",".join(WORLDS))
    asked = parser.parse_args()
    for world in asked.worlds.split(","):
        click.echo(f"\n{world}: {WORLDS[world][0]}\n")
        click.echo("| policy | GPU time, % | in use, % | stops/h | done | without shares | | | |")
        click.echo("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for policy in asked.policies.split(","):
            click.echo(row(policy, world))


if __name__ == "__main__":
    main()
