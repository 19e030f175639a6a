"""Executors with real processes: exact, within their memory, whatever a job does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from job_wrappers import executor as executors
from job_wrappers import offspring
from job_wrappers.executor import DeviceFailedError, Outcome, Task, TaskJob
from job_wrappers.executor import process as processes
from job_wrappers.executor.process import Process
from job_wrappers.executor.rounds import Rounds
from job_wrappers.executor.trainer import Trainer
from tests.job_wrappers.worlds import DEVICE, ROOT, same, tool

Executor = partial(executors.Executor, device=DEVICE)
JOBS = str(Path(__file__).with_name("executor_jobs.py"))


def job(make: str, rounds: int, scale: int, name: str = "", **arguments: Any) -> TaskJob:
    return TaskJob(name or make, f"{JOBS}:{make}", rounds, scale, seed=3, arguments=arguments)


def by_turns(*jobs: TaskJob) -> list[Task]:
    """One task of each job after another, as long as there are any."""
    left = [job.tasks() for job in jobs]
    order: list[Task] = []
    while any(left):
        order += [tasks.pop(0) for tasks in left if tasks]
    return order


def plan(folder: Path, jobs: list[TaskJob], order: list[tuple[str, int, int]]) -> Path:
    """Write a plan for the command."""
    path = folder / f"plan-{len(jobs)}.json"
    path.write_text(json.dumps({"jobs": list(map(asdict, jobs)), "order": order}))
    return path


def command(plan: Path, *words: str, before: str = "") -> subprocess.Popen[str]:
    """Start the command on a plan, in a Python that does something before."""
    code = (
        f"{before}import sys\nfrom job_wrappers.offspring import adopt\n"
        "from job_wrappers.executor.__main__ import main; adopt(); sys.exit(main())"
    )
    given = [sys.executable, "-c", code, str(plan), f"--folder={plan.parent}", f"--device={DEVICE}"]
    return subprocess.Popen(
        [*given, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def final(folder: Path, job: TaskJob) -> Any:
    return Rounds(folder / job.name, job.scale).state(job.rounds)


THREE = (job("classifier", 4, 1), job("convolution", 2, 3), job("transformer", 3, 2))


@cache
def alone(made: TaskJob) -> Any:
    """What a job comes to alone, in this process."""
    with TemporaryDirectory() as name:
        trainer = Trainer(made, Path(name), DEVICE, 0.0)
        for task in made.tasks():
            trainer.store(trainer.train(task.round, task.number)[1])
        return final(Path(name), made)


def test_three_jobs_by_turns_give_the_weights_that_they_give_alone_whatever_the_memory(
    tmp_path: Path,
) -> None:
    order = by_turns(*THREE)
    with Executor(tmp_path / "roomy", THREE) as executor:
        roomy = list(executor.run(order))
    # Without a limit a model that was there once stays until its job is done.
    first = {task.job: at for at, task in reversed(list(enumerate(order)))}
    assert all(o.kept for at, o in enumerate(roomy) if at > first[o.task.job])
    # Enough for each task alone, and not for all three models beside each; the fourth never fits.
    limit = max(o.working for o in roomy) + 12_000
    assert limit < max(o.held + o.working for o in roomy)
    large = job("classifier", 1, 1, "large", width=400)
    with Executor(tmp_path / "tight", [*THREE, large], limit=limit) as executor:
        tight = list(executor.run([*order, *large.tasks()]))
    assert f"of the {limit} there are" in tight.pop().failed
    assert all(o.held + o.working <= limit for o in tight)
    assert {o.kept for o in tight[6:]} == {True, False}
    for name, outcomes in (("roomy", roomy), ("tight", tight)):
        assert [o.failed for o in outcomes] == [""] * len(order)
        assert all(same(final(tmp_path / name, each), alone(each)) for each in THREE)


def line_of(text: str) -> int:
    """Return the line of the jobs' file that says this."""
    lines = Path(JOBS).read_text().splitlines()
    return next(at for at, line in enumerate(lines, 1) if text in line)


VANDALS = {
    "exits": "its process ended with exit code 7",
    "raises": f"executor_jobs.py:{line_of('its data is gone')}: RuntimeError: its data is gone",
    "diverges": "round 1: the gradient of 0.weight is not finite; the loss of its task 0 was nan",
    "is a float": "TypeError: the loss must be a tensor of one number; it is float",
    "answers": "an answer that it was not asked for",
    "hangs": "no answer in 8 s",
    "closes": "its process closed its connection, and had not ended by itself",
}


