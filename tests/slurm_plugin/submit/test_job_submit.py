"""What job_submit.lua accepts, refuses and leaves alone, in a real slurmctld."""

import json
import re
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRateScaling, RequirementSet
from slurm_plugin.backend import SlurmBackend
from slurm_plugin.daemon.jobs.request import NO_MARK, read_mark
from slurm_plugin.submit.options import Options
from slurm_plugin.testbed import Testbed, TestbedError
from tests.slurm_plugin.jobs import Submitter
from tests.slurm_plugin.submit.asking import (
    NOTHING,
    REFUSED,
    as_user,
    mark_of,
    refused_on_the_page,
    sbatch,
    script_instead,
    shown,
)

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]


def test_every_option_reaches_the_mark_and_a_signal_only_from_the_script(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter
) -> None:
    job = submitter.submit(
        "--gpu-set=1,2,4-8 --gpu-types=a100,v100 --gpu-mem=16G --learning-rate=0.1 "
        "--lr-scaling=sqrt --profile-key=resnet50 --total-samples=1e6 --no-move --can-checkpoint",
        *("--gpus=2", "--nice=1", "--signal=B:USR1@60"),
    )
    mark = mark_of(backend, job)
    assert mark.submitted_s == pytest.approx(backend.read().jobs[job].submit_s, abs=2)
    assert mark.elements == 1
    assert mark.options == Options(
        counts=RequirementSet.parse("1,2,4-8"),
        gpu_types=frozenset({"a100", "v100"}),
        least_gpu_memory_mb=16 * 1024,
        learning_rate=0.1,
        lr_scaling=LearningRateScaling.SQRT,
        profile="resnet50",
        total_samples=1e6,
        movable=False,
        can_checkpoint=True,
    )
    # What Slurm shows of no job is read from the script alone.
    assert mark.signal == ""
    script = submitter.folder / "signal.sh"
    lines = ("#!/bin/bash", "#HETSCHED --gpu-set=1", "#SBATCH --nice=1 --signal=B:USR1@60")
    script.write_text("\n".join([*lines, "sleep 5", ""]))
    assert mark_of(backend, sbatch(testbed, script)).signal == "B:USR1@60"


@pytest.mark.parametrize("counts", ["1", "2-16", "1,2,4-8", "1-100", "3,1,2", "5-7,1-3"])
def test_lua_and_python_agree_on_what_a_set_means(
    testbed: Testbed, submitter: Submitter, counts: str
) -> None:
    for asked in (1, 5, 8):
        job = submitter.submit(f"--gpu-set={counts}", "--hold", f"--gpus={asked}")
        default = RequirementSet.parse(counts).default_count(asked)
        assert shown(testbed, job)["TresPerJob"] == f"gres/gpu:{default}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *REFUSED,
        ("--gpu-sets=1", "unknown option '--gpu-sets=1'; known: --gpu-set,"),
        ("--gpu-set=1,2 --gpu-set=4", "lines, as '--gpu-set=1,2' and '--gpu-set=4'"),
        ("--gpu-set=1 --profile-key=" + "x" * 1000, "characters of mark, at most 1024 are allowed"),
    ],
)
def test_a_bad_line_is_refused_with_what_would_do(
    submitter: Submitter, line: str, says: str
) -> None:
    with pytest.raises(TestbedError, match=re.escape(says)):
        submitter.submit(line)


def test_counts_that_do_not_go_into_tasks_of_several_gpus_are_refused(submitter: Submitter) -> None:
    words = ("--hold", "--ntasks=2", "--gpus-per-task=2")
    with pytest.raises(TestbedError, match="on 3 GPUs some would be without a task of --gpus-per-"):
        submitter.submit("--gpu-set=2,3", *words)
    assert submitter.submit("--gpu-set=2,4", *words)


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
    testbed: Testbed, tmp_path: Path, first: str, taken: bool
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
    done = as_user(testbed, "root", "sbatch", "--output=/dev/null", script)
    assert done.returncode == 0
    assert done.stderr.count("is a comment; options stand on") == 1
    assert f"'{line}' is a comment" in done.stderr


@pytest.mark.parametrize(("options", "says"), refused_on_the_page())
def test_sbatch_answers_as_the_page_on_submitting_says(
    testbed: Testbed, options: str, says: str
) -> None:
    with pytest.raises(TestbedError) as refused:
        sbatch(testbed, *options.split(), "--wrap=true")
    assert f"sbatch: error: hetsched: {says} sbatch: error:" in str(refused.value)


