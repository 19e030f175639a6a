"""An order whose tail changes while an executor works through it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from job_wrappers.executor import Order, Task, TaskJob
from job_wrappers.executor.trainer import Trainer
from tests.job_wrappers.torch.test_executor import THREE, Executor, alone, final, job
from tests.job_wrappers.worlds import DEVICE, same


class Changing:
    """Tasks of which the tail may be replaced; a job is over where it is told to be."""

    def __init__(self, *tasks: Task) -> None:
        self.left = list(tasks)
        self.done: set[str] = set()

    def next(self) -> Task | None:
        return self.left.pop(0) if self.left else None

    def ahead(self) -> Sequence[Task]:
        return tuple(self.left)

    def over(self, name: str) -> bool:
        return name in self.done


def test_the_tail_of_an_order_is_replaced_while_it_runs_and_what_was_taken_out_does_not_run(
    tmp_path: Path,
) -> None:
    well, other = THREE[0], THREE[2]
    order: Order = Changing(*well.tasks())
    assert isinstance(order, Changing)
    with Executor(tmp_path, [well], expected=1) as executor:
        outcomes = executor.run(order)
        found = [next(outcomes)]
        # A job that was not there when it began comes between.
        executor.admit(other)
        order.left = [*other.tasks()[:3], *well.tasks()[1:], *other.tasks()[3:]]
        found += [next(outcomes) for _ in range(2)]
        order.left[0:0] = well.tasks()[1:2]
        found += list(outcomes)
    ran = [(o.task.job[0], o.task.round, o.task.number) for o in found if o.loss is not None]
    assert [where[0] for where in ran[:5]] == ["c", "t", "t", "c", "t"]
    assert len(ran) == len(set(ran)) == 10
    assert not any(o.failed for o in found)
    assert all(same(final(tmp_path, each), alone(each)) for each in (well, other))


def test_a_process_stays_while_its_job_may_come_again_and_the_longest_idle_goes_first(
    tmp_path: Path,
) -> None:
    jobs = [TaskJob(f"j{n}", THREE[0].make, 4, seed=3) for n in range(3)]
    first, second, third = (each.tasks() for each in jobs)
    order = Changing(first[0], second[0])
    with Executor(tmp_path, jobs, standby=1, most_processes=2) as executor:
        assert [o.failed for o in executor.run(order)] == ["", ""]
        assert list(executor.processes) == ["j0", "j1"]
        order.left = [third[0]]
        assert [o.failed for o in executor.run(order)] == [""]
        assert list(executor.processes) == ["j1", "j2"]
        # A model stays though nobody knew that it would come again; what went is read anew.
        order.left = [second[1]]
        assert [o.kept for o in executor.run(order)] == [True]
        order.done, order.left = {"j1"}, first[1:]
        assert [o.failed for o in executor.run(order)] == ["", "", ""]
        assert list(executor.processes) == ["j0"]
    assert same(final(tmp_path, jobs[0]), alone(jobs[0]))


def test_a_job_whose_process_is_gone_as_its_model_is_to_leave_fails_and_gets_no_other(
    tmp_path: Path,
) -> None:
    jobs = [TaskJob(f"j{n}", THREE[0].make, 2, seed=3) for n in range(2)]
    first, second = (each.tasks() for each in jobs)
    order = Changing(first[0])
    with Executor(tmp_path, jobs, standby=1) as executor:
        (one,) = executor.run(order)
        order.left = [second[0]]
        assert [o.failed for o in executor.run(order)] == [""]
        # There is no room for both any more.
        executor._limit = one.held + one.working
        gone = executor.processes["j1"]
        os.kill(gone, signal.SIGKILL)
        os.waitid(os.P_PID, gone, os.WEXITED | os.WNOWAIT)
        order.left = [first[1]]
        assert [o.failed for o in executor.run(order)] == [""]
        assert list(executor.failed) == ["j1"]
        assert list(executor.processes) == ["j0"]


def test_a_failure_that_comes_to_light_between_tasks_is_heeded(tmp_path: Path) -> None:
    bad = job("vandal", 2, 1, how="diverges", in_round=0)
    order = Changing(bad.tasks()[0])
    with Executor(tmp_path, [bad], standby=1) as executor:
        assert next(executor.run(order)).failed == ""
        while not executor.failed:
            executor.heed()
        assert "is not finite" in executor.failed["vandal"]


def test_a_round_whose_last_gradient_is_there_without_its_step_is_closed_by_whoever_comes_next(
    tmp_path: Path,
) -> None:
    well = TaskJob("last", THREE[0].make, 1, seed=3)
    killed = Trainer(well, tmp_path, DEVICE, 0.0)
    _, made = killed.train(0, 0)
    killed._rounds.put(*made)
    with Executor(tmp_path, [well], standby=1) as executor:
        assert [o.loss for o in executor.run(well.tasks())] == [None]
    assert same(final(tmp_path, well), alone(well))


def test_what_tells_all_processes_of_a_step_to_stop_ends_no_job_in_mid_task(tmp_path: Path) -> None:
    well = THREE[0]
    with Executor(tmp_path, [well], standby=1, expected=1) as executor:
        # One is still importing torch, the other trains.
        (starting,) = (process.pid for process in executor._standby)
        outcomes = executor.run(well.tasks())
        next(outcomes)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            for pid in (starting, *executor.processes.values()):
                os.kill(pid, number)
        assert [o.failed for o in outcomes] == [""] * 3
        executor.await_standby()
    assert same(final(tmp_path, well), alone(well))