def test_a_job_that_crashes_takes_no_other_with_it(tmp_path: Path) -> None:
    vandals = [job("vandal", 3, 1, how.replace(" ", "-"), how=how) for how in VANDALS]
    well = THREE[0]
    names = [made.name for made in (*vandals, well)]
    with Executor(tmp_path, [*vandals, well], task_timeout_s=8.0) as executor:
        outcomes = list(executor.run(by_turns(*vandals, well)))
    failed = {name: [o.failed for o in outcomes if o.task.job == name] for name in names}
    for made, why in zip(vandals, VANDALS.values(), strict=True):
        assert failed[made.name][0] == ""
        assert why in failed[made.name][2], made.name
        # What it had reached is there.
        assert Rounds(tmp_path / made.name, 1).newest() == 1
    assert failed[well.name] == [""] * 4
    assert same(final(tmp_path, well), alone(well))


SLEEPS = f"3600.{os.getpid()}"
"""So long the daemons of this module's jobs sleep, which tells them from all others."""


def daemons() -> list[str]:
    """Return the daemons that jobs have left."""
    found = subprocess.run(
        ["ps", "-eo", "stat=,args="], stdout=subprocess.PIPE, text=True, check=True
    )
    return [line for line in found.stdout.splitlines() if line.endswith(SLEEPS) and line[0] != "Z"]


def gone(holds: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 60
    while holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not holds()


def test_what_a_job_has_started_ends_with_it_however_it_ends(tmp_path: Path) -> None:
    leaves = job("vandal", 300, 1, "leaves", how="leaves", in_round=0, sleeps=SLEEPS)
    exits = job("vandal", 1, 1, "exits", how="leaves and exits", in_round=0, sleeps=SLEEPS)
    # The one goes on for long enough to be looked at.
    order = [("leaves", 0, 0), ("exits", 0, 0), *(("leaves", n, 0) for n in range(1, 300))]
    run = command(plan(tmp_path, [leaves, exits], order))
    assert run.stdout is not None
    run.stdout.readline()
    assert "exit code 7" in run.stdout.readline()
    # That of the job which goes on is left alone.
    assert gone(lambda: len(daemons()) != 1)
    run.communicate()
    assert daemons() == []


def zombies(executor: int) -> list[str]:
    """Return what has ended of an executor's and its processes' own, and was not waited for."""
    words = ["ps", "-eo", "stat=,ppid=,pid=,args="]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in said.splitlines()]
    own = {str(executor), *(row[2] for row in rows if row[1] == str(executor))}
    return [row[3] for row in rows if row[0][0] == "Z" and row[1] in own]


def test_what_has_ended_is_waited_for_while_other_tasks_run(tmp_path: Path) -> None:
    # The helper of the one ends with its process, that of the other by itself.
    left = job("vandal", 1, 1, "left", how="leaves", in_round=0, sleeps=SLEEPS)
    ends = job("vandal", 5000, 1, "ends", how="leaves", in_round=0, sleeps="0")
    order = [("left", 0, 0), *(("ends", n, 0) for n in range(5000))]
    run = command(plan(tmp_path, [left, ends], order))
    assert run.stdout is not None
    for _ in range(5):
        run.stdout.readline()
    assert gone(lambda: zombies(run.pid)), zombies(run.pid)
    assert run.poll() is None
    run.kill()
    run.communicate()


def test_what_a_job_has_started_ends_with_an_executor_that_is_killed(tmp_path: Path) -> None:
    leaves = job("vandal", 500, 1, "leaves", how="leaves", in_round=0, sleeps=SLEEPS)
    run = command(plan(tmp_path, [leaves], [("leaves", n, 0) for n in range(500)]))
    assert run.stdout is not None
    run.stdout.readline()
    assert gone(lambda: len(daemons()) != 1)
    run.kill()
    run.communicate()
    assert gone(daemons)


def test_a_fork_that_returns_from_a_job_s_code_answers_for_it_never(tmp_path: Path) -> None:
    forks, well = job("vandal", 3, 1, "forks", how="forks"), THREE[0]
    with Executor(tmp_path, [forks, well]) as executor:
        outcomes = list(executor.run(by_turns(forks, well)))
    assert [o.failed for o in outcomes] == [""] * len(outcomes)
    assert same(final(tmp_path, forks), alone(job("classifier", 3, 1, "forks")))
    assert same(final(tmp_path, well), alone(well))


