"""What jobs tell is heard once, a bounded piece at a time, whatever becomes of job and daemon."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from immutables import Map

from hetsched_core.policy import RunKey, Stop, StopCause, make_policy
from hetsched_core.store import Ingested, ProfileKey, Store, StoreWriteError
from hetsched_core.store.spool_files import MOST_LINES
from hetsched_core.types import (
    Configuration,
    Knowledge,
    Placement,
    Plan,
    ProfilePlacement,
    Purpose,
    Reason,
    ReasonCode,
    Waiting,
)
from slurm_plugin.backend import Requeue, Signal, SlurmJob
from slurm_plugin.daemon.changes import changes_for
from slurm_plugin.daemon.profiling import SILENT_S, ProfilingRuns
from slurm_plugin.daemon.speeds import LiveSpeeds
from slurm_plugin.daemon.spool.listening import BYTES_AT_ONCE, FILES_AT_ONCE, LINGER_S, Listener
from slurm_plugin.daemon.spool.moves import Account, SpoolFolder
from slurm_plugin.daemon.spool.spool import TIDY_S, Spool
from slurm_plugin.daemon.world import LiveWorld
from tests.slurm_plugin.daemon.fake_slurm import SETTINGS, WAITING, state
from tests.slurm_plugin.daemon.fake_slurm import running as runs_on

ME = Account(os.getuid(), os.getgid())
KEY = ProfileKey("net", "ann")
NAME = str(KEY)
NOW = 1000.0


def waiting(job: str = "1", run: int = 1, nonce: str = "", user: str = "ann") -> SlurmJob:
    """A job that is queued again."""
    words = f'"nonce":"{nonce or "nonce-of-" + job}","gpu-set":"1,2"'
    mark = f'hetsched/2 {{{words},"profile-key":"net","can-checkpoint":true}}'
    return replace(WAITING, id=job, user=user, mark=mark, restarts=run)


def running(job: str = "1", **more: Any) -> SlurmJob:
    """The same job, once it runs on one V100 of n0."""
    return runs_on(waiting(job, **{"run": 0, **more}), "n0", since_s=NOW)


class Scene:
    """A world that is observed, and a spool directory in which jobs write."""

    def __init__(
        self, store: Store, folder: Path, knows: frozenset[Knowledge] = frozenset()
    ) -> None:
        self.store, self.folder, self.now = store, folder, NOW
        self.spool = SpoolFolder(folder, {"ann": ME}.get)
        self.world = LiveWorld(SETTINGS, knows, LiveSpeeds(store, measures=True))
        self.listener = Listener(store, self.spool, every_s=10.0, most_s=1.0, stopwatch=lambda: 0.0)

    def see(self, *jobs: SlurmJob) -> None:
        """Let the daemon look at Slurm."""
        self.world.observe(state(*jobs, reservations=()), self.now)
        self.listener.follow(self.world, self.now)

    def hear(self, seconds: float = 10.0) -> int:
        """Let time pass, and the daemon hear; return how many lines it took in."""
        self.now += seconds
        self.listener.follow(self.world, self.now)
        heard = self.listener.listen(self.now)
        self.world.estimates.learned(heard.learned)
        self.world.heard(heard.progress, self.now)
        return heard.lines

    def say(self, job: str, *lines: Mapping[str, object], run: int = 0, nonce: str = "") -> Path:
        """Append lines to a job's spool file, the first one after its start."""
        path = self.folder / str(ME.uid) / f"{job}.{run}.0.jsonl"
        path.parent.mkdir(exist_ok=True)
        start = {"type": "start", "schema": "hetsched-spool/1", "job": job, "run": run, "rank": 0}
        start |= {"world_size": 1, "nonce": nonce or f"nonce-of-{job}", "host": "n0", "pid": 7}
        said = lines if path.exists() else (start | {"at_s": NOW}, *lines)
        with path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in said)
        return path


def progress(t_s: float, samples: float, speed: float = 50.0) -> dict[str, object]:
    line: dict[str, object] = {"type": "progress", "t_s": t_s, "samples": samples}
    return line | {"samples_per_s": speed, "data_s": [], "wait_s": []}


