"""A training that is stopped, killed or moved goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.records.spool import Checkpoint, End, Loss, Profile, Progress, SpoolStart
from tests.job_wrappers.worlds import (
    assert_same_training,
    launch,
    losses,
    same,
    spooled,
    weights,
)

Whole = Callable[..., Path]

USUAL = ("--dropout=0.2", "--epochs=4")
"""52 steps of two GPUs, which agree within some 0.5 s where to stop."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Trainings that nobody interrupts; each is run once."""
    done: dict[tuple[str | int, ...], Path] = {}

    def run(*words: str, gpus: int = 1) -> Path:
        key: tuple[str | int, ...] = (*words, gpus)
        if key not in done:
            done[key] = tmp_path_factory.mktemp("whole")
            launch(done[key], *words, gpus=gpus)
        return done[key]

    return run


def test_stopped_in_mid_epoch_it_goes_on_bit_for_bit_and_tells_the_scheduler(
    tmp_path: Path, whole: Whole
) -> None:
    left_alone = whole(*USUAL, gpus=2)
    stopped = launch(tmp_path, *USUAL, "--signal-at=25", "--nap=0.03", gpus=2, code=99)
    assert "all of it is saved" in stopped
    done = losses(tmp_path)
    assert 25 <= len(done) < len(losses(left_alone))
    resumed = launch(tmp_path, *USUAL, gpus=2, run=1)
    assert f"resumed after {len(done)} steps" in resumed
    # No step is done twice and none is left out.
    assert losses(tmp_path) == losses(left_alone)
    assert same(weights(tmp_path), weights(left_alone))

    lines = spooled(tmp_path)
    assert isinstance(lines[0], SpoolStart)
    assert lines[0].world_size == 2
    (profile,) = [line for line in lines if isinstance(line, Profile)]
    assert (profile.gpu_type, profile.gpus, profile.batch_size) == ("cpu", 2, 8)
    assert (profile.iterations, profile.pattern, profile.parameters) == (20, 2, 12 * 24 + 49)
    # The nap lies behind the optimiser's step.
    assert profile.update_s > 0.01
    assert any(isinstance(line, Progress) for line in lines)
    assert any(isinstance(line, Loss) for line in lines)
    *_, saved, end = lines
    samples = 203 * (len(done) // 13) + 16 * (len(done) % 13)
    assert isinstance(saved, Checkpoint)
    assert saved.samples == samples
    assert isinstance(end, End)
    assert (end.samples, end.how) == (samples, "stopped")
    first, *_, last = spooled(tmp_path, 1)
    assert isinstance(first, SpoolStart)
    assert isinstance(last, End)
    assert (last.samples, last.how) == (4 * 203, "completed")


def test_on_other_numbers_of_gpus_with_the_same_global_batch_it_is_the_same_training(
    tmp_path: Path, whole: Whole
) -> None:
    words = ("--global-batch=16", "--samples=192", "--epochs=3")
    left_alone = whole(*words, gpus=2)
    launch(tmp_path, *words, "--signal-at=4", "--nap=0.04", "--shard", gpus=2, code=99)
    # Each rank has written a part of what they have in common.
    sizes = [path.stat().st_size for path in tmp_path.glob("checkpoints/step-*/*.tensors")]
    assert len(sizes) == 2
    assert min(sizes) > 2000
    resumed = launch(tmp_path, *words, "--signal-at=32", run=1, code=99)
    assert "on 1 GPUs (2 before)" in resumed
    resumed = launch(tmp_path, *words, gpus=2, run=2)
    assert "on 2 GPUs (1 before)" in resumed
    assert_same_training(tmp_path, left_alone, rel=1e-7)


def test_with_twice_the_gpus_the_global_batch_and_by_its_rule_the_learning_rate_grow(
    tmp_path: Path,
) -> None:
    words = ("--samples=160", "--lr-scaling=sqrt")
    launch(tmp_path, *words, "--signal-at=25", "--nap=0.01", code=99)
    done = losses(tmp_path)[-1]
    resumed = launch(tmp_path, *words, gpus=2, run=1)
    assert "on 2 GPUs (1 before, learning rate times 1.41421)" in resumed
    found = weights(tmp_path)
    assert found["lr"] == pytest.approx(0.01 * 0.8**3 * 2**0.5)
    # 160 samples an epoch, 8 a step before and 16 afterwards; the second epoch is shared by both.
    assert found["samples"] == 3 * 160
    left = 160 - (done[0] + 1 - 20) * 8
    assert found["steps"] == done[0] + 1 + -(-left // 16) + 10


def test_stopped_under_torchrun_and_then_killed_it_loses_the_steps_since_its_last_checkpoint_alone(
    tmp_path: Path, whole: Whole
) -> None:
    left_alone = whole(*USUAL, gpus=2)
    words = (*USUAL, "--nap=0.03")
    launch(tmp_path, *words, "--signal-at=6", gpus=2, options=("--torchrun",), code=99)
    assert 6 <= len(losses(tmp_path)) < 30
    launch(tmp_path, *words, "--save-at=30", "--kill-at=50", gpus=2, run=1, code=128 + 9)
    _, saved = sorted((tmp_path / "checkpoints").glob("step-*"))
    at = int(saved.name[5:])
    assert 30 <= at < 50
    launch(tmp_path, *USUAL, gpus=2, run=2)
    expected = losses(left_alone)
    assert losses(tmp_path) == expected[:50] + expected[at:]
    assert same(weights(tmp_path), weights(left_alone))


def test_loading_processes_and_accumulated_gradients_change_nothing(
    tmp_path: Path, whole: Whole
) -> None:
    words = ("--samples=192", "--epochs=2", "--accumulate=2")
    left_alone = whole(*words)
    launch(tmp_path, *words, "--workers=1", "--signal-at=15", "--nap=0.01", code=99)
    launch(tmp_path, *words, "--workers=1", run=1)
    assert losses(tmp_path) == losses(left_alone)
    assert same(weights(tmp_path), weights(left_alone))


def test_a_rank_that_cannot_write_holds_no_other_up_and_is_named(tmp_path: Path) -> None:
    words = ("--epochs=2", "--nap=0.03", "--spoil", "--signal-at=10")
    nowhere = ("--spool=/nowhere/at/all",)
    stopped = launch(tmp_path, *words, gpus=2, options=nowhere, code=99)
    # Nor does a spool that is not there.
    assert "told nothing: /nowhere/at/all" in stopped
    assert "could not be written: rank 1: read-only here; there is none" in stopped
    assert "NOT saved" in stopped
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["lock"]
