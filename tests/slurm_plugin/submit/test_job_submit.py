"""What job_submit.lua accepts, refuses and leaves alone, in a real slurmctld."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from slurm_plugin.daemon.mark import read_mark

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRateScaling, RequirementSet
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.submit import ENFORCE_LIST
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import mark_of, sbatch

pytestmark = pytest.mark.slurm


def test_every_option_reaches_the_mark(backend: SlurmBackend, submitter: Submitter) -> None:
    job = submitter.submit(
        "--gpu-set=1,2,4-8 --gpu-types=a100,v100 --learning-rate=0.1 --lr-scaling=sqrt "
        "--profile-key=resnet50 --total-samples=1e6 --no-move --can-checkpoint",
        "--gpus=2",
        "--time=1:30:00",
    )
    mark = mark_of(backend, job)
    assert mark.requirements == RequirementSet.parse("1,2,4-8")
    assert mark.default_count == 2
    assert mark.gpu_types == frozenset({"a100", "v100"})
    assert mark.profile == "resnet50"
    assert mark.total_samples == 1e6
    assert mark.learning_rate is not None
    assert mark.learning_rate.given == ((2, 0.1),)
    assert mark.learning_rate.scaling is LearningRateScaling.SQRT
    assert not mark.movable
    assert mark.can_checkpoint
    assert mark.limit_s == 5400


def test_without_a_time_limit_the_mark_has_none_and_a_signal_line_reaches_it(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    mark = mark_of(backend, submitter.submit("--gpu-set=1", "--time=UNLIMITED"))
    assert (mark.limit_s, mark.signal, mark.can_checkpoint) == (None, "", False)
    script = tmp_path / "signal.sh"
    script.write_text(
        "#!/bin/bash\n#HETSCHED --gpu-set=1\n#SBATCH --nice=1 --signal=B:USR1@60\nsleep 5\n"
    )
    job = testbed.command("sbatch", "--parsable", "--output=/dev/null", script).strip()
    mark = mark_of(backend, job)
    assert (mark.limit_s, mark.signal) == (None, "B:USR1@60")


@pytest.mark.parametrize("counts", ["1", "2-16", "1,2,4-8", "1-100", "3,1,2", "5-7,1-3"])
@pytest.mark.parametrize("asked", [1, 5, 8])
def test_lua_and_python_agree_on_what_a_set_means(
    backend: SlurmBackend, submitter: Submitter, counts: str, asked: int
) -> None:
    job = submitter.submit(f"--gpu-set={counts}", f"--gpus={asked}")
    mark = mark_of(backend, job)
    assert mark.default_count == RequirementSet.parse(counts).default_count(asked)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--gpu-set=8-4", "runs backwards; write 4-8"),
        ("--gpu-set=0", "counts go from 1"),
        ("--gpu-set=1,,2", "neither a GPU count nor a range"),
        ("--gpu-set=two", "expected GPU counts, for example 1,2,4-8"),
        ("--gpu-set=1-100,200-300,400-500", "at most 16 are allowed"),
        ("--gpu-set=1 --lr-scaling=cubic", "expected linear, sqrt or none"),
        ("--gpu-set=1 --learning-rate=-1", "--learning-rate=-1: expected a number above 0"),
        ("--gpu-set=1 --learning-rate=1e999", "expected a number above 0"),
        ("--gpu-set=1 --total-samples=many", "--total-samples=many: expected a number above 0"),
        ("--gpu-set=1 --gpu-types=a100,,t4", "--gpu-types=a100,,t4: expected GPU types, for exa"),
        ("--gpu-set=1 --gpu-mem=lots", "--gpu-mem=lots: expected .* for example 40G or 24000M"),
        ("--gpu-set=4 --gpu-shapes=odd", "--gpu-shapes=odd: expected even, .*, or any"),
        ("--gpu-set=1 --gpu-mem=0G", "--gpu-mem=0G: expected the memory of one GPU"),
        ("--gpu-set=1 --profile-key=" + "x" * 1000, "characters of mark, at most 1024 are allowed"),
        ("--gpu-set=1 --profile-key=a/b", "expected letters, digits"),
        ("--gpu-set=1 --no-move=yes", "takes no value"),
        ("--gpu-sets=1", "unknown option '--gpu-sets=1'; known: --gpu-set,"),
        ("--profile-key=x", "without --gpu-set"),
        (
            "--gpu-set=1,2 --gpu-set=4",
            "twice on #HETSCHED lines, as '--gpu-set=1,2' and '--gpu-set=4'",
        ),
    ],
)
def test_a_bad_value_is_refused_with_what_would_do(
    submitter: Submitter, options: str, says: str
) -> None:
    with pytest.raises(TestbedError, match=says):
        submitter.submit(options)


@pytest.mark.parametrize(
    ("first", "taken"),
    [
        ("#!/bin/bash -l", True),
        ("#!/usr/bin/env -S bash -l", True),
        ("#! /usr/bin/env bash", True),
        ("#!/bin/sh", True),
        ("#!/usr/bin/env python3", False),
        ("#!/usr/bin/python3 -bash", False),
        ("#!/usr/bin/env -S", False),
    ],
)
def test_a_gang_needs_a_shell_of_whatever_options(
    testbed: Testbed, submitter: Submitter, tmp_path: Path, first: str, taken: bool
) -> None:
    script = tmp_path / "gang.sh"
    script.write_text(f"{first}\n#HETSCHED --gpu-set=4,5 --gpu-shapes=any\ntrue\n")
    if taken:
        assert sbatch(testbed, script)
    else:
        with pytest.raises(TestbedError, match="needs a shell script, whose first line is for ex"):
            sbatch(testbed, script)


@pytest.mark.parametrize("line", ["#hetsched --gpu-set=2", "# HETSCHED --gpu-set=2"])
def test_a_line_that_only_looks_like_one_of_ours_is_said_to_be_a_comment(
    testbed: Testbed, tmp_path: Path, line: str
) -> None:
    script = tmp_path / "near.sh"
    script.write_text(f"#!/bin/bash\n{line}\n# hetsched is what we use\ntrue\n")
    program = testbed.installed.program("sbatch")
    done = subprocess.run(
        [program, "--output=/dev/null", script],
        env=testbed.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stderr.count("is a comment; options stand on") == 1
    assert f"'{line}' is a comment" in done.stderr


def answers() -> list[tuple[str, str]]:
    """The rows of the page on submitting that say what is refused, and how."""
    page = (Path(__file__).parents[3] / "docs/live/submitting.md").read_text()
    rows = re.findall(r"^\| `(--.*)` \| `(.*)` \|$", page, re.MULTILINE)
    assert len(rows) >= 15
    return rows


@pytest.mark.parametrize(("options", "says"), answers())
def test_sbatch_answers_as_the_page_on_submitting_says(
    testbed: Testbed, options: str, says: str
) -> None:
    with pytest.raises(TestbedError) as refused:
        sbatch(testbed, *options.split(), "--wrap=true")
    assert f"sbatch: error: hetsched: {says} sbatch: error:" in str(refused.value)


def test_a_begin_time_of_the_user_s_is_kept(backend: SlurmBackend, submitter: Submitter) -> None:
    job = submitter.submit("--gpu-set=1", "--begin=now+600")
    seen = backend.read().jobs[job]
    begin_s = mark_of(backend, job).begin_s
    assert begin_s == pytest.approx(seen.submit_s + 600, abs=2)
    assert seen.begin_s == pytest.approx(begin_s + 60, abs=2)


def test_in_shadow_a_job_is_marked_and_runs_at_once(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    listed = testbed.layout.configuration / ENFORCE_LIST
    text = listed.read_text()
    listed.write_text("")
    try:
        job = submitter.submit("--gpu-set=1,2", "--gpus=2")
    finally:
        listed.write_text(text)
    assert mark_of(backend, job).default_count == 2
    seen = backend.read().jobs[job]
    assert seen.begin_s is not None
    assert seen.begin_s <= seen.submit_s + 1
    assert seen.state in (JobState.PENDING, JobState.RUNNING)


@pytest.mark.parametrize(
    "text",
    [
        "hetsched/1 ",
        "hetsched/1 []",
        'hetsched/1 {"nonce":"a"}',
        'hetsched/1 {"nonce":"a","default":3,"gpu-set":"1,2"}',
        'hetsched/1 {"nonce":"a","default":1,"gpu-set":"1","more":1}',
        'hetsched/1 {"nonce":"a","default":1,"gpu-set":"1","lr-scaling":"x"}',
        "hetsched/1 " + json.dumps({"nonce": "a" * 2000, "default": 1, "gpu-set": "1"}),
    ],
)
def test_a_forged_mark_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_mark(text)


def test_somebody_else_s_admin_comment_is_no_mark() -> None:
    assert read_mark("") is None
    assert read_mark("billing: project 7") is None
