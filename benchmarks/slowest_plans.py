"""How long the slowest plan takes, and what memory, in worlds in which plans are hard to make.

    python -m benchmarks.slowest_plans --policies steady,hops --plans 10000 --gpus 2048

prints for each policy the median, 99th percentile and slowest of so many plans, in CPU seconds, and
the peak memory; then the worlds with the slowest plan and the highest peak. Worlds are those of
`benchmarks.plan_worlds`, replayed for up to 150 plans each in a process of its own. `--seed` shows
one world alone. Without `--policies` it is every policy.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from time import process_time, thread_time
from typing import ClassVar

import numpy as np

from benchmarks.plan_worlds import ROUND_S, PlanWorld, drawn_world
from hetsched_core.contract.scenario import random_scenario
from hetsched_core.kernels import compile_imported
from hetsched_core.policy import Policy, PolicyInfo, make_policy, policy_names
from hetsched_core.simulate import SimulationSettings, simulate
from hetsched_core.types import ExecutionModel, Plan, Snapshot

PLANS_A_WORLD = 150


@dataclass
class WorldLine:
    """What a world took: seconds of each plan, what the slowest was of, MiB before and at most."""

    seed: int
    about: str
    plan_s: list[float] = field(default_factory=list)
    slowest: str = ""
    idle_mib: int = 0
    peak_mib: int = 0


class _EnoughError(Exception):
    """So many plans have been made."""


def timed(policy: Policy, line: WorldLine, plans: int, most_s: float) -> Policy:
    """Return the policy with its plans timed, until there are so many.

    A plan of more than `most_s` CPU seconds, some of them outside of Python, ends the process.
    """

    @dataclass(frozen=True)
    class Timed:
        info: ClassVar[PolicyInfo] = policy.info

        def plan(self, snapshot: Snapshot) -> Plan:
            if len(line.plan_s) == plans:
                raise _EnoughError
            with _at_most(most_s):
                # The process's is told in ticks of milliseconds while a limit is set on it.
                begun = thread_time()
                plan = policy.plan(snapshot)
                took_s = thread_time() - begun
            if took_s > max(line.plan_s, default=0.0):
                triggers = "+".join(sorted(each.name.lower() for each in snapshot.triggers))
                line.slowest = f"{len(snapshot.jobs)} jobs at {triggers}"
            line.plan_s.append(took_s)
            return plan

    return Timed()


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Have the process ended by SIGXCPU after so many more CPU seconds, whole ones, in here."""
    before = resource.getrlimit(resource.RLIMIT_CPU)
    if math.isfinite(seconds):
        limit = math.ceil(process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)


def measure(
    policy: str,
    seed: int,
    world_of: Callable[[int, ExecutionModel], PlanWorld],
    plans: int = PLANS_A_WORLD,
    most_s: float = math.inf,
) -> WorldLine:
    """Replay the world of a seed; what is compiled and imported at the first plan is not counted.

    Args:
        policy: its name; it has its default parameters.
        seed: of the world.
        world_of: makes it, for policies of an execution model.
        plans: after so many the replay ends.
        most_s: CPU seconds of a plan after which the process ends.
    """
    made = make_policy(policy)
    compile_imported()
    calm = random_scenario(2, made.info.model)
    simulate(calm.submissions, calm.cluster, made, calm.truth, calm.settings)
    world = world_of(seed, made.info.model)
    line = WorldLine(seed, world.about, idle_mib=_peak_mib())
    _replay(timed(made, line, plans, most_s), world)
    line.peak_mib = _peak_mib()
    return line


def _replay(policy: Policy, world: PlanWorld) -> None:
    settings = SimulationSettings(round_s=ROUND_S, grace_s=30.0)
    with suppress(_EnoughError):
        simulate(world.submissions, world.cluster, policy, world.speeds, settings)


def _peak_mib() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def worlds(policy: str, plans: int, most_gpus: int) -> list[WorldLine]:
    """Measure one world after another, in a process each, until there are so many plans."""
    lines: list[WorldLine] = []
    while sum(len(line.plan_s) for line in lines) < plans:
        command = [sys.executable, "-m", "benchmarks.slowest_plans", "--policies", policy]
        command += ["--gpus", str(most_gpus), "--one", str(len(lines))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        lines.append(WorldLine(**json.loads(done.stdout)))
    return lines


def show(policy: str, lines: list[WorldLine]) -> None:
    """Print what the plans of a policy took."""
    plan_s = np.concatenate([line.plan_s for line in lines])
    median, most = float(np.median(plan_s)), float(plan_s.max())
    peak = max(line.peak_mib for line in lines)
    sys.stdout.write(
        f"{policy}: {len(plan_s)} plans of {len(lines)} worlds: median {1e3 * median:.1f} ms, "
        f"99 % {1e3 * np.percentile(plan_s, 99):.0f} ms, slowest {1e3 * most:.0f} ms "
        f"({most / median:.0f} times the median), peak {peak} MiB\n"
    )
    slow = sorted(lines, key=lambda line: -max(line.plan_s, default=0.0))
    large = sorted(lines, key=lambda line: -line.peak_mib)
    for what, first in (("slow", slow[:3]), ("large", large[:3])):
        for line in first:
            sys.stdout.write(
                f"  {what}: seed {line.seed}: {1e3 * max(line.plan_s):.0f} ms ({line.slowest}), "
                f"{line.idle_mib} to {line.peak_mib} MiB; {line.about}\n"
            )
    sys.stdout.flush()


def main() -> None:
    """Print what was measured of each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=",".join(policy_names()))
    parser.add_argument("--plans", type=int, default=10_000)
    parser.add_argument("--gpus", type=int, default=2048, help="of the largest worlds")
    parser.add_argument("--seed", type=int, help="show this world alone")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()

    def world_of(seed: int, model: ExecutionModel) -> PlanWorld:
        return drawn_world(seed, given.gpus, model)

    for policy in given.policies.split(","):
        if given.one is not None:
            json.dump(asdict(measure(policy, given.one, world_of)), sys.stdout)
        elif given.seed is not None:
            show(policy, [measure(policy, given.seed, world_of)])
        else:
            show(policy, worlds(policy, given.plans, given.gpus))


if __name__ == "__main__":
    main()
