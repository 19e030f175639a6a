"""Files of any kind to jobs, speeds and a cluster."""

import gzip
import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import ClusterFile, read_cluster
from hetsched_core.traces.load import (
    Kind,
    LoadOptions,
    limited_to_partitions,
    load_workload,
    recognise,
)
from hetsched_core.traces.workload import Workload
from hetsched_core.traces.workload_file import workload_lines
from hetsched_core.types import Cluster, Job, Node, Window
from tests.hetsched_core.traces.worlds import FOX, HABROK, UTC, columns
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
TABLE = json.dumps({"v100": {"('LM', 2)": {"null": 10.0}}})

V100S = ClusterFile(Cluster((Node("a", "v100", 4), Node("b", "v100", 4))))


def write(folder: Path, **texts: str) -> list[Path]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return paths


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SACCT, Kind.SACCT),
        ("\n\n" + SACCT, Kind.SACCT),
        ('{"meta": {}, "jobs": []}', Kind.SACCT),
        ("", Kind.SACCT),
        (NATIVE, Kind.WORKLOAD),
        ("\ufeff" + NATIVE, Kind.WORKLOAD),
        (TRACE, Kind.GAVEL_TRACE),
        (TABLE, Kind.GAVEL_THROUGHPUTS),
        (json.dumps(json.loads(TABLE), indent=2), Kind.GAVEL_THROUGHPUTS),
    ],
)
def test_a_file_is_recognised_by_how_it_begins(tmp_path: Path, text: str, kind: Kind) -> None:
    for data in (text.encode(), gzip.compress(text.encode())):
        path = tmp_path / "input"
        path.write_bytes(data)
        with path.open("rb") as file:
            assert recognise(file, "input") is kind
            assert file.tell() == 0


def test_a_file_of_another_of_our_formats_is_named_as_what_it_is(tmp_path: Path) -> None:
    paths = write(tmp_path, a='{"schema": "hetsched-runlog/1"}\n')
    with pytest.raises(InputError, match="hetsched-runlog"):
        load_workload(paths)


def test_a_log_brings_its_cluster_and_what_it_cannot_use(tmp_path: Path) -> None:
    broken = SACCT + "3|too|few\n"
    found = load_workload(write(tmp_path, log=broken), None, UTC)
    assert [s.job.id for s in found.workload.submissions] == ["1", "2"]
    assert found.cluster.gpus_by_type() == {"a100": 1, "v100": 2}
    assert [report.used for report in found.reports] == [2]
    (reject,) = found.rejects()
    assert reject.startswith(f"{tmp_path}/log: line 5: ")
    for one in found.workload.submissions:
        assert one.job.profile in found.speeds.profiles


def test_several_logs_are_one_workload_and_the_overlap_counts_once(tmp_path: Path) -> None:
    lines = SACCT.splitlines(keepends=True)
    first, second = lines[0] + lines[1] + lines[3], lines[0] + lines[3]
    found = load_workload(write(tmp_path, a=first, b=second), None, UTC)
    assert [s.job.id for s in found.workload.submissions] == ["1", "2"]


def test_a_converted_log_loads_as_the_same_workload(tmp_path: Path) -> None:
    log = load_workload(write(tmp_path, log=SACCT), None, UTC)
    text = "\n".join(workload_lines(log.workload)) + "\n"
    native = load_workload(write(tmp_path, native=text), ClusterFile(log.cluster))
    assert native.workload == log.workload
    for one in log.workload.submissions:
        profile = one.job.profile
        assert native.speeds.per_gpu(profile, "v100", 2) == log.speeds.per_gpu(profile, "v100", 2)


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


def test_a_trace_goes_with_its_table_in_any_order(tmp_path: Path) -> None:
    trace, table = write(tmp_path, trace=TRACE, table=TABLE)
    found = load_workload([trace, table], V100S)
    assert found.speeds.per_gpu("LM", "v100", 2) == 5.0
    assert load_workload([table, trace], V100S).workload.submissions == found.workload.submissions


def test_several_traces_keep_their_jobs_apart(tmp_path: Path) -> None:
    found = load_workload(write(tmp_path, a=TRACE, b=TRACE, table=TABLE), V100S)
    assert [s.job.id for s in found.workload.submissions] == ["1.1", "2.1"]


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(SACCT,))
    writer.start()
    found = load_workload([pipe], None, UTC)
    writer.join()
    assert len(found.workload.submissions) == 2