@pytest.fixture
def scene(store: Store, tmp_path: Path) -> Scene:
    return Scene(store, tmp_path)


def test_what_a_job_tells_is_what_policies_know_of_it(scene: Scene) -> None:
    scene.see(running())
    assert scene.hear() == 0
    scene.say("1", progress(5.0, 300.0, 60.0))
    assert scene.hear() == 2
    view = scene.world.jobs["1"]
    assert (view.samples_done, view.runs[0].speed) == (300.0, 60.0)
    assert view.samples_at(scene.now + 2.0) == pytest.approx(420.0)
    speeds = scene.world.speeds
    assert speeds is not None
    assert speeds.per_gpu(NAME, "v100", 1) == pytest.approx(60.0)
    # Queued again, it has done what it has done.
    scene.say("1", {"type": "end", "t_s": 6.0, "samples": 330.0, "how": "stopped"})
    scene.hear()
    scene.see(waiting())
    assert scene.world.jobs["1"].samples_at(scene.now + 50.0) == 330.0


@pytest.mark.parametrize("policy", ["srtf", "las"])
def test_what_is_left_is_known_to_those_who_may_know_the_size(
    store: Store, tmp_path: Path, policy: str
) -> None:
    knows = make_policy(policy).info.knows
    scene, job = Scene(store, tmp_path, knows), running()
    scene.see(replace(job, mark=job.mark.replace('"gpu-set"', '"total-samples":1000,"gpu-set"')))
    scene.say("1", progress(5.0, 300.0))
    scene.hear()
    view = scene.world.jobs["1"]
    total = 1000.0 if Knowledge.TOTAL_SAMPLES in knows else None
    assert (view.samples_done, view.job.total_samples) == (300.0, total)


def test_files_are_looked_at_now_and_then_and_only_if_they_have_grown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ingest = Store.ingest

    def watched(self: Store, paths: Iterable[Path], runs: Any, now_s: float) -> Ingested:
        asked.extend(path.name for path in paths)
        return ingest(self, paths, runs, now_s)

    monkeypatch.setattr(Store, "ingest", watched)
    scene.see(running("1"), running("2"))
    scene.hear()
    scene.say("1", progress(1.0, 10.0))
    assert [scene.hear(seconds) for seconds in (1.0, 1.0, 8.0, 10.0, 10.0)] == [0, 0, 2, 0, 0]
    # The second time it may have more to say than was read.
    assert asked == ["1.0.0.jsonl"] * 2
    scene.say("1", progress(2.0, 20.0))
    # The clock may be set back.
    assert scene.hear(-500.0) == 1


def test_many_files_are_read_a_few_in_each_cycle(scene: Scene) -> None:
    jobs = [running(str(number)) for number in range(1, 3 * FILES_AT_ONCE + 1)]
    scene.see(*jobs)
    scene.hear()
    for job in jobs:
        scene.say(job.id, progress(1.0, 10.0))
    # By this watch everything takes a second, which is as long as one cycle may read.
    scene.listener._stopwatch = iter(range(1000)).__next__
    heard = [scene.hear(), scene.hear(0.1), scene.hear(0.1), scene.hear(0.1)]
    assert heard == [2 * FILES_AT_ONCE] * 3 + [0]


