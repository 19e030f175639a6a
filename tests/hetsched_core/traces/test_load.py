"""Files of any kind to jobs, speeds and a cluster."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.load import (
    FileKind,
    LoadOptions,
    limited_to_partitions,
    load_workload,
    recognise,
)
from hetsched_core.traces.workload import Workload
from hetsched_core.types import Window
from tests.hetsched_core.traces.worlds import UTC
from tests.hetsched_core.worlds import cluster_of, submission

SACCT = """JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|2024-01-01T03:00:00|n1|gres/gpu=1|gres/gpu:a100=1,gres/gpu=1
1.batch||COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|2024-01-01T03:00:00|n1||gres/gpu:a100=1,gres/gpu=1
2|ben|FAILED|2024-01-01T00:00:00|2024-01-01T01:00:00|2024-01-01T02:00:00|n2|gres/gpu=2|gres/gpu:v100=2,gres/gpu=2
"""
NO_GPU = """JobID|User|State|Submit|Start|End|NodeList|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|2024-01-01T03:00:00|n1|cpu=4
"""
NATIVE = (
    '{"schema": "hetsched-workload/1"}\n'
    '{"job": "x", "submit_s": 0, "requirements": [1], "profile": "lstm-ptb", "samples": 5}\n'
)
TRACE = "LM\tcd x\t--steps\t0\t700\t12.5\t2\n"
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,queue\n"
TABLE = json.dumps({"v100": {"('LM', 2)": {"null": 10.0}}})

V100S = ClusterFile(cluster_of(a=("v100", 4), b=("v100", 4)))


def write(folder: Path, **texts: str) -> list[Path]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SACCT, FileKind.SACCT),
        ("\n\n" + SACCT, FileKind.SACCT),
        ("", FileKind.SACCT),
        (NATIVE, FileKind.WORKLOAD),
        ("\ufeff" + NATIVE, FileKind.WORKLOAD),
        (TRACE, FileKind.GAVEL_TRACE),
        (TABLE, FileKind.GAVEL_THROUGHPUTS),
        ('[\n  {\n "vc": "v1", "jobid"', FileKind.PUBLISHED),
        ("\n" + HELIOS, FileKind.PUBLISHED),
        ("j1,worker,1.0,Terminated,1.0,2.0,600.0,29.3,100.0,T4\n", FileKind.PUBLISHED),
        ("j1,i1,ann,Failed,1.0,2.0\n", FileKind.PUBLISHED),
        ("name,time,application,num_replicas,batch_size\n", FileKind.SIA),
        # Its first line as it is read: a carriage return alone ends none.
        ("\r" + HELIOS, FileKind.SACCT),
        # A log of sacct with commas, and JSON of another kind.
        (HELIOS.replace("gpu_num", "gpus"), FileKind.SACCT),
        ('[{"id": 1}]', FileKind.SACCT),
    ],
)
def test_a_file_is_recognised_by_how_it_begins(text: str, kind: FileKind) -> None:
    for data in (text.encode(), gzip.compress(text.encode())):
        file = BytesIO(data)
        assert recognise(file, "input") is kind
        assert file.tell() == 0


def test_logs_bring_their_cluster_and_what_they_cannot_use_and_overlap_once(tmp_path: Path) -> None:
    lines = SACCT.splitlines(keepends=True)
    paths = write(tmp_path, a=SACCT + "3|too|few\n", b=lines[0] + lines[3])
    rejects: list[str] = []
    found = load_workload(paths, None, UTC, on_reject=rejects.append)
    assert [s.job.id for s in found.workload.submissions] == ["1", "2"]
    assert found.cluster.gpus_by_type() == {"a100": 1, "v100": 2}
    assert [report.used for report in found.reports] == [2, 1]
    (reject,) = rejects
    assert reject.startswith(f"{tmp_path}/a: line 5: ")
    assert {s.job.profile for s in found.workload.submissions} <= set(found.speeds.profiles)


def test_speeds_in_the_file_go_before_built_in_ones_of_the_same_name(tmp_path: Path) -> None:
    header, job = NATIVE.splitlines(keepends=True)
    own = (
        '{"profile": "lstm-ptb", "gpu_types": ["v100"], "counts": [1], "one_node": [[7]], '
        '"several_nodes": [[7]]}\n'
    )
    other = job.replace('"x"', '"y"').replace("lstm-ptb", "unet-256")
    found = load_workload(write(tmp_path, native=header + own + job + other), V100S)
    assert found.speeds.per_gpu("lstm-ptb", "v100", 1) == 7.0
    assert found.speeds.per_gpu("unet-256", "v100", 1) > 0


def test_traces_go_with_their_table_in_any_order_and_keep_their_jobs_apart(tmp_path: Path) -> None:
    trace, table, other = write(tmp_path, trace=TRACE, table=TABLE, other=TRACE)
    found = load_workload([trace, table], V100S)
    assert found.speeds.per_gpu("LM", "v100", 2) == 5.0
    assert load_workload([table, trace], V100S).workload.submissions == found.workload.submissions
    both = load_workload([trace, other, table], V100S)
    assert [s.job.id for s in both.workload.submissions] == ["1.1", "2.1"]


def test_rules_elasticity_and_types_reach_the_jobs(tmp_path: Path) -> None:
    rules = 'schema = "hetsched-rules/1"\n[[rules]]\nuser = "ann"\nprofile = "unet-256"\n'
    log, rules_path = write(tmp_path, log=SACCT, rules=rules)
    cluster = ClusterFile(cluster_of(n1=("a100", 4), n2=("v100", 4)))
    found = load_workload([log], cluster, LoadOptions(rules=rules_path, elastic=True))
    held = load_workload([log], cluster, LoadOptions(logged_types=True))
    assert {len(s.job.gpu_types or ()) for s in held.workload.submissions} == {1}
    first, second = (s.job for s in found.workload.submissions)
    assert first.profile == "unet-256"
    assert first.requirements.counts == (1, 2)
    assert second.requirements.counts == (1, 2, 4)


def test_an_unknown_gpu_type_is_replayed_and_reported(tmp_path: Path) -> None:
    log = SACCT.replace("v100", "zz9000")
    found = load_workload(write(tmp_path, log=log), None, UTC)
    assert len(found.workload.submissions) == 2
    assert [text for text in found.workload.assumptions if "'zz9000'" in text]


def test_the_order_of_hashes_changes_nothing_and_a_pipe_can_be_read() -> None:
    program = """