def test_rules_and_elasticity_reach_the_jobs(tmp_path: Path) -> None:
    rules = 'schema = "hetsched-rules/1"\n[[rules]]\nuser = "ann"\nprofile = "unet-256"\n'
    log, rules_path = write(tmp_path, log=SACCT, rules=rules)
    cluster = ClusterFile(Cluster((Node("n1", "a100", 4), Node("n2", "v100", 4))))
    found = load_workload([log], cluster, LoadOptions(rules=rules_path, elastic=True))
    first, second = (s.job for s in found.workload.submissions)
    assert first.profile == "unet-256"
    assert first.requirements.counts == (1, 2)
    assert second.requirements.counts == (1, 2, 4)


def test_an_unknown_gpu_type_is_replayed_and_reported(tmp_path: Path) -> None:
    log = SACCT.replace("v100", "zz9000")
    found = load_workload(write(tmp_path, log=log), None, UTC)
    assert len(found.workload.submissions) == 2
    assert [text for text in found.workload.assumptions if "'zz9000'" in text]


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        pytest.param({"log": ""}, "is empty", id="empty file"),
        pytest.param({"log": NO_GPU}, "no GPU job in", id="no GPU job"),
        pytest.param({"log": "what is this\n"}, "line 1", id="no format at all"),
        pytest.param({"log": "\x00\x01\x02"}, "binary", id="binary file"),
        pytest.param({"native": NATIVE}, "give --cluster FILE", id="native without cluster"),
        pytest.param({"native": NATIVE.splitlines()[0]}, "no GPU job", id="native without jobs"),
        pytest.param({"native": NATIVE + "{"}, "native: line 3", id="native cut off"),
        pytest.param({"a": NATIVE, "b": NATIVE}, "earlier file", id="native twice"),
        pytest.param({"trace": TRACE}, "throughput table", id="trace alone"),
        pytest.param({"table": TABLE}, "trace", id="table alone"),
        pytest.param({"t": TABLE, "u": TABLE}, "second throughput table", id="two tables"),
        pytest.param({"trace": TRACE, "table": TABLE}, "give --cluster FILE", id="no cluster"),
        pytest.param({"log": SACCT, "native": NATIVE}, "different kinds", id="two kinds"),
        pytest.param({"log": SACCT, "trace": TRACE}, "different kinds", id="log and trace"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_sentence(
    tmp_path: Path, texts: dict[str, str], says: str
) -> None:
    with pytest.raises(InputError) as raised:
        load_workload(write(tmp_path, **texts), None, UTC)
    assert says in str(raised.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot be read"):
            load_workload([path])


def test_a_cluster_on_which_nothing_runs_is_an_error_that_lists_the_types(tmp_path: Path) -> None:
    other = ClusterFile(Cluster((Node("a", "h100", 4),)))
    with pytest.raises(InputError, match=r"\(h100\); there are speeds for: v100"):
        load_workload(write(tmp_path, trace=TRACE, table=TABLE), other)


# Real logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields", "zone", "jobs", "lines"),
    [
        ("fox_sacct_P_noheader.txt", FOX, "Europe/Oslo", 65, 301),
        ("habrok_sacct_snowman.txt", HABROK, "Europe/Amsterdam", 9, 242),
    ],
)
def test_every_line_of_a_real_log_is_a_job_or_is_accounted_for(
    data_dir: Path, name: str, fields: str, zone: str, jobs: int, lines: int
) -> None:
    found = load_workload(
        [data_dir / "sacct" / name], None, LoadOptions(sacct=columns(fields, zone))
    )
    assert [report.lines for report in found.reports] == [lines]
    assert not list(found.rejects())
    submissions = found.workload.submissions
    assert len(submissions) == jobs == sum(report.used for report in found.reports)
    for one in submissions:
        job = one.job
        on_cluster = [t for t in found.cluster.gpu_types if job.accepts_type(t)]
        assert any(found.speeds.per_gpu(job.profile, t, job.asked_count or 1) for t in on_cluster)


def test_the_real_slurms_text_and_json_give_the_same_jobs(data_dir: Path) -> None:
    folder = data_dir / "sacct/slurm_26.05"
    text = load_workload([folder / "sacct_X_short.txt"], None, UTC)
    json_ = load_workload([folder / "sacct.json.gz"], None, UTC)
    assert len(text.workload.submissions) == 56
    of_text, of_json = ({s.job.id: s for s in x.workload.submissions} for x in (text, json_))
    assert of_text.keys() == of_json.keys()
    for job_id, one in of_text.items():
        other = of_json[job_id]
        assert (one.job.profile, one.ends_as) == (other.job.profile, other.ends_as)
        assert one.job.requirements == other.job.requirements


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_file_that_never_ends_is_refused_at_its_beginning() -> None:
    with pytest.raises(InputError, match="/dev/zero: a binary file"):
        load_workload([Path("/dev/zero")])


# Partitions ---------------------------------------------------------------------------------------

CLUSTER = cluster_of(a=("v100", 4), b=("v100", 4), c=("v100", 4))
AB, BC = frozenset({"a", "b"}), frozenset({"b", "c"})
SITE = ClusterFile(CLUSTER, partitions={"ab": AB, "bc": BC, "all": AB | BC})


def placed(
    *partitions: str, file: ClusterFile = SITE, **limits: object
) -> tuple[list[Job], Workload]:
    submissions = tuple(
        replace(given, job=replace(given.job, partition=partition, **limits))  # type: ignore[arg-type]
        for n, partition in enumerate(partitions)
        for given in [submission(f"j{n}", 1.0)]
    )
    found = limited_to_partitions(Workload(submissions), SITE)
    return [s.job for s in found.submissions], found


def test_jobs_run_on_the_nodes_of_their_partition_or_partitions() -> None:
    jobs, found = placed("ab", "bc", "ab,bc", "all", "ab", "")
    assert [job.nodes for job in jobs] == [AB, BC, None, None, AB, None]
    assert jobs[0].nodes is jobs[4].nodes
    assert found.assumptions == ()


def test_jobs_of_partitions_that_are_not_described_run_anywhere_and_that_is_said() -> None:
    jobs, found = placed("ab", "xx", "yy", "xx", "xx,bc")
    assert [job.nodes for job in jobs] == [AB, None, None, None, BC]
    assert found.assumptions == (
        "3 jobs of partitions without nodes in the cluster file (xx, yy) may run on all nodes.",
    )


def test_a_job_that_says_itself_where_it_may_run_keeps_to_that() -> None:
    (job,), _ = placed("ab", nodes=frozenset({"c"}))
    assert job.nodes == frozenset({"c"})


def test_without_partitions_the_workload_is_as_it_was() -> None:
    workload = Workload((submission("j", 1.0),))
    assert limited_to_partitions(workload, ClusterFile(CLUSTER)) is workload


def test_a_node_that_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="job 'j0' may run on z: no such node in cluster"):
        placed("", nodes=frozenset({"a", "z"}))