def test_a_long_file_is_read_by_itself(scene: Scene) -> None:
    scene.see(running("1"), running("2"))
    scene.hear()
    lines = [progress(k / 100, float(k)) for k in range(1, 1 + BYTES_AT_ONCE // 100)]
    assert scene.say("1", *lines).stat().st_size > BYTES_AT_ONCE
    scene.say("2", progress(1.0, 10.0))
    scene.listener._stopwatch = iter(range(1000)).__next__
    # No more than the store takes of one file at once, and the rest with the next look.
    assert [scene.hear(), scene.hear(0.1)] == [MOST_LINES, 2]
    assert scene.hear() == len(lines) + 1 - MOST_LINES


def test_a_run_that_has_ended_is_listened_to_for_a_while(scene: Scene) -> None:
    scene.see(running())
    scene.hear()
    scene.see(waiting())
    scene.hear()
    scene.say("1", progress(5.0, 300.0))
    assert scene.hear() == 2
    for _ in range(int(LINGER_S / 10) + 1):
        scene.hear()
    assert scene.store.followed() == ()
    # What it has done is known as long as the job is there.
    assert scene.store.progress()["nonce-of-1"].samples == 300.0
    scene.see()
    scene.hear()
    assert scene.store.progress() == {}


def test_of_a_job_that_wrote_nothing_of_use_nothing_is_left_either(scene: Scene) -> None:
    scene.see(running())
    path = scene.folder / str(ME.uid) / "1.0.0.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("rubbish\n")
    assert scene.hear() == 0
    assert scene.store.summary().spool_files == 1
    # It goes while it waits to run again: what is forgotten is not only that of its last run.
    scene.see(waiting())
    for _ in range(int(LINGER_S / 10) + 2):
        scene.hear()
    scene.see()
    scene.hear()
    assert scene.store.summary().spool_files == 0


def test_what_was_told_of_jobs_that_are_gone_is_removed_once_a_day(scene: Scene) -> None:
    scene.now = 10 * TIDY_S
    spool = Spool(scene.listener, scene.spool)
    scene.see(running("1"), running("2"))
    for job in ("1", "2"):
        spool.note(scene.world, PLAN, (), (Requeue(job),), scene.now)
    spool.hear(scene.world, scene.now)
    of_1, of_2 = sorted((scene.folder / "moves").glob("*/*"))
    for path in (of_1, of_2):
        os.utime(path, (scene.now, scene.now))

    def left_after(seconds: float) -> list[Path]:
        scene.see(running("2"))
        spool.hear(scene.world, scene.now + seconds)
        return sorted((scene.folder / "moves").glob("*/*"))

    assert left_after(TIDY_S - 1) == [of_1, of_2]
    # A clock that was set back does not keep it from coming about.
    assert left_after(-5.0) == [of_1, of_2]
    assert left_after(TIDY_S + 1) == [of_2]


def test_the_next_daemon_knows_what_was_told_and_takes_no_line_in_again(scene: Scene) -> None:
    scene.see(running())
    scene.say("1", progress(5.0, 300.0))
    scene.hear()
    # The first one is gone, and so is the run when the next one comes.
    again = Scene(scene.store, scene.folder)
    again.now = scene.now + 5.0
    again.see(waiting())
    assert (again.hear(), again.world.jobs["1"].samples_done) == (0, 300.0)
    again.say("1", progress(6.0, 350.0))
    assert (again.hear(), again.world.jobs["1"].samples_done) == (1, 350.0)
    (measured,) = scene.store.profiles()
    assert measured.measurements == 2


def test_an_id_that_is_handed_out_again_is_listened_to_as_another_job(scene: Scene) -> None:
    scene.see(running())
    path = scene.say("1", progress(5.0, 300.0))
    scene.hear()
    scene.see(running(nonce="another-nonce"))
    # Its wrapper puts a file of its own in place of the old one.
    path.unlink()
    scene.say("1", progress(1.0, 7.0), nonce="another-nonce")
    assert scene.hear() == 2
    assert scene.world.jobs["1"].samples_done == 7.0
    assert [run.run.nonce for run in scene.store.followed()].count("another-nonce") == 1


def test_a_job_of_a_user_whom_this_machine_does_not_know_is_listened_to_once_it_does(
    scene: Scene,
) -> None:
    asked: list[str] = []
    known: dict[str, Account] = {}

    def account(user: str) -> Account | None:
        asked.append(user)
        return known.get(user)

    scene.spool.account = account
    for _ in range(5):
        scene.see(running(user="eve"))
    assert scene.store.followed() == ()
    assert asked == ["eve"]
    known["eve"] = ME
    scene.hear()
    scene.see(running(user="eve"))
    assert [run.job for run in scene.store.followed()] == ["1"]


def test_while_the_store_cannot_be_written_lines_wait_and_that_is_said_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.see(running("2"))
    scene.say("2", progress(1.0, 70.0, 0.0))
    scene.hear()
    scene = Scene(scene.store, scene.folder)
    spool = Spool(scene.listener, scene.spool)
    scene.see(running("1"), running("2"))
    scene.say("1", progress(5.0, 300.0))

    def full(*_: object) -> Ingested:
        raise StoreWriteError("no space left")

    with monkeypatch.context() as while_full:
        while_full.setattr(Store, "ingest", full)
        troubles = [spool.hear(scene.world, NOW + 5.0 * k).trouble for k in range(2, 8)]
        # What the store knew before is known all the same.
        assert [scene.world.jobs[job].samples_done for job in ("1", "2")] == [0.0, 70.0]
    assert troubles == ["no space left", "", "", "", "", ""]
    heard = [spool.hear(scene.world, NOW + 10.0 * k) for k in range(4, 6)]
    assert sum(each.lines for each in heard) == 2
    assert scene.world.jobs["1"].samples_done == 300.0


def test_when_bandwidths_are_measured_the_speeds_of_all_that_was_profiled_follow(
    scene: Scene,
) -> None:
    spool = Spool(scene.listener, scene.spool)
    two = replace(runs_on(waiting("2", run=0), "n0", since_s=NOW), gpus=2)
    scene.see(running("1"), two)
    profile: dict[str, object] = {"type": "profile", "t_s": 4.0, "gpu_type": "v100", "gpus": 1}
    profile |= {"nodes": 1, "batch_size": 10, "iterations": 10, "parameters": 10**9, "pattern": 1}
    profile |= {"forward_s": 0.1, "backward_s": 0.2, "update_s": 0.1}
    scene.say("1", profile | {"data_s": [0.1] * 10, "wait_s": [0.0] * 10})
    spool.hear(scene.world, NOW + 10.0)
    average: dict[str, object] = {"type": "all_reduce", "t_s": 4.0, "backend": "nccl", "gpus": 2}
    average |= {"nodes": 1, "parameters": 10**8, "iterations": 10, "seconds": 0.05}
    scene.say("2", average)
    heard = spool.hear(scene.world, NOW + 20.0)
    assert heard.bandwidths == {"v100"}
    # 1e9 parameters/s: two GPUs average half of 1e9 in 0.5 s, which the backward pass hides none
    # of, since T_c is longer; update and forward pass take 0.2 s.
    speeds = scene.world.speeds
    assert speeds is not None
    assert speeds.per_gpu(NAME, "v100", 2) == pytest.approx(10 / 0.7)


def test_on_a_full_disk_it_is_said_once_that_moves_are_not_written_and_nothing_is_left_half(
    scene: Scene,
) -> None:
    scene.see(running("1"))
    spool = Spool(scene.listener, scene.spool)
    moved = (scene.world, PLAN, (), (Requeue("1"),), NOW)
    spool.note(*moved)
    (path,) = (scene.folder / "moves").glob("*/*")
    before = path.read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        spool.note(*moved)
        troubles = [spool.hear(scene.world, NOW + 5.0 * k).trouble for k in range(2, 5)]
        spool.note(*moved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert troubles == ["jobs cannot be told of their moves: File too large", "", ""]
    assert list(path.parent.iterdir()) == [path]
    assert path.read_text() == before
    spool.note(*moved)
    assert path.read_text() != before
    assert spool.hear(scene.world, NOW + 30.0).trouble == ""


def test_a_warned_job_is_stopped_as_soon_as_it_tells_that_its_state_is_saved(
    scene: Scene,
) -> None:
    settings = replace(SETTINGS, checkpoint_signal="USR1", checkpoint_wait_s=300.0)
    stop = Stop(RunKey("1", Purpose.RUN, 0), StopCause.PREEMPT)

    def calls() -> list[type]:
        return [type(each) for each in changes_for(scene.world, [stop], settings, scene.now)]

    saved = {"type": "checkpoint", "samples": 280.0, "stopped_s": 0.1}
    scene.see(running())
    # A checkpoint from before the warning is none that it has asked for.
    scene.say("1", progress(5.0, 300.0), saved | {"t_s": 5.0})
    scene.hear()
    assert calls() == [Signal]
    scene.now += 1.0
    scene.world.warned({"1"}, {"1"}, scene.now)
    assert calls() == []
    scene.say("1", progress(20.0, 900.0))
    scene.hear()
    assert calls() == []
    scene.say("1", saved | {"t_s": 25.0})
    scene.hear()
    assert calls() == [Requeue]


# -- profiling runs --------------------------------------------------------------------------------

PLACED = Placement(
    Configuration.of({"n0": 1}), purpose=Purpose.PROFILE, budget=400.0, until_s=NOW + 300.0
)
PLAN = Plan(
    Map({"1": Waiting(Reason(ReasonCode.PROFILING))}), profiles=(ProfilePlacement("1", PLACED),)
)


@pytest.fixture
def measured(scene: Scene) -> Scene:
    """A job that has begun to be measured."""
    scene.see(running())
    scene.world.placed("1", PLACED)
    scene.see(running())
    (run,) = scene.world.jobs["1"].runs
    assert (run.purpose, run.budget) == (Purpose.PROFILE, 400.0)
    return scene


def ends(scene: Scene, runs: ProfilingRuns, now: float | None = None) -> bool:
    """Whether the run is over, with which its type is settled."""
    going_on = runs.going_on(scene.world, PLAN, scene.now if now is None else now)
    assert going_on in ((), PLAN.profiles)
    return not going_on


def is_settled(scene: Scene) -> bool:
    assert scene.world.speeds is not None
    return scene.world.speeds.table(NAME).profiled("v100")


def test_a_profiling_run_is_over_when_its_type_is_measured(measured: Scene) -> None:
    runs = ProfilingRuns()
    assert not ends(measured, runs)
    profile = {"type": "profile", "t_s": 2.0, "gpu_type": "v100", "gpus": 1, "nodes": 1}
    profile |= {"batch_size": 8, "iterations": 10, "parameters": 0, "pattern": 1}
    profile |= {"forward_s": 0.02, "backward_s": 0.07, "update_s": 0.01}
    measured.say("1", profile | {"data_s": [0.0], "wait_s": [0.0]})
    measured.hear()
    assert ends(measured, runs)
    assert is_settled(measured)


def test_a_job_that_tells_its_speed_alone_is_measured_for_its_iterations(measured: Scene) -> None:
    runs = ProfilingRuns()
    # What it had done before does not count for the run.
    for line, enough in (((1.0, 900.0), False), ((9.0, 1290.0), False), ((10.0, 1300.0), True)):
        measured.say("1", progress(*line))
        measured.hear()
        assert not is_settled(measured)
        assert ends(measured, runs) is enough
    assert is_settled(measured)


def test_a_job_that_tells_nothing_is_measured_in_vain_once(measured: Scene) -> None:
    runs = ProfilingRuns()
    assert not ends(measured, runs, NOW + 299.0)
    assert ends(measured, runs, NOW + 300.0)
    assert is_settled(measured)


def test_a_profiling_run_that_never_began_is_tried_again(measured: Scene) -> None:
    measured.see(waiting(run=0))
    assert ends(measured, ProfilingRuns(), NOW + 300.0)
    assert not is_settled(measured)


@pytest.mark.parametrize("writes", [True, False])
def test_a_job_that_begins_no_spool_file_is_given_up_after_a_minute(
    measured: Scene, writes: bool
) -> None:
    spool = Spool(measured.listener, measured.spool)
    if writes:
        measured.say("1")
    (run,) = measured.world.jobs["1"].runs
    after_s = run.since_s + SILENT_S
    assert spool.left(measured.world, PLAN, after_s - 1.0) is PLAN
    assert bool(spool.left(measured.world, PLAN, after_s).profiles) is writes
    assert is_settled(measured) is not writes
