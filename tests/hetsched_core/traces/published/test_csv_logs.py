"""Helios, Acme and openb: columns by name, states by the trace's words, parts of GPUs refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.cluster_file import parse_cluster
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.sacct import LoggedState, SacctOptions
from hetsched_core.types import EndState
from tests.hetsched_core.traces.published.worlds import read, why
from tests.hetsched_core.traces.worlds import UTC

HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)
HELIOS_ROW = (
    "7,ann,vc1,16,64,2,COMPLETED,2020-06-09 10:00:00,2020-06-09 10:05:00,2020-06-09 11:05:00,"
    "3600,300\n"
)
SEREN = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
    "queue,gpu_time\n"
)
SEREN_ROW = (
    "8,u1,1,8,128,Evaluation,FAILED,2023-03-01 08:00:00+08:00,2023-03-01 08:01:00+08:00,"
    "2023-03-01 09:01:00+08:00,3600,60,28800.0\n"
)
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
    "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
)
KALOS_ROW = (
    "dlc1,u1,2,16,240,1000,100.0,Pretrain,CANCELLED,2023-05-17 11:00:00+00:00,"
    "2023-05-17 11:00:10+00:00,2023-05-17 11:01:10+00:00,,2023-05-17 11:01:10+00:00,"
    "70,10.0,1120.0\n"
)
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)
OPENB_ROW = "pod-1,88500,327680,8,1000,V100M16|V100M32,LS,Succeeded,0,7200,3600\n"


def test_a_line_of_helios_is_a_run_of_its_virtual_cluster() -> None:
    (run,) = read(HELIOS + HELIOS_ROW).runs
    assert (run.job_id, run.user, run.account, run.partition) == ("7", "ann", "vc1", "vc1")
    assert (run.gpus, run.requested_gpus) == (((None, 16),), ())
    assert (run.n_nodes, run.cpus, run.memory_mb, run.nodes) == (2, 64, None, ())
    assert (run.start_s - run.submit_s, run.elapsed_s) == (300.0, 3600.0)
    assert (run.state, run.line) == (LoggedState.COMPLETED, 2)


def test_times_of_helios_are_in_the_zone_that_is_given_and_acmes_say_their_own() -> None:
    utc = read(HELIOS + HELIOS_ROW).runs[0].submit_s
    log = read(HELIOS + HELIOS_ROW, options=SacctOptions())
    assert (log.runs[0].submit_s, log.report.zone_missing) == (utc, True)
    acme = read(SEREN + SEREN_ROW, options=SacctOptions())
    assert (acme.runs[0].submit_s, acme.report.zone_missing) == (1_677_628_800.0, False)


def test_acmes_jobs_ran_on_a100s_and_their_type_is_their_name() -> None:
    log = read(SEREN + SEREN_ROW)
    assert [(run.gpus, run.name, run.state) for run in log.runs] == [
        ((("a100_80", 8),), "Evaluation", LoggedState.FAILED)
    ]
    assert log.assumptions == ["All GPUs of Acme are A100 with 80 GB (NSDI '24, table 1)."]


def test_a_duration_of_kalos_holds_the_queue_so_start_and_end_count() -> None:
    (run,) = read(KALOS + KALOS_ROW).runs
    assert (run.elapsed_s, run.n_nodes, run.name) == (60.0, 2, "Pretrain")


def test_a_pod_of_openb_accepts_the_types_of_its_spec() -> None:
    (run,) = read(OPENB + OPENB_ROW).runs
    assert run.requested_gpus == (("V100M16", 8), ("V100M32", 8))
    # On which of the two it ran is not told.
    assert run.gpus == ((None, 8),)
    assert (run.cpus, run.memory_mb, run.qos) == (89, 327_680.0, "LS")
    assert (run.submit_s, run.start_s, run.end_s) == (0.0, 3600.0, 7200.0)
    only, anywhere = read(
        OPENB + OPENB_ROW.replace("|V100M32", "") + OPENB_ROW.replace("V100M16|V100M32", "")
    ).runs
    assert only.gpus == (("V100M16", 8),)
    assert (anywhere.gpus, anywhere.requested_gpus) == (((None, 8),), ((None, 8),))


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Succeeded", LoggedState.COMPLETED),
        ("Failed", LoggedState.FAILED),
        ("Running", LoggedState.CANCELLED),
    ],
)
def test_a_pod_that_ran_until_it_was_deleted_was_cut_short(phase: str, state: LoggedState) -> None:
    (run,) = read(OPENB + OPENB_ROW.replace("Succeeded", phase)).runs
    assert run.state is state


def test_jobs_without_gpus_and_jobs_that_never_started_are_counted_as_such() -> None:
    helios = HELIOS_ROW.replace(",16,", ",0,") + HELIOS_ROW.replace("2020-06-09 10:05:00", "")
    openb = OPENB_ROW.replace(",8,1000,", ",0,0,") + "pod-2,1,1,1,460,,BE,Pending,10,20,\n"
    for text in (HELIOS + helios + "\n", OPENB + openb + "\n"):
        report = read(text).report
        assert (report.no_gpu, report.never_started, report.blank, report.headers) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HELIOS + "7,ann\n", "wrong number of fields: has 2 cells; expected 12: job_id,user,vc"),
        (HELIOS + HELIOS_ROW.replace("7,", ",", 1), "job_id is empty"),
        (HELIOS + HELIOS_ROW.replace(",16,", ",x,"), "gpu_num is 'x'; expected a whole number"),
        (HELIOS + HELIOS_ROW.replace(",16,", ",1.5,"), "gpu_num is '1.5'; expected a whole"),
        (HELIOS + HELIOS_ROW.replace(",64,", ",-4,"), "cpu_num is '-4'"),
        (
            HELIOS + HELIOS_ROW.replace("COMPLETED", "DONE"),
            "unreadable state: 'DONE' is none of PENDING, ",
        ),
        (HELIOS + HELIOS_ROW.replace("09 10:00:00", "09 10:30:00"), "times out of order: starts"),
        (
            HELIOS + HELIOS_ROW.replace("2020-06-09 10:00:00", ""),
            "has GPUs, and no time of submission",
        ),
        (HELIOS + HELIOS_ROW.replace("2020-06-09 10:05", "yesterday"), "unreadable time"),
        (OPENB + OPENB_ROW.replace("8,1000", "1,460"), "asks for 460 thousandths of a GPU, and"),
        (OPENB + OPENB_ROW.replace(",3600", ",nan"), "'nan' is no time of 0 to 1e+11 s"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(text: str, says: str) -> None:
    log = read(text)
    assert log.runs == []
    assert says in why(log)


CLUSTER = """schema = "hetsched-cluster/1"
[[nodes]]
nodes = "v[1-2]"
gpu_type = "v100"
gpus = 8
[[nodes]]
nodes = "t[1-2]"
gpu_type = "t4"
gpus = 8
"""


def typed(folder: Path, partition: str, gpu_type: str) -> LoadOptions:
    """Options with rules that name the type of a partition's GPUs."""
    rules = folder / "rules.toml"
    rules.write_text(
        f'schema = "hetsched-rules/1"\n[partition_types]\n"{partition}" = "{gpu_type}"\n'
    )
    return replace(UTC, rules=rules)


