"""A training that is stopped, killed or moved goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetsched_core.spool import Checkpoint, End, Loss, Profile, Progress, Start
from tests.job_wrappers.torch.runs import Ended, launch, losses, spooled, weights


def equal(one: Path, other: Path) -> bool:
    """Whether two trainings have left the same, bit for bit."""
    import torch

    a, b = weights(one), weights(other)
    same = all(torch.equal(a["model"][name], b["model"][name]) for name in b["model"])
    return same and all(a[key] == b[key] for key in ("lr", "steps", "samples"))


@pytest.mark.parametrize("gpus", [1, 2])
def test_stopped_in_mid_epoch_it_goes_on_bit_for_bit(tmp_path: Path, gpus: int) -> None:
    words = ("--dropout=0.2",)
    whole = launch(tmp_path / "whole", *words, gpus=gpus)
    assert whole.code == 0, whole.said
    at = 40 if gpus == 1 else 20
    stopped = launch(tmp_path / "moved", *words, f"--signal-at={at}", "--nap=0.01", gpus=gpus)
    assert stopped.code == 99, stopped.said
    assert "all of it is saved" in stopped.said
    done = losses(tmp_path / "moved")
    assert at <= len(done) < len(losses(tmp_path / "whole"))
    resumed = launch(tmp_path / "moved", *words, gpus=gpus, run=1)
    assert resumed.code == 0, resumed.said
    assert f"resumed after {len(done)} steps" in resumed.said
    # No step is done twice and none is left out.
    assert losses(tmp_path / "moved") == losses(tmp_path / "whole")
    assert equal(tmp_path / "moved", tmp_path / "whole")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_on_another_number_of_gpus_with_the_same_global_batch_it_is_the_same_training(
    tmp_path: Path, before: int, after: int
) -> None:
    words = ("--global-batch=16", "--samples=192")
    assert launch(tmp_path / "whole", *words, gpus=before).code == 0
    stopped = launch(tmp_path / "moved", *words, "--signal-at=17", "--nap=0.01", gpus=before)
    assert stopped.code == 99, stopped.said
    resumed = launch(tmp_path / "moved", *words, gpus=after, run=1)
    assert resumed.code == 0, resumed.said
    assert f"on {after} GPUs ({before} before)" in resumed.said
    one, other = losses(tmp_path / "moved"), losses(tmp_path / "whole")
    assert [row[:2] for row in one] == [row[:2] for row in other]
    # Sums in another order, in double precision.
    assert [row[2] for row in one] == pytest.approx([row[2] for row in other], rel=1e-7)
    a, b = weights(tmp_path / "moved"), weights(tmp_path / "whole")
    for name in b["model"]:
        assert a["model"][name].flatten().tolist() == pytest.approx(
            b["model"][name].flatten().tolist(), rel=1e-6, abs=1e-9
        )
    assert a["lr"] == b["lr"]


@pytest.mark.parametrize(("rule", "factor"), [("linear", 2.0), ("sqrt", 2**0.5), ("none", 1.0)])
def test_with_twice_the_gpus_the_global_batch_and_by_its_rule_the_learning_rate_grow(
    tmp_path: Path, rule: str, factor: float
) -> None:
    stopped = launch(tmp_path, "--samples=160", "--signal-at=25", f"--lr-scaling={rule}")
    assert stopped.code == 99, stopped.said
    done = losses(tmp_path)[-1]
    resumed = launch(tmp_path, "--samples=160", f"--lr-scaling={rule}", gpus=2, run=1)
    assert resumed.code == 0, resumed.said
    found = weights(tmp_path)
    assert found["lr"] == pytest.approx(0.01 * 0.8**3 * factor)
    # 160 samples an epoch, 8 a step before and 16 afterwards; the second epoch is shared by both.
    assert found["samples"] == 3 * 160
    left = 160 - (done[0] + 1 - 20) * 8
    assert found["steps"] == done[0] + 1 + -(-left // 16) + 10


def test_killed_without_warning_it_loses_the_steps_since_its_last_checkpoint_alone(
    tmp_path: Path,
) -> None:
    assert launch(tmp_path / "whole", gpus=2).code == 0
    killed = launch(tmp_path / "moved", "--save-at=10", "--kill-at=30", "--nap=0.01", gpus=2)
    assert killed.code == 128 + 9, killed.said
    (saved,) = (tmp_path / "moved" / "checkpoints").glob("step-*")
    at = int(saved.name[5:])
    assert 10 <= at < 30
    resumed = launch(tmp_path / "moved", gpus=2, run=1)
    assert resumed.code == 0, resumed.said
    whole, moved = losses(tmp_path / "whole"), losses(tmp_path / "moved")
    assert moved == whole[:30] + whole[at:]
    assert equal(tmp_path / "moved", tmp_path / "whole")


def test_loading_processes_and_accumulated_gradients_change_nothing(tmp_path: Path) -> None:
    words = ("--samples=192", "--epochs=2", "--accumulate=2")
    assert launch(tmp_path / "whole", *words).code == 0
    beside = launch(tmp_path / "beside", *words, "--workers=1", "--signal-at=15", "--nap=0.01")
    assert beside.code == 99, beside.said
    done = launch(tmp_path / "beside", *words, "--workers=1", run=1)
    assert done.code == 0, done.said
    assert losses(tmp_path / "beside") == losses(tmp_path / "whole")
    assert equal(tmp_path / "beside", tmp_path / "whole")


def test_torchrun_starts_the_same_training_and_lets_it_save(tmp_path: Path) -> None:
    assert launch(tmp_path / "whole", gpus=2).code == 0
    stopped = launch(
        tmp_path / "moved", "--signal-at=20", "--nap=0.01", gpus=2, options=("--torchrun",)
    )
    assert stopped.code == 99, stopped.said
    assert launch(tmp_path / "moved", gpus=2, run=1, options=("--torchrun",)).code == 0
    assert losses(tmp_path / "moved") == losses(tmp_path / "whole")


def test_it_tells_the_scheduler_what_it_is_and_how_far(tmp_path: Path) -> None:
    ended: Ended = launch(tmp_path, "--nap=0.01", "--signal-at=40", "--epochs=6")
    assert ended.code == 99, ended.said
    lines = spooled(tmp_path)
    assert isinstance(lines[0], Start)
    (profile,) = [line for line in lines if isinstance(line, Profile)]
    assert (profile.gpu_type, profile.gpus, profile.batch_size) == ("cpu", 1, 8)
    assert (profile.iterations, profile.pattern, profile.parameters) == (20, 2, 12 * 24 + 49)
    # The nap lies behind the optimiser's step.
    assert profile.update_s > 0.01 > profile.forward_s
    assert any(isinstance(line, Progress) for line in lines)
    assert any(isinstance(line, Loss) for line in lines)
    *_, saved, end = lines
    samples = 203 * (len(losses(tmp_path)) // 26) + 8 * (len(losses(tmp_path)) % 26)
    assert isinstance(saved, Checkpoint)
    assert saved.samples == samples
    assert isinstance(end, End)
    assert (end.samples, end.how) == (samples, "stopped")
    assert launch(tmp_path, "--epochs=6", run=1).code == 0
    first, *_, last = spooled(tmp_path, 1)
    assert isinstance(first, Start)
    assert isinstance(last, End)
    assert (last.samples, last.how) == (6 * 203, "completed")