def test_a_job_may_end_the_processes_that_it_has_forked_with_a_signal(tmp_path: Path) -> None:
    pooled = job("pooled", 3, 1)
    with Executor(tmp_path, [pooled], task_timeout_s=60.0) as executor:
        outcomes = list(executor.run(pooled.tasks()))
    assert [o.failed for o in outcomes] == [""] * 3
    assert same(final(tmp_path, pooled), alone(job("classifier", 3, 1)))


def test_a_job_that_was_ended_by_others_and_hangs_is_not_waited_for(tmp_path: Path) -> None:
    hangs, well = job("vandal", 2, 1, "hangs", how="hangs", in_round=0), THREE[0]
    with Executor(
        tmp_path, [hangs, well], standby=1, ended=lambda name: name == "hangs"
    ) as executor:
        outcomes = list(executor.run([*hangs.tasks()[:1], *well.tasks()]))
    assert [o.failed for o in outcomes] == ["it was ended", *[""] * 4]


def test_a_process_that_is_killed_is_noticed_though_a_helper_holds_its_connection(
    tmp_path: Path,
) -> None:
    hands_on = job("vandal", 2, 1, "hands-on", how="hands on")
    held = job("vandal", 2, 1, "held", how="is killed and held")
    with Executor(tmp_path, [hands_on, held]) as executor:
        outcomes = list(executor.run([*hands_on.tasks(), *held.tasks()]))
    # What a job starts as a rule does not get it.
    killed = "its process was killed by SIGKILL"
    assert [o.failed for o in outcomes] == ["", "", "", killed]


def test_two_executors_share_the_tasks_of_a_round(tmp_path: Path) -> None:
    shared = THREE[1]
    tasks = shared.tasks()

    def run(own: list[Task]) -> Iterator[Outcome]:
        with Executor(tmp_path, [shared], standby=1) as executor:
            yield from executor.run(own)

    # The first has the first task of every round, the other the rest: they wait for each other.
    one = run([task for task in tasks if task.number == 0])
    other = run([task for task in tasks if task.number > 0])
    found = [next(one), next(other), next(other), *one, *other]
    assert [o.failed for o in found] == [""] * len(tasks)
    assert same(final(tmp_path, shared), alone(shared))


def test_what_was_killed_goes_on_where_it_was_and_no_process_stays_behind(tmp_path: Path) -> None:
    well = THREE[0]
    with Executor(tmp_path, [well], standby=1) as executor:
        outcomes = executor.run(well.tasks())
        assert [next(outcomes).failed for _ in range(2)] == ["", ""]
        os.kill(executor.processes[well.name], 9)
        assert {o.failed for o in outcomes} == {"its process was killed by SIGKILL"}
    with Executor(tmp_path, [well, THREE[1]], standby=1) as executor:
        outcomes = executor.run([*well.tasks(), THREE[1].tasks()[0]])
        again = [next(outcomes) for _ in range(3)]
        pid = executor.processes[well.name]
        again.append(next(outcomes))
    assert again[0].loss is None
    assert [o.failed for o in again] == [""] * 4
    assert same(final(tmp_path, well), alone(well))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_job_that_hangs_does_not_outlive_an_executor_that_was_killed(tmp_path: Path) -> None:
    hangs = job("vandal", 2, 1, how="hangs", in_round=0)
    told = (
        "from job_wrappers.executor import process\n"
        "ask = process.Process.ask\n"
        "def told(self, do, **more):\n"
        "    ask(self, do, **more)\n"
        "    if do == 'train': print(self.pid, flush=True)\n"
        "process.Process.ask = told\n"
    )
    executor = command(plan(tmp_path, [hangs], [("vandal", 0, 0)]), before=told)
    assert executor.stdout is not None
    worker = int(executor.stdout.readline())
    executor.kill()
    executor.communicate()
    deadline = time.monotonic() + 60
    while _runs(worker):
        assert time.monotonic() < deadline, "it goes on for ever"
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("ready", [False, True])
def test_what_is_killed_while_it_stands_by_fails_no_job_and_another_takes_its_place(
    ready: bool, tmp_path: Path
) -> None:
    bad, well = job("vandal", 1, 1, how="raises", in_round=0), THREE[0]
    with Executor(tmp_path, [bad, well], standby=1, expected=9) as executor:
        outcomes = executor.run([*well.tasks()[:2], *bad.tasks(), *well.tasks()[2:]])
        found = []
        for _ in range(2):
            if ready:
                executor.await_standby()
            stands_by = executor._standby[0].pid
            os.kill(stands_by, 9)
            os.waitid(os.P_PID, stands_by, os.WEXITED | os.WNOWAIT)
            # A job would be given to it; later the device may be tried with it.
            found += [next(outcomes).failed for _ in range(2)]
        found += [o.failed for o in outcomes]
    assert [why[-4:] for why in found] == ["", "", "gone", "", ""]
    assert same(final(tmp_path, well), alone(well))


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        Executor(tmp_path, [THREE[0]], device="cuda:99", standby=1) as executor,
        pytest.raises(
            DeviceFailedError, match=r"cuda:99 cannot be used here: .*sees [0-9]+ CUDA devices"
        ),
    ):
        list(executor.run(THREE[0].tasks()[:1]))


