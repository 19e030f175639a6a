"""The callbacks, in the frameworks they are for."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from hetsched_core.records.spool import Checkpoint, End, Loss, Profile, Progress
from tests.job_wrappers.worlds import launch, same, spooled, weights

FRAMEWORKS = {"transformers": "hugging_face_train.py", "lightning": "lightning_train.py"}
STEPS_OF_AN_EPOCH = 26
"""Of one process."""


@pytest.fixture(params=FRAMEWORKS)
def script(request: pytest.FixtureRequest) -> Path:
    """A training in each framework."""
    name: str = request.param
    for needed in ("torch", name):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed: make env-frameworks")
    return Path(__file__).with_name(FRAMEWORKS[name])


@pytest.mark.parametrize("gpus", [1, 2])
def test_stopped_in_mid_epoch_it_goes_on_from_the_frameworks_own_checkpoint(
    tmp_path: Path, script: Path, gpus: int
) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    launch(whole, gpus=gpus, script=script)
    at = 2 * STEPS_OF_AN_EPOCH // gpus - 5
    stopped = launch(moved, f"--signal-at={at}", "--nap=0.03", gpus=gpus, script=script, code=99)
    assert "all of it is saved" in stopped
    assert not (moved / "weights.pt").exists()
    done = re.search(r"stopped after (\d+) steps", stopped)
    assert done is not None
    assert at <= int(done[1]) < 3 * STEPS_OF_AN_EPOCH // gpus
    *_, saved, end = spooled(moved)
    assert isinstance(saved, Checkpoint)
    assert isinstance(end, End)
    assert (end.samples, end.how) == (saved.samples, "stopped")
    assert end.samples >= at * 8 * gpus
    launch(moved, gpus=gpus, run=1, script=script)
    assert same(weights(moved)["model"], weights(whole)["model"])
    *_, last = spooled(moved, 1)
    assert isinstance(last, End)
    assert last.how == "completed"


def test_what_it_measures_is_told_as_a_session_tells_it(tmp_path: Path, script: Path) -> None:
    words = ("--nap=0.02", "--accumulate=2", "--save-at=10", "--epochs=3")
    launch(tmp_path, *words, script=script)
    lines = spooled(tmp_path)
    (profile,) = [line for line in lines if isinstance(line, Profile)]
    assert (profile.gpus, profile.batch_size, profile.iterations) == (1, 16, 20)
    assert profile.parameters == 12 * 24 + 24 + 24 + 1
    # The nap lies behind the optimiser's step, in another callback.
    assert profile.update_s > 0.02
    assert min(profile.forward_s, profile.backward_s, *profile.data_s) > 0
    assert any(isinstance(line, Progress) for line in lines)
    assert any(isinstance(line, Loss) for line in lines)
    (saved,) = [line for line in lines if isinstance(line, Checkpoint)]
    assert saved.samples == 10 * 16
