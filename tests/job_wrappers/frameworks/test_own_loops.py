"""Loops of users, on a CPU: stopped as by a requeue, and resumed on other numbers of GPUs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.job_wrappers.worlds import launch, losses, weights

WORDS = ("--samples=192", "--global-batch=16", "--epochs=3", "--nap=0.1")
STEPS = 36

SCRIPTS = {
    "accelerate_train": "accelerate",
    "accelerate_session_train": "accelerate",
    "fsdp_train": "torch",
    "jax_train": "jax",
}
"""Script -> what it needs."""

if importlib.util.find_spec("deepspeed") is not None:
    # It is built where it is installed, which our environment leaves to the user.
    SCRIPTS["deepspeed_train"] = "deepspeed"


def left_by(folder: Path) -> dict[str, np.ndarray]:
    """The weights that a script has left when it was done, by name."""
    if (folder / "weights.npz").exists():
        return dict(np.load(folder / "weights.npz"))
    return {name: each.numpy() for name, each in weights(folder)["model"].items()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_stopped_on_two_gpus_and_then_on_one_it_is_the_same_training_on_four(
    tmp_path: Path, name: str
) -> None:
    if importlib.util.find_spec(SCRIPTS[name]) is None:
        pytest.skip(f"{SCRIPTS[name]} is not installed: make env-frameworks")
    script = Path(__file__).with_name(f"{name}.py")
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    launch(whole, *WORDS, "--nap=0", gpus=2, script=script)
    launch(moved, *WORDS, "--requeue-at=6", gpus=2, script=script, code=99)
    assert 6 <= len(losses(moved)) < 18
    launch(moved, *WORDS, "--requeue-at=20", gpus=1, run=1, script=script, code=99)
    assert 20 <= len(losses(moved)) < STEPS
    launch(moved, *WORDS, "--nap=0", gpus=4, run=2, script=script)
    found, expected = losses(moved), losses(whole)
    # No step is done twice and none is left out.
    assert [row[:2] for row in found] == [(step, step // 12) for step in range(STEPS)]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected], rel=1e-4)
    ours = left_by(moved)
    for known, tensor in left_by(whole).items():
        np.testing.assert_allclose(ours[known], tensor, rtol=1e-3, atol=1e-5)
