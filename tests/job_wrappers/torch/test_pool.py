"""Pools whose members train with a real torch: exact, whatever comes, goes and is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_wrappers.executor import TaskJob
from job_wrappers.outcome import STOPPED
from job_wrappers.pool import result, search, submit
from slurm_plugin.pool.folder import Pool
from slurm_plugin.pool.state import cancel
from slurm_plugin.pool.submission import submit as from_the_command
from tests.job_wrappers.torch import executor_jobs
from tests.job_wrappers.torch.pools import STANDBY, LivePool, kill, training, wait_until
from tests.job_wrappers.torch.test_executor import alone
from tests.job_wrappers.worlds import ROOT, same


def submitted(pool: LivePool, *jobs: TaskJob, **others: Any) -> list[TaskJob]:
    for job in jobs:
        submit(
            *(pool.path, job.make),
            name=job.name,
            rounds=job.rounds,
            scale=job.scale,
            seed=job.seed,
            arguments=job.arguments,
            **others,
        )
    return list(jobs)


def exact(pool: LivePool, jobs: list[TaskJob], killed: int = 0) -> bool:
    """Whether each training has ended as it does alone, to the bit, and each round counted once.

    A member that is killed may have left a gradient of which it has not told the loss.
    """
    missing = 0
    for job in jobs:
        found = result(pool.path, job.name)
        assert found is not None
        assert (found["failed"], found["rounds"]) == ("", job.rounds)
        missing += job.rounds - len(found["losses"])
    assert 0 <= missing <= killed
    return all(same(pool.final(job), alone(job)) for job in jobs)


def three(rounds: int = 4) -> list[TaskJob]:
    return [
        training("classifier", "a", rounds),
        training("convolution", "b", rounds, 3),
        training("classifier", "c", rounds, 2, width=24),
    ]


# The others do so on a real Slurm.
@pytest.mark.parametrize("policy", ["hlas-l", "allox"])
def test_trainings_take_turns_on_two_members_and_end_as_they_do_alone(
    policy: str, tmp_path: Path
) -> None:
    groups = {"groups": "2"} if policy.startswith("hlas") else {}
    with LivePool(tmp_path / "pool", policy, **groups) as pool:
        pool.scheduler()
        pool.member()
        pool.member("t4")
        pool.await_members(2)
        jobs = submitted(pool, *three())
        pool.await_results(jobs)
        assert exact(pool, jobs)
        # A task is run again only where two orders crossed, and then counts nothing.
        ran = [(line["job"], line["round"], line["number"]) for line in pool.trained()]
        assert len(set(ran)) == sum(job.rounds * job.scale for job in jobs)
        if policy == "hlas-l":
            assert pool.turns() > 2


def test_a_member_and_the_scheduler_are_killed_and_at_most_what_ran_is_lost(tmp_path: Path) -> None:
    with LivePool(tmp_path / "pool", "hlas", groups="2") as pool:
        first, lost = pool.scheduler(), pool.member()
        pool.member("t4")
        pool.await_members(2)
        jobs = submitted(pool, *three(8))
        wait_until(lambda: len(pool.trained()) > 6, "some tasks")
        kill(lost)
        done = len(pool.trained())
        wait_until(lambda: len(pool.trained()) > done + 4, "tasks after a member is gone")
        kill(first)
        pool.scheduler()
        pool.member()
        pool.await_results(jobs)
        pool.await_members(2)
        assert exact(pool, jobs, killed=1)
        trained = [(t["job"], t["round"], t["number"]) for t in pool.trained() if t["loss"]]
        # Two were under way with the member, and its neighbour's when the scheduler was new.
        assert len(trained) - len(set(trained)) <= 3


def test_all_is_killed_and_goes_on_from_the_folder(tmp_path: Path) -> None:
    with LivePool(tmp_path / "pool", "hare") as pool:
        processes = [pool.scheduler(), pool.member()]
        pool.await_members(1)
        jobs = submitted(pool, *three(6))
        wait_until(lambda: len(pool.trained()) > 5, "some tasks")
        for process in processes:
            kill(process)
        before = len(pool.trained())
        pool.scheduler()
        pool.member("t4")
        pool.await_results(jobs)
        assert exact(pool, jobs, killed=1)
        ran = [line for line in pool.trained() if line["loss"] is not None]
        assert len(ran) <= sum(job.rounds * job.scale for job in jobs) + 2
        assert before > 5


def test_a_member_that_is_told_to_stop_finishes_its_task_and_leaves(tmp_path: Path) -> None:
    with LivePool(tmp_path / "pool", "hare") as pool:
        pool.scheduler()
        leaves, stays = pool.member(), pool.member()
        pool.await_members(2)
        jobs = submitted(pool, *three(6))
        wait_until(lambda: len(pool.trained()) > 3, "some tasks")
        leaves.send_signal(signal.SIGTERM)
        assert leaves.wait() == STOPPED
        assert len(pool.members()) == 1
        pool.await_results(jobs)
        assert exact(pool, jobs)
        ran = [(t["job"], t["round"], t["number"]) for t in pool.trained() if t["loss"] is not None]
        # Two orders may cross where trainings arrive one after another.
        assert len(ran) - len(set(ran)) <= 2
        (pool.path / "stop").touch()
        assert stays.wait() == 0


def test_a_training_that_fails_takes_no_other_with_it_and_its_reason_is_kept(
    tmp_path: Path,
) -> None:
    with LivePool(tmp_path / "pool") as pool:
        pool.scheduler()
        pool.member()
        bad = [training("vandal", how, 3, how=how) for how in ("exits", "raises", "diverges")]
        hangs = training("vandal", "hangs", 3, how="hangs")
        good = training("classifier", "good", 4)
        submitted(pool, *bad, hangs, good)
        wait_until(lambda: ("hangs", 1) in pool.begun(), "a task that hangs")
        cancel(Pool(pool.path), "hangs")
        pool.await_results([*bad, good])
        assert exact(pool, [good])
        said = {job.name: (result(pool.path, job.name) or {})["failed"] for job in bad}
        assert said["exits"] == "its process ended with exit code 7"
        assert said["raises"].startswith("executor_jobs.py:")
        assert said["raises"].endswith(": RuntimeError: its data is gone")
        assert "is not finite" in said["diverges"]


def test_a_training_whose_states_are_deleted_fails_with_that_and_others_go_on(
    tmp_path: Path,
) -> None:
    with LivePool(tmp_path / "pool") as pool:
        pool.scheduler()
        pool.member()
        robbed, good = training("classifier", "robbed", 5000), training("classifier", "good", 40)
        submitted(pool, robbed, good)
        wait_until(lambda: ("robbed", 4) in pool.begun(), "some rounds")

        def lost() -> bool:
            # With a state that is written just then it goes on.
            for path in (pool.path / "rounds" / "robbed").glob("*.state"):
                path.unlink(missing_ok=True)
            return result(pool.path, "robbed") is not None

        wait_until(lost, "its end")
        pool.await_results([robbed, good])
        assert exact(pool, [good])
        found = result(pool.path, "robbed")
        assert found is not None
        assert found["failed"].startswith("its state files are gone: rounds/robbed/")


def test_a_keeper_starts_again_what_is_killed_and_ends_with_the_pool(tmp_path: Path) -> None:
    with LivePool(tmp_path / "pool") as pool:
        keeper = pool.start(
            *("-m", "job_wrappers.pool", str(pool.path), "--device=cpu", STANDBY),
            f"--scheduler={sys.executable} -m tests.job_wrappers.torch.pools",
            rank=0,
        )
        pool.await_members(1)
        (before,) = pool.members()
        jobs = submitted(pool, training("classifier", "a", 3))
        pool.await_results(jobs)
        os.kill(json.loads(before.read_text())["pid"], signal.SIGKILL)
        wait_until(lambda: set(pool.members()) - {before}, "another member")
        pool.await_members(1)
        first_again = pool.members()
        # What tells a step to stop may reach the member before its keeper, which starts it no more.
        other = pool.start("-m", "job_wrappers.pool", str(pool.path), "--device=cpu", STANDBY)
        pool.await_members(2)
        (new,) = set(pool.members()) - {before, *first_again}
        os.kill(json.loads(new.read_text())["pid"], signal.SIGUSR2)
        assert other.wait() == STOPPED
        pool.await_members(1)
        more = submitted(pool, training("classifier", "b", 3))
        pool.await_results(more)
        assert exact(pool, [*jobs, *more])
        (pool.path / "stop").touch()
        assert keeper.wait() == 0


def test_what_is_submitted_from_python_is_what_the_scheduler_reads(tmp_path: Path) -> None:
    with LivePool(tmp_path / "pool") as pool:
        rates = [{"width": width} for width in (8, 16)]
        names = search(pool.path, executor_jobs.classifier, rates, rounds=5, name="s", scale=2)
        assert names == ["s-000", "s-001"]
        names, _ = from_the_command(
            *(Pool(pool.path), f"{executor_jobs.__file__}:classifier"),
            name="t",
            rounds=5,
            scale=2,
            each=(("width", (8, 16)),),
        )
        assert names == ["t-000", "t-001"]
        one, other = (Pool(pool.path).training(name) for name in ("s-001", "t-001"))
        told = replace(other, name="s-001", group="s", submit_s=one.submit_s)
        assert told == one
        with pytest.raises(ValueError, match="has a training 's-000' already"):
            submit(pool.path, executor_jobs.classifier, rounds=5, name="s-000")
        for wrong, why in (
            ("nowhere.py:f", "there is no file"),
            ("f", "expected path/file.py:function"),
            (lambda: None, "a function at the top of a Python file"),
        ):
            with pytest.raises(ValueError, match=why):
                submit(pool.path, wrong, rounds=1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="is no pool; `hetsched pool create"):
            submit(tmp_path, executor_jobs.classifier, rounds=1)


def test_the_page_s_search_over_learning_rates_leaves_twenty_trainings_that_can_be_made(
    tmp_path: Path,
) -> None:
    page = (ROOT / "docs" / "live" / "pool.md").read_text()
    (tmp_path / "search.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    with LivePool(tmp_path / "pool") as pool:
        told = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "search.py"], cwd=tmp_path, env=told, check=True)
        names = sorted(path.stem for path in (pool.path / "trainings").iterdir())
        assert names == [f"rates-{n:03}" for n in range(20)]
        job = pool.folder.training("rates-007")
        assert job is not None
        assert job.rounds == 500
        work = job.work()
        assert float(work.loss(work.model, work.batch(0, 0)).detach()) > 0.0
