"""The options that the SPANK plug-in gives sbatch, in a real Slurm."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.types import RequirementSet
from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon.jobs.request import Mark
from slurm_plugin.submit import MODULE
from slurm_plugin.testbed import Installation, Testbed, TestbedError
from slurm_plugin.testbed.spank import build_spank, why_no_spank
from tests.slurm_plugin.jobs import Submitter, await_job
from tests.slurm_plugin.submit.asking import as_nobody, mark_of, sbatch

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]

OPTIONS = (
    "--gpu-set=1,2,4-8",
    "--gpu-types=a100,v100",
    "--gpu-mem=16G",
    "--gpu-shapes=any",
    "--learning-rate=0.1",
    "--lr-scaling=sqrt",
    "--profile-key=resnet50",
    "--total-samples=1e6",
    "--no-move",
    "--can-checkpoint",
)


def of_any_job(mark: Mark) -> Mark:
    """A mark without what tells one job from another."""
    return replace(mark, nonce="", submitted_s=0.0)


def test_each_option_of_sbatch_means_what_the_line_of_its_name_does(
    backend: SlurmBackend, testbed: Testbed, submitter: Submitter, tmp_path: Path
) -> None:
    by_lines = mark_of(backend, submitter.submit(" ".join(OPTIONS)))
    by_words = mark_of(backend, sbatch(testbed, *OPTIONS, "--wrap=sleep 600"))
    script = tmp_path / "directives.sh"
    directives = "".join(f"#SBATCH {option}\n" for option in OPTIONS)
    script.write_text(f"#!/bin/bash\n{directives}sleep 600\n")
    by_directives = mark_of(backend, sbatch(testbed, script))
    assert of_any_job(by_lines) == of_any_job(by_words) == of_any_job(by_directives)
    assert len({by_lines.nonce, by_words.nonce, by_directives.nonce}) == 3
    assert by_words.options.learning_rate is not None
    assert by_words.options.can_checkpoint


def test_sbatch_s_help_names_every_option_that_the_script_knows(testbed: Testbed) -> None:
    listed = re.search(r"local NAMES = \{(.*?)\}", MODULE.read_text(), re.DOTALL)
    assert listed is not None
    names = re.findall(r'"([\w-]+)"', listed[1])
    # A job of copies takes neither of two others.
    assert len(names) == len(OPTIONS) + 1
    text = testbed.command("sbatch", "--help")
    assert [name for name in names if f" --{name}" not in text] == []
    page = (MODULE.parents[2] / "docs/live/submitting.md").read_text()
    assert [name for name in names if f"| `--{name}" not in page] == []


def test_an_option_of_sbatch_wins_over_an_earlier_one_and_over_the_line_of_its_name(
    backend: SlurmBackend, testbed: Testbed, tmp_path: Path
) -> None:
    script = tmp_path / "directive.sh"
    line = "#HETSCHED --gpu-set=nonsense --profile-key=line"
    script.write_text(f"#!/bin/bash\n{line}\n#SBATCH --gpu-set=8\nsleep 600\n")
    mark = mark_of(backend, sbatch(testbed, "--gpu-set=4", "--gpu-set=2,4", script))
    assert (mark.options.counts, mark.options.profile) == (RequirementSet.parse("2,4"), "line")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu-set=",), "--gpu-set=: expected GPU counts, for example 1,2,4-8"),
        (("--gpu-set=1", "--no-move=yes"), "doesn't allow an argument"),
        (("--gpu-set=1", "--profile-key=a\nb"), "expected letters, digits"),
        (('--gpu-set=1","x":"1',), "expected GPU counts"),
    ],
)
def test_a_bad_value_is_refused_with_what_would_do(
    testbed: Testbed, words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(TestbedError, match=re.escape(says)):
        sbatch(testbed, *words, "--wrap=true")


def test_sbatch_within_a_job_does_not_take_that_job_s_options_for_its_own(
    backend: SlurmBackend, testbed: Testbed, tmp_path: Path
) -> None:
    told = tmp_path / "child"

    def child(*words: str) -> str:
        inner = ("sbatch", *words, "--parsable", "--output=/dev/null", "--wrap='sleep 600'")
        wrap = f"--wrap={' '.join(inner)} >{told}"
        parent = sbatch(testbed, "--gpu-set=1", "--no-move", wrap)
        await_job(backend, parent, lambda job: job.state is JobState.ENDED)
        return told.read_text().strip()

    plain = child()
    assert backend.read().jobs[plain].mark == ""
    # Named again, they count.
    mark = mark_of(backend, child("--gpu-set=2"))
    assert (mark.options.counts, mark.options.movable) == (RequirementSet.parse("2"), True)


@pytest.mark.parametrize("export", ["--export=ALL", "--export=NONE"])
def test_a_job_finds_the_nonce_of_its_mark_in_its_environment(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed, export: str
) -> None:
    job = submitter.submit("--gpu-set=1", export, seconds=0.1)
    await_job(backend, job, lambda seen: seen.state is JobState.ENDED)
    (told,) = submitter.told(job)
    assert told.nonce == mark_of(backend, job).nonce


def test_salloc_is_refused_and_srun_does_not_know_the_options(testbed: Testbed) -> None:
    salloc = as_nobody(testbed, "salloc", "--gpu-set=1", "true")
    assert salloc.returncode == 1
    assert "only jobs of sbatch can be stopped and started elsewhere" in salloc.stderr
    srun = as_nobody(testbed, "srun", "--gpu-set=1", "true")
    assert srun.returncode != 0
    assert "unrecognized option '--gpu-set=1'" in srun.stderr


def test_without_the_plug_in_lines_still_work_and_nothing_is_said(
    backend: SlurmBackend, submitter: Submitter, testbed: Testbed
) -> None:
    plugin = testbed.layout.spank
    aside = plugin.with_suffix(".aside")
    plugin.rename(aside)
    try:
        job = submitter.submit("--gpu-set=1,2")
        assert mark_of(backend, job).options.counts == RequirementSet.parse("1,2")
        said = as_nobody(testbed, "sbatch", "--output=/dev/null", "--wrap=true")
        assert (said.returncode, said.stderr) == (0, "")
        with pytest.raises(TestbedError, match="unrecognized option '--gpu-set=1'"):
            sbatch(testbed, "--gpu-set=1", "--wrap=true")
    finally:
        aside.rename(plugin)


def test_what_is_missing_for_the_plug_in_is_named(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert why_no_spank(installation) == ""
    bare = replace(installation, prefix=tmp_path)
    assert "slurm/spank.h, which Debian's package libslurm-dev holds" in why_no_spank(bare)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert why_no_spank(installation) == "there is no C compiler; install gcc and libc6-dev"


def test_the_plug_in_compiles_without_a_warning(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = tmp_path / "strict"
    strict.write_text('#!/bin/sh\nexec cc -std=gnu99 -Wall -Wextra -Wpedantic -Werror "$@"\n')
    strict.chmod(0o755)
    monkeypatch.setattr("slurm_plugin.testbed.spank._COMPILER", str(strict))
    build_spank(installation, tmp_path / "lib/plugin.so")
    assert (tmp_path / "lib/plugin.so").is_file()