def test_a_trace_that_names_no_nodes_needs_a_cluster_and_may_need_its_type(tmp_path: Path) -> None:
    path = tmp_path / "cluster_log.csv"
    path.write_text(HELIOS + HELIOS_ROW + HELIOS_ROW.replace("7,", "8,", 1))
    with pytest.raises(InputError, match=r"none of 2 GPU allocations names a node.* --cluster"):
        load_workload([path], None, UTC)
    with pytest.raises(InputError, match="2 rejected: neither the log nor the cluster tells"):
        load_workload([path], parse_cluster(CLUSTER), UTC)
    found = load_workload([path], parse_cluster(CLUSTER), typed(tmp_path, "vc1", "v100"))
    assert [s.job.id for s in found.workload.submissions] == ["7", "8"]
    assert found.workload.submissions[0].job.cpus_per_gpu == 4.0


def test_what_a_pod_accepts_and_how_it_ended_reaches_its_job(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list.csv"
    failed = OPENB_ROW.replace("|V100M32", "").replace("Succeeded", "Failed")
    path.write_text(OPENB + failed + "x,1,1,1,1000,A10,LS,Running,5,9,6\n")
    found = load_workload([path], parse_cluster(CLUSTER), typed(tmp_path, "*", "t4"))
    submissions = {s.job.id: s for s in found.workload.submissions}
    pod = submissions["pod-1"]
    assert (pod.job.gpu_types, pod.ends_as) == (frozenset({"v100"}), EndState.FAILED)
    # No node of the cluster has what it asks for: a replay says that it can never run.
    assert submissions["x"].job.gpu_types == frozenset()


def test_what_is_assumed_of_a_trace_is_told_and_nothing_of_slurms_settings(tmp_path: Path) -> None:
    names = ("seren", "idle")
    for name, row in zip(names, (SEREN_ROW, SEREN_ROW.replace("1,8,", "1,0,", 1)), strict=True):
        (tmp_path / name).write_text(SEREN + row)
    paths = [tmp_path / name for name in names]
    found = load_workload(paths, parse_cluster(CLUSTER), UTC).workload.assumptions
    assert "All GPUs of Acme are A100 with 80 GB (NSDI '24, table 1)." in found
    # A published trace cannot be exported anew.
    assert not [text for text in found if "AllocTRES" in text or "NodeList" in text]
    with pytest.raises(InputError, match=r"no GPU job in .*idle: no line") as raised:
        load_workload(paths[1:], parse_cluster(CLUSTER), UTC)
    assert "AllocTRES" not in str(raised.value)


def test_models_are_drawn_by_ids_of_any_form(tmp_path: Path) -> None:
    path = tmp_path / "openb_pod_list.csv"
    path.write_text(OPENB + "".join(OPENB_ROW.replace("-1,", f"-{n},", 1) for n in range(20)))
    found = load_workload([path], parse_cluster(CLUSTER), typed(tmp_path, "*", "v100"))
    assert len({s.job.profile for s in found.workload.submissions}) > 1