WORKER = """
import sys
from pathlib import Path
from job_wrappers.executor import worker

use = worker._use

def broken(device):
    if Path({file!r}).exists():
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    return use(device)

worker._use = broken
sys.exit(worker.main(sys.argv[-2:]))
"""


@pytest.mark.parametrize("standby", [0, 1])
def test_a_device_that_breaks_fails_no_job_whether_its_processes_are_new_or_stand_by(
    standby: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No GPU can be broken for a test: processes of the executor say that theirs is.
    broken = tmp_path / "broken"
    (tmp_path / "worker.py").write_text(WORKER.format(file=str(broken)))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/worker.py "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    bad, well = job("vandal", 2, 1, how="raises", in_round=0), THREE[0]
    with Executor(tmp_path, [bad, well], standby=standby) as executor:
        outcomes = executor.run([well.tasks()[0], *bad.tasks()[:1], *well.tasks()[1:]])
        assert next(outcomes).failed == ""
        # As long as it works, a failure is the job's own.
        assert next(outcomes).failed.endswith(": RuntimeError: its data is gone")
        broken.touch()
        os.kill(executor.processes[well.name], 9)
        with pytest.raises(DeviceFailedError, match=f"{DEVICE} cannot be used here.*ECC error"):
            list(outcomes)
        assert list(executor.failed) == ["vandal"]


def test_a_process_that_cannot_be_ended_breaks_the_device_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No driver can hold a process for a test: what would end it does nothing.
    ended, end = list[int](), offspring.end
    started: list[Process] = []
    monkeypatch.setattr(sys, "executable", str(tool(tmp_path, "python", "exec sleep 3600")))
    monkeypatch.setattr(processes, "KILLED_S", 0.1)
    monkeypatch.setattr(offspring, "end", ended.append)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    try:
        with Executor(tmp_path, [], standby=2, expected=2) as executor:
            started += executor._standby
            with pytest.raises(DeviceFailedError, match=r"killed has not ended in 0\.1 s"):
                started[0].answer(0.1)
        assert ended == [process.pid for process in started]
    finally:
        for process in started:
            end(process.pid)
            process._process.wait()


def test_what_a_process_takes_is_measured_on_those_that_stand_by(tmp_path: Path) -> None:
    with Executor(tmp_path, [], standby=2, expected=2) as executor:
        executor.await_standby()
        footprint = executor.footprint()
    # Python with torch; on a GPU its context.
    assert 30 << 20 < footprint.host < 8 << 30
    assert (footprint.device > 0) == (footprint.device_total > 0) == (DEVICE != "cpu")
    assert footprint.device <= footprint.device_total


def test_tasks_that_are_of_no_job_are_refused(tmp_path: Path) -> None:
    with Executor(tmp_path, [THREE[0]], standby=0) as executor:
        for task in (Task("other", 0, 0), Task("classifier", 4, 0), Task("classifier", 0, 1)):
            with pytest.raises(ValueError, match="is no task of classifier"):
                next(executor.run([task]))


def test_the_command_runs_a_plan_and_tells_each_task(tmp_path: Path) -> None:
    well = THREE[0]
    made = plan(tmp_path, [well], [(t.job, t.round, t.number) for t in well.tasks()])
    without = "import sys; sys.modules['torch'] = None\n"
    done = command(made, "--memory-mib=10", before=without)
    out, said = done.communicate()
    assert done.returncode == 0, said
    assert [json.loads(line)["failed"] for line in out.splitlines()] == [""] * 4
    assert same(final(tmp_path, well), alone(well))
    for path, words, why in (
        (made, ["--device=nonsense"], "executor: nonsense cannot be used here: "),
        (plan(tmp_path, [], [("x", 0, 0)]), [], "is no task of"),
    ):
        refused = command(path, *words, before=without)
        out, said = refused.communicate()
        assert (refused.returncode, out, why in said) == (2, "", True), said