@pytest.mark.parametrize(("option", "copies"), [("--copies=3", 3), ("--copies", 16)])
def test_a_job_of_copies_is_an_array_that_is_marked_and_told_so(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, option: str, copies: int
) -> None:
    words = ("--gpu-set=4,8", "--can-checkpoint", option)
    jobs = [submitter.submit(" ".join(words), "--hold")]
    if not testbed.why_no_options:
        jobs.append(sbatch(testbed, "--hold", *words, "--wrap=sleep 600"))
    for job in jobs:
        mark = mark_of(backend, job)
        assert (mark.copies, mark.elements, mark.options.any_shape) == (True, copies, False)
        seen = backend.read().jobs[job]
        assert (seen.array, seen.unsplit) == (job, tuple(range(copies)))
    script = testbed.command("scontrol", "write", "batch_script", jobs[0], "-")
    # Started by Slurm itself, it is an array as any other: its script has no line of ours.
    assert script.splitlines()[1].startswith("#HETSCHED")


def test_copies_of_a_count_for_several_nodes_are_refused(submitter: Submitter) -> None:
    words = ("--nodes=2", "--gpus-per-node=2")
    with pytest.raises(TestbedError, match="the default count is for one node, and asks for 2"):
        submitter.submit("--gpu-set=4 --can-checkpoint --copies", *words)


OWN = (
    # What is asked for beside GPUs, and in what way, is the user's, and stays.
    (("--gpu-set=2,4", "--gpus=4"), {"TresPerJob": "gres/gpu:4"}),
    (("--gpu-set=2,4", "--gpus=3"), {"TresPerJob": "gres/gpu:2"}),
    (("--gpu-set=2,4", "--gres=gpu:t4:4"), {"TresPerNode": "gres/gpu:t4:4"}),
    (
        ("--gpu-set=2,4", "--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=2"),
        {"NumNodes": "2-2", "TresPerNode": "gres/gpu:2", "NumTasks": "4"},
    ),
    # As many tasks for each GPU.
    (
        ("--gpu-set=4", "--nodes=1", "--gpus-per-node=8", "--ntasks-per-node=8"),
        {"TresPerJob": "gres/gpu:4", "NumTasks": "4", "NumCPUs": "4"},
    ),
    (("--gpu-set=8", "--gpus=4", "--ntasks=2", "--cpus-per-task=3"), {"NumTasks": "4"}),
    (("--gpu-set=1,2", "--array=0-9%5"), {"TresPerJob": "gres/gpu:1", "ArrayTaskId": "0-9%5"}),
    (("--gpu-set=2", "--nodelist=n1", "--exclude=n2"), {"ReqNodeList": "n1", "ExcNodeList": "n2"}),
    (("--gpu-set=2", "--begin=now+600", "--no-requeue"), {"Requeue": "0"}),
)


def test_a_job_waits_in_the_shape_that_its_user_asked_for_or_with_a_count_of_its_set(
    testbed: Testbed,
) -> None:
    for words, wanted in OWN:
        seen = shown(testbed, sbatch(testbed, "--hold", *words, "--wrap=sleep 600"))
        assert {name: seen[name] for name in wanted} == wanted, words


@pytest.mark.parametrize(
    "words",
    [
        ("--gpus=2",),
        ("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=2"),
        ("--gpus-per-task=1", "--ntasks=4", "--cpus-per-task=2"),
        ("--nodelist=n1", "--exclusive"),
        ("--gres=gpu:v100:3", "--time=5", "--no-requeue"),
        ("--array=0-1", "--begin=now+60"),
    ],
)
def test_ordinary_jobs_are_what_they_would_be_without_the_script(
    testbed: Testbed, words: tuple[str, ...]
) -> None:
    apart = {"JobId", "ArrayJobId", "SLUID", "SubmitLine", "SubmitTime", "EligibleTime"}
    apart |= {"AccrueTime", "StartTime", "EndTime", "LastSchedEval", "Priority"}

    def submitted() -> dict[str, str]:
        job = sbatch(testbed, "--hold", *words, "--wrap=sleep 600")
        return {name: said for name, said in shown(testbed, job).items() if name not in apart}

    ours = submitted()
    with script_instead(testbed, NOTHING):
        theirs = submitted()
    assert ours == theirs
    assert "AdminComment" not in ours


@pytest.mark.parametrize("where", ["first", "second"])
def test_a_heterogeneous_job_with_a_requirement_set_is_refused(
    testbed: Testbed, submitter: Submitter, where: str
) -> None:
    asked = ["#SBATCH --gpus=1", "#SBATCH hetjob", "#SBATCH --gpus=2"]
    asked.insert(1 if where == "first" else 3, "#SBATCH --gpu-set=1,2")
    script = submitter.folder / "het.sh"
    script.write_text("\n".join(["#!/bin/bash", *asked, "true", ""]))
    with pytest.raises(TestbedError, match="heterogeneous jobs with a requirement set are not"):
        sbatch(testbed, script)
    script.write_text(script.read_text().replace("#SBATCH --gpu-set=1,2\n", ""))
    assert sbatch(testbed, script)


