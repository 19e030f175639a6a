"""What the daemon goes on from: runs whose spool files are read, and how far jobs are."""

from dataclasses import replace
from pathlib import Path

from hetsched_core.store import FollowedRun, JobProgress, Mode, SpoolRun, Store
from hetsched_core.types import Node
from tests.hetsched_core.store.spool import ME, NOW, RUN, RUNS, Line, Spool, progress, start

SAVED: Line = {"type": "checkpoint", "t_s": 3.0, "samples": 90.0, "stopped_s": 0.1}
ENDED: Line = {"type": "end", "t_s": 4.0, "samples": 120.0, "how": "failed"}
STOPPED = ENDED | {"how": "stopped"}


def at(samples: float, t_s: float = 2.0) -> Line:
    return progress(t_s, 50.0, samples=samples)


def test_progress_is_what_the_latest_run_said_last(store: Store, spool: Spool) -> None:
    runs = {("7", number): RUN for number in (0, 1)}
    first = spool.add(start(), at(100.0), SAVED, ENDED)
    (heard,) = store.ingest([first], runs, NOW).progress
    assert heard == JobProgress(RUN.nonce, "7", 0, NOW, 120.0, 50.0, 90.0, NOW)
    # The next run has said nothing of its speed yet; its checkpoint is still the one before.
    second = spool.add(start(run=1), ENDED | {"samples": 130.0}, name="7.1.0.jsonl")
    (heard,) = store.ingest([second], runs, NOW + 5).progress
    assert heard == JobProgress(RUN.nonce, "7", 1, NOW + 5, 130.0, 0.0, 90.0, NOW)
    # What an earlier run still had to say changes nothing, nor what other ranks say.
    spool.add(ENDED)
    assert store.ingest([first], runs, NOW + 9).progress == ()
    other = spool.add(start(run=1, rank=1), at(1e9), name="7.1.1.jsonl")
    taken = store.ingest([other], runs, NOW + 9)
    assert (len(taken.lines), taken.progress) == (2, ())
    assert store.progress() == {RUN.nonce: heard}


def test_a_run_that_stopped_without_saving_goes_on_from_its_last_checkpoint(
    store: Store, spool: Spool
) -> None:
    path = spool.add(start(), at(100.0), SAVED, STOPPED)
    (heard,) = store.ingest([path], RUNS, NOW).progress
    assert (heard.samples, heard.checkpoint_samples) == (90.0, 90.0)
    # Of one that tells of no checkpoint nothing is known.
    run = replace(RUN, nonce="other-nonce")
    other = spool.add(start(job="8", nonce=run.nonce), STOPPED, name="8.0.0.jsonl")
    (heard,) = store.ingest([other], {("8", 0): run}, NOW).progress
    assert heard.samples == 120.0


def test_followed_runs_and_progress_are_there_again_until_they_are_let_go(
    path: Path, spool: Spool
) -> None:
    unmeasured = SpoolRun(ME, "another-one", None, ((Node("n2", "v100", 2, host="h"), 2),))
    runs = (FollowedRun("7", 0, RUN, NOW), FollowedRun("8", 3, unmeasured, NOW + 1))
    file = spool.add(start(), at(100.0))
    with Store.open(path, Mode.WRITE) as store:
        store.follow(runs)
        store.follow(runs[:1])
        store.ingest([file], RUNS, NOW)
    with Store.open(path, Mode.WRITE) as store:
        found = store.followed()
        assert found == runs
        assert store.progress()[RUN.nonce].samples == 100.0
        assert store.faults() == ()
        # Lines that were taken in before are not taken in again under what was found.
        assert store.ingest([file], {(f.job, f.number): f.run for f in found}, NOW).lines == ()
        assert store.summary().spool_files == 1
        store.unfollow(runs[:1], [RUN.nonce])
        assert store.followed() == runs[1:]
        assert store.progress() == {}
        assert store.summary().spool_files == 0


def test_what_a_run_without_a_profile_says_counts_for_progress_alone(
    store: Store, spool: Spool
) -> None:
    file = spool.add(start(), at(100.0))
    taken = store.ingest([file], {("7", 0): replace(RUN, profile=None)}, NOW)
    assert (taken.measurements, taken.progress[0].samples) == (0, 100.0)
    assert store.profiles() == ()


def test_files_may_be_looked_at_by_turns_and_refusals_still_count_once(
    store: Store, spool: Spool
) -> None:
    runs = {("7", number): RUN for number in range(2)}
    good, linked = spool.add(start(), at(100.0)), spool.folder / "7.1.0.jsonl"
    linked.symlink_to(good)
    rejected = 0
    for turn in range(6):
        spool.add(at(200.0, 3.0 + turn))
        rejected += len(store.ingest([good if turn % 2 else linked], runs, NOW).rejected)
    assert rejected == 1
    assert store.progress()[RUN.nonce].samples == 200.0
    assert store.profiles()[0].measurements == 7
