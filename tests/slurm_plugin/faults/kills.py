"""Killing the daemon at random moments while jobs come, run, are moved and end."""

from __future__ import annotations

import time

from tests.slurm_plugin.faults.site import Site
from tests.slurm_plugin.jobs import await_hold

LONGEST_LIFE_S = 3.5
"""A daemon lives for less: it dies while it starts, while it places, moves and renews, or idles."""


def run_with_kills(site: Site, jobs: int, kills: int, patience_s: float = 240.0) -> list[float]:
    """Submit jobs bit by bit while the daemon is killed, then let the last one finish them.

    Returns:
        for how long each daemon that was killed lived, in seconds.
    """
    lives = [site.rng.uniform(0.0, LONGEST_LIFE_S) for _ in range(kills)]
    # By the time that daemons have lived: on a busy machine they take long to start.
    pace_s, lived_s = 0.9 * sum(lives) / jobs, 0.0
    site.start_daemon()
    await_hold(site.cluster)
    site.kill_daemon()
    for life_s in lives:
        site.start_daemon()
        begun = time.monotonic()
        while (here_s := time.monotonic() - begun) < life_s:
            if len(site.submitted) < min(jobs, (lived_s + here_s) / pace_s):
                site.submit()
            else:
                time.sleep(0.02)
        lived_s += life_s
        site.kill_daemon()
    while len(site.submitted) < jobs:
        site.submit()
    assert site.queue(), "the jobs had ended before the last kill"
    site.start_daemon()
    site.await_all(patience_s)
    site.stop_daemon()
    return lives
