"""What users say of a job on `#HETSCHED` lines, read by the daemon: the same as job_submit.lua."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched_core.errors import InputError
from hetsched_core.types import LearningRateScaling, RequirementSet
from slurm_plugin.daemon.jobs.request import read_mark
from slurm_plugin.submit.options import (
    MOST_SAMPLES,
    NAMES,
    NO_OPTIONS,
    Options,
    read_options,
    script_options,
    script_signal,
)
from tests.slurm_plugin.submit.asking import REFUSED, refused_on_the_page

ALL = (
    "--gpu-set=1,2,4-6 --gpu-types=a100,v100 --gpu-mem=40G --gpu-shapes=even --copies=5 "
    "--learning-rate=.1 --lr-scaling=sqrt --profile-key=net.v2 --total-samples=1e8 --can-checkpoint"
)
READ = Options(
    counts=RequirementSet((1, 2, 4, 5, 6)),
    gpu_types=frozenset({"a100", "v100"}),
    least_gpu_memory_mb=40 * 1024,
    copies=5,
    learning_rate=0.1,
    lr_scaling=LearningRateScaling.SQRT,
    profile="net.v2",
    total_samples=1e8,
    can_checkpoint=True,
)


def options(line: str) -> Options:
    """What a script with this line says."""
    return read_options(script_options(f"#!/bin/bash\n#HETSCHED {line}\ntrain\n"))


def names(line: str) -> list[str]:
    return re.findall(r"--([\w-]+)", line)


OF_OPTIONS_ALONE = [row for row in refused_on_the_page() if set(names(row[0])) <= {*NAMES}]


@pytest.mark.parametrize(("asked", "answer"), OF_OPTIONS_ALONE)
def test_what_the_page_shows_refused_is_refused_by_the_daemon_for_the_same_reason(
    asked: str, answer: str
) -> None:
    with pytest.raises(InputError) as refused:
        options(asked)
    if re.search(r"--gpu-set=(8-4|1-100)", asked):
        assert str(refused.value).startswith(f"{asked}: ")
    else:
        assert str(refused.value) == answer


def test_all_options_are_read_from_the_script_and_from_the_mark_alike() -> None:
    assert options(ALL) == READ
    mark = (
        '{"nonce":"a","gpu-set":"1,2,4-6","gpu-types":"a100,v100","gpu-mem":"40G",'
        '"gpu-shapes":"even","copies":5,"learning-rate":0.1,"lr-scaling":"sqrt",'
        '"profile-key":"net.v2","total-samples":100000000,"can-checkpoint":true,"elements":5}'
    )
    assert read_mark(f"hetsched/2 {mark}").options == READ
    assert options("--gpu-set=2 --copies --can-checkpoint").copies == 16
    assert not options("--gpu-set=2 --no-move").movable
    assert options("--gpu-set=2 --gpu-shapes=any").any_shape


def test_lines_may_be_several_and_end_where_the_script_begins() -> None:
    script = "#!/bin/sh\n#SBATCH -t 5\n#HETSCHED --gpu-set=2\n\n#HETSCHED --no-move\n"
    assert script_options(f"{script}true\n#HETSCHED --gpu-mem=40G") == {
        "gpu-set": "2",
        "no-move": "",
    }
    assert read_options(script_options("#!/bin/sh\n# HETSCHED --gpu-set=2\n")) is NO_OPTIONS


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *REFUSED,
        ("--gpu-sets=2", "did you mean 'gpu-set'"),
        ("--gpu-set=2 --gpu-mem=\N{FULLWIDTH DIGIT FOUR}G", "expected the memory"),
        ("--gpu-set=\N{FULLWIDTH DIGIT FOUR}", "expected GPU counts"),
    ],
)
def test_what_job_submit_lua_refuses_is_refused_though_python_could_read_it(
    line: str, says: str
) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        options(line)


def test_the_signal_is_that_of_the_script_s_own_lines() -> None:
    script = "#!/bin/sh\n#SBATCH -N 1 --signal=B:USR1@60\n#SBATCH --signal=USR2\ntrue\n"
    assert script_signal(script) == "B:USR1@60"
    assert script_signal("#!/bin/sh\ntrue\n#SBATCH --signal=USR1\n") == ""


def told(read: Callable[[], Options]) -> Options | str:
    try:
        return read()
    except InputError as error:
        return str(error)


TEXTS = st.one_of(
    st.text(max_size=12),
    st.text("0123456789,-.eE+GMa_ ", max_size=12),
    st.sampled_from(
        ["", "2", "1-8", "a100", "40G", "any", "linear", "1e999", "-0", "nan", "9" * 5000]
    ),
)


@given(values=st.dictionaries(st.sampled_from(NAMES), TEXTS))
def test_whatever_is_said_is_read_within_its_bounds_or_refused_in_a_line(
    values: dict[str, str],
) -> None:
    found = told(lambda: read_options({"gpu-set": "1,2", **values}))
    if isinstance(found, str):
        assert len(found) < 400
        return
    assert found.counts is not None
    assert 1 <= len(found.counts) <= 16
    assert 1 <= found.copies <= 16
    assert 0 <= found.least_gpu_memory_mb <= 10 * 2**20
    assert found.total_samples is None or 0 < found.total_samples <= MOST_SAMPLES
    assert found.gpu_types is None or all(found.gpu_types)


@given(script=st.one_of(st.text(), st.text("#HETSCHED -=\n123gpuset", max_size=80)))
def test_no_script_breaks_the_reading_of_it(script: str) -> None:
    script_signal(script)
    assert len(str(told(lambda: read_options(script_options(script))))) < 1000