import sys
from pathlib import Path
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.workload_file import workload_lines
loaded = load_workload([Path(sys.argv[1])], None, LoadOptions(elastic=True))
print(*workload_lines(loaded.workload), sep="\\n")
"""
    header = "JobID|User|State|Submit|Start|End|NodeList|AllocTRES"
    rows = [
        f"{n}|u{n}|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|2024-01-01T0{n}:30:00"
        f"|n{n},m{n}|gres/gpu:a100=2,gres/gpu:v100=2,gres/gpu=4,cpu=8"
        for n in range(2, 9)
    ]
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program, "/dev/stdin"],
            input="\n".join([header, *rows]) + "\n",
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert first.count('"job"') == 7


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"log": NO_GPU}, "only CPU jobs in"),
        (
            {"log": SACCT.splitlines()[0] + "\n1|too|few\n"},
            "1 unusable: wrong number of fields, the first: line 2",
        ),
        ({"log": "\x00\x01\x02"}, "binary"),
        ({"runs": '{"schema": "hetsched-runlog/1"}\n'}, "a file of the format hetsched-runlog"),
        ({"native": NATIVE}, "give --cluster FILE"),
        ({"native": NATIVE.splitlines()[0]}, "no job in"),
        ({"a": NATIVE, "b": NATIVE}, "earlier file"),
        ({"trace": TRACE}, "throughput table"),
        ({"table": TABLE}, "trace"),
        ({"t": TABLE, "u": TABLE}, "second throughput table"),
        ({"log": SACCT, "native": NATIVE}, "different kinds"),
        ({}, "missing: cannot be read"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_sentence(
    tmp_path: Path, texts: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError) as raised:
        load_workload(write(tmp_path, **texts) or [tmp_path / "missing"], None, UTC)
    assert says in str(raised.value)


def test_a_cluster_on_which_nothing_runs_is_an_error_that_lists_the_types(tmp_path: Path) -> None:
    other = ClusterFile(cluster_of(a=("h100", 4)))
    with pytest.raises(InputError, match=r"\(h100\); there are speeds for: v100"):
        load_workload(write(tmp_path, trace=TRACE, table=TABLE), other)


def test_a_folder_and_a_file_that_never_ends_are_refused_at_their_beginning(
    tmp_path: Path,
) -> None:
    for path, why in ((tmp_path, "cannot be read"), (Path("/dev/zero"), "a binary file")):
        with pytest.raises(InputError, match=f"{path}: {why}"):
            load_workload([path])


# Partitions ---------------------------------------------------------------------------------------

AB, BC = frozenset({"a", "b"}), frozenset({"b", "c"})
SITE = ClusterFile(
    cluster_of(a=("v100", 4), b=("v100", 4), c=("v100", 4)),
    partitions={"ab": AB, "bc": BC, "all": AB | BC},
)


def limited(*partitions: str, **limits: object) -> Workload:
    submissions = tuple(
        replace(given, job=replace(given.job, partition=partition, **limits))  # type: ignore[arg-type]
        for n, partition in enumerate(partitions)
        for given in [submission(f"j{n}", 1.0)]
    )
    return limited_to_partitions(Workload(submissions), SITE)


def nodes(workload: Workload) -> list[frozenset[str] | None]:
    return [s.job.nodes for s in workload.submissions]


def test_jobs_run_on_the_nodes_of_their_partition_or_partitions() -> None:
    found = limited("ab", "bc", "ab,bc", "all", "ab", "")
    assert nodes(found) == [AB, BC, None, None, AB, None]
    assert nodes(found)[0] is nodes(found)[4]
    assert found.assumptions == ()


def test_jobs_of_partitions_that_are_not_described_run_anywhere_and_that_is_said() -> None:
    found = limited("ab", "xx", "yy", "xx", "xx,bc")
    assert nodes(found) == [AB, None, None, None, BC]
    assert found.assumptions == (
        "3 jobs of partitions without nodes in the cluster file (xx, yy) may run on all nodes.",
    )
    anywhere = Workload((submission("j", 1.0),))
    assert limited_to_partitions(anywhere, V100S) is anywhere


def test_a_job_that_says_itself_where_it_may_run_keeps_to_that() -> None:
    assert nodes(limited("ab", nodes=frozenset({"c"}))) == [frozenset({"c"})]
    with pytest.raises(InputError, match="job 'j0' may run on z: no such node in cluster"):
        limited("", nodes=frozenset({"a", "z"}))


def test_a_log_is_read_with_its_partitions_and_the_windows_of_the_site(tmp_path: Path) -> None:
    ten = 1704103200.0
    window = Window(frozenset({"n2"}), ten, ten + 3600.0)
    partitions = {"small": frozenset({"n1"})}
    site = ClusterFile(
        cluster_of(n1=("a100", 4), n2=("v100", 4)), partitions=partitions, windows=(window,)
    )
    log = SACCT.replace("User", "Partition").replace("ann", "small").replace("ben", "large")
    loaded = load_workload(write(tmp_path, log=log), site, UTC)
    assert nodes(loaded.workload) == [frozenset({"n1"}), None]
    assert loaded.windows == (window,)
