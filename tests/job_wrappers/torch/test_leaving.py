"""How a process leaves the others: gloo's threads must not outlive what they hold."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.job_wrappers.worlds import launch

SCRIPT = Path(__file__).with_name("leaving.py")


def left(folder: Path, rank: int) -> tuple[int, int, bool]:
    """gloo's threads in training and at the end, and whether the groups still stood then."""
    before, after, stands = (folder / f"rank-{rank}").read_text().split()
    return int(before), int(after), stands == "True"


def test_at_the_exit_of_a_whole_training_the_sessions_groups_are_gone_with_their_threads(
    tmp_path: Path,
) -> None:
    launch(tmp_path, "ends", gpus=2, script=SCRIPT)
    for rank in (0, 1):
        before, after, stands = left(tmp_path, rank)
        assert not stands
        # Two for each of its two groups; torch itself may keep the first group for ever.
        assert before - after >= 4


@pytest.mark.parametrize(("how", "why"), [("fails", "middle"), ("fails-later", "all is done")])
def test_a_rank_that_fails_leaves_without_a_word_to_the_others(
    tmp_path: Path, how: str, why: str
) -> None:
    # Torch may abort a process that leaves gloo's groups standing (PyTorch's issue 190489).
    codes = (1, 128 + signal.SIGABRT)
    assert why in launch(tmp_path, how, gpus=2, script=SCRIPT, code=codes)
    assert left(tmp_path, 1)[2]