@pytest.mark.parametrize(
    ("words", "step", "told"),
    [
        (("--gpus-per-node=8",), "srun \\\n    --ntasks-per-node=8 python train.py", True),
        (("--gpus-per-node=8", "--ntasks-per-node=8"), "srun --ntasks-per-node=8 true", False),
        (("--gpus=8",), 'srun --ntasks-per-node="$SLURM_GPUS_ON_NODE" true', False),
    ],
)
def test_a_number_of_tasks_that_the_script_alone_says_is_told_to_have_no_effect(
    testbed: Testbed, submitter: Submitter, words: tuple[str, ...], step: str, told: bool
) -> None:
    script = submitter.folder / "job.sh"
    script.write_text(f"#!/bin/bash\n#HETSCHED --gpu-set=4,8\n{step}\n")
    said = as_user(testbed, "root", "sbatch", "--hold", "--output=/dev/null", *words, script)
    assert said.returncode == 0, said.stderr
    assert ("srun --ntasks-per-node=8 starts one task on each node" in said.stderr) == told


def test_a_script_of_blank_lines_is_no_burden(testbed: Testbed, submitter: Submitter) -> None:
    script = submitter.folder / "job.sh"
    # By their square they would take slurmctld ten minutes.
    blank = "\n" * 300_000
    script.write_text(f"#!/bin/bash\n#HETSCHED --gpu-set=4,8\n{blank}true\n")
    assert sbatch(testbed, "--hold", "--gpus=8", script)


SITE_S = """\
package.path = "{folder}/?.lua;" .. package.path
local hetsched = require("hetsched")

local function limit(desc)
  if desc.time_limit == slurm.NO_VAL then desc.time_limit = 42 end
  if (desc.name or "") == "bad" then
    slurm.log_user("this site takes no job of that name")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

function slurm_job_submit(desc, parts, uid)
  {first}
  if rc ~= slurm.SUCCESS then return rc end
  {second}
  return rc
end

function slurm_job_modify(desc, record, parts, uid)
  return hetsched.modify(desc, record, parts, uid)
end

return slurm.SUCCESS
"""
"""A site's own script, which calls the module before or after what it does itself."""


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_site_s_own_script_calls_the_module_before_or_after_its_own_function(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, before: bool
) -> None:
    calls = ["hetsched.submit(desc, parts, uid)", "limit(desc)"]
    first, second = calls if before else reversed(calls)
    text = SITE_S.format(
        folder=testbed.layout.configuration, first=f"local rc = {first}", second=f"rc = {second}"
    )
    with script_instead(testbed, text):
        job = submitter.submit("--gpu-set=1,2", "--hold")
        with pytest.raises(TestbedError, match="this site takes no job of that name"):
            submitter.submit("--gpu-set=1,2", "--job-name=bad")
        with pytest.raises(TestbedError, match="expected GPU counts"):
            submitter.submit("--gpu-set=two")
        for names in ("hetsched", ",hetsched", "other,hetsched"):
            with pytest.raises(TestbedError, match=f"--reservation={names} is the scheduler's own"):
                sbatch(testbed, f"--reservation={names}", "--wrap=true")
    assert mark_of(backend, job).options.counts == RequirementSet.parse("1,2")
    assert shown(testbed, job)["TimeLimit"] == "00:42:00"


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("local function nonce()", "local function nonce() nothing()"),
        ("jd.admin_comment = text", "nothing()"),
    ],
)
def test_a_module_that_breaks_lets_jobs_through_unmarked(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, found: str, instead: str
) -> None:
    ours = (testbed.layout.configuration / "hetsched.lua").read_text()
    broken = ours.replace(found, instead)
    assert broken != ours
    script = (
        f"local hetsched = (function() {broken} end)()\n"
        "slurm_job_submit, slurm_job_modify = hetsched.submit, hetsched.modify\n"
        "return slurm.SUCCESS\n"
    )
    with script_instead(testbed, script):
        job = sbatch(testbed, "--gpu-set=2", "--wrap=sleep 600")
        with pytest.raises(TestbedError, match="expected GPU counts"):
            submitter.submit("--gpu-set=x")
    assert backend.read().jobs[job].mark == ""
    log = (testbed.layout.logs / "slurmctld.log").read_text(errors="replace")
    assert "attempt to call global 'nothing'" in log


@pytest.mark.parametrize(
    "text",
    [
        "hetsched/2 ",
        "hetsched/2 []",
        'hetsched/2 {"nonce":1,"gpu-set":"1"}',
        'hetsched/2 {"nonce":"a","no-move":true}',
        'hetsched/2 {"nonce":"a","gpu-set":"1","more":1}',
        'hetsched/2 {"nonce":"a","gpu-set":"1","elements":17}',
        'hetsched/2 {"nonce":"a","gpu-set":"1","lr-scaling":"x"}',
        "hetsched/2 " + json.dumps({"nonce": "a" * 2000, "gpu-set": "1"}),
    ],
)
def test_a_forged_mark_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_mark(text)


def test_somebody_else_s_admin_comment_is_no_mark() -> None:
    assert read_mark("") is read_mark("billing: project 7") is NO_MARK