PARTITIONED = """JobID|User|Partition|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|small|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:00|2024-05-01T09:00:00|n1|gres/gpu=1|gres/gpu:v100=1
2|ann|large|COMPLETED|2024-05-01T08:00:00|2024-05-01T08:00:00|2024-05-01T09:00:00|n2|gres/gpu=1|gres/gpu:v100=1
"""
SITE_TEXT = """schema = "hetsched-cluster/1"
[[nodes]]
nodes = "n[1-2]"
gpu_type = "v100"
gpus = 4
[[partitions]]
name = "small"
nodes = "n1"
[[windows]]
nodes = "n2"
from = 2024-05-01T10:00:00Z
until = 2024-05-01T11:00:00Z
"""


def test_a_log_is_read_with_its_partitions_and_the_windows_of_the_site(tmp_path: Path) -> None:
    log, cluster = tmp_path / "log", tmp_path / "cluster.toml"
    log.write_text(PARTITIONED)
    cluster.write_text(SITE_TEXT)
    loaded = load_workload([log], read_cluster(cluster), UTC)
    assert {s.job.id: s.job.nodes for s in loaded.workload.submissions} == {
        "1": frozenset({"n1"}),
        "2": None,
    }
    ten = 1714557600.0
    assert loaded.windows == (Window(frozenset({"n2"}), ten, ten + 3600.0),)
