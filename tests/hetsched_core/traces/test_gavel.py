"""Gavel's traces and throughput tables: forms, units, and what cannot be replayed."""

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput import SizeClass
from hetsched_core.traces.cluster_file import ClusterFile
from hetsched_core.traces.gavel import (
    GavelJob,
    GavelRejectReason,
    gavel_workload,
    is_trace,
    read_measured,
    read_throughputs,
    read_trace,
)
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.workload_file import read_workload, workload_lines
from hetsched_core.types import Job, RequirementSet, Speeds, Submission
from tests.hetsched_core.worlds import cluster_of, on

CURRENT = "LM (batch size 5)\tpython3 main.py\tlanguage\t--steps\t0\t700\t2\t1.5\t-1.000000\t12.5"
OLDER = "LM (batch size 5)\tcd x && python3 main.py\t--steps\t0\t700\t12.5\t2"

LM = [f"('LM (batch size 5)', {gpus})" for gpus in (1, 2)]
TABLE = json.dumps(
    {
        "v100": {
            LM[0]: {"null": 10.0, "('A3C', 1)": [3.0, 4.0]},
            LM[1]: {"null": 18.0},
            "('Huge', 1)": {"null": 0.0},
        },
        "k80": {LM[0]: {"null": 2.0}, LM[1]: {"null": 3.0}},
        "v100_unconsolidated": {LM[0]: {"null": 10.0}, LM[1]: {"null": 12.0}},
    }
)


SHOCKWAVE = (
    "LM (batch size 5)\tpython3 main.py\tlanguage\t--steps\t0\t700\t2\t"
    "{mode}\t1.5\t-1.000000\t500\t12.5"
)


def test_shockwave_s_columns_are_read_and_jobs_that_adapt_are_told() -> None:
    static, adapts = (SHOCKWAVE.format(mode=mode) for mode in ("static", "accordion"))
    assert is_trace(adapts)
    jobs = read_trace([static, adapts], "t")
    first = GavelJob(1, "LM (batch size 5)", 2, 700.0, 12.5, weight=1.5)
    assert jobs == (first, replace(first, line=2, adapts=True))
    workload = gavel_workload(jobs, read_throughputs(TABLE, "t"))
    assert len(workload.submissions) == 2
    assert any(each.startswith("1 of 2 jobs: they change") for each in workload.assumptions)


def test_both_orders_of_columns_tell_the_same_job() -> None:
    (current,) = read_trace([CURRENT], "t")
    (older,) = read_trace([OLDER], "t")
    assert current == GavelJob(1, "LM (batch size 5)", 2, 700.0, 12.5, weight=1.5, slo=None)
    assert older == GavelJob(1, "LM (batch size 5)", 2, 700.0, 12.5)
    assert is_trace(CURRENT)
    assert is_trace(OLDER)
    for other in (
        "",
        "a\tb",
        "JobID\tUser\tState\tSubmit\tStart\tEnd\tNodeList",
        "1\t2\t3\tx\t5\t6\t7",
    ):
        assert not is_trace(other)


@pytest.mark.parametrize(
    ("read", "given", "says"),
    [
        (read_trace, [], "the trace is empty"),
        (
            read_trace,
            ["a\tb"],
            "line 1 has 2 columns; expected 10 columns or 12 columns or 7 columns",
        ),
        (read_trace, [CURRENT, OLDER], "line 2 has 7 columns; expected 10"),
        (read_trace, [CURRENT.replace("700", "many")], "total_steps is 'many'"),
        (read_trace, [CURRENT.replace("700", "-7")], "total_steps is '-7'"),
        (read_trace, [OLDER[:-1] + "0"], "scale_factor is '0'"),
        (read_trace, [CURRENT.replace("1.5\t", "0\t")], "priority_weight is '0'"),
        (read_throughputs, "{", "not valid JSON"),
        (read_throughputs, "[]", "no throughput table"),
        (read_throughputs, '{"v100": 3}', "no throughput table"),
        (read_throughputs, '{"v100": {"x": 1}}', "no throughput table"),
        (read_throughputs, """{"v100": {"('LM', 1)": {}}}""", "v100, ('LM', 1): null is None"),
        (read_throughputs, """{"v100": {"('LM', 1)": {"null": -1}}}""", "null is -1"),
    ],
)
def test_what_is_wrong_with_a_trace_or_a_table_is_said(
    read: Callable[..., object], given: object, says: str
) -> None:
    with pytest.raises(InputError) as raised:
        read(given, "t.txt")
    assert str(raised.value).startswith("t.txt: ")
    assert says in str(raised.value)


def test_a_table_holds_steps_of_the_whole_job_and_speeds_are_per_gpu() -> None:
    tables = read_throughputs(TABLE, "t")
    speeds = Speeds(cluster_of(v0=("v100", 2), v1=("v100", 2), k=("k80", 2)), tables)
    assert tables["LM (batch size 5)"].gpu_types == ("v100", "k80")
    where = (on(v0=1), on(v0=2), on(v0=1, v1=1), on(k=2))
    found = [speeds.speed("LM (batch size 5)", one) for one in where]
    assert found == pytest.approx([10.0, 18.0, 12.0, 3.0])
    # The table does not have K80s on several nodes: the job does not fit there.
    assert speeds.per_gpu("LM (batch size 5)", "k80", 2, nodes=2) == 0


def test_a_job_is_rigid_and_its_work_is_counted_in_steps() -> None:
    found = gavel_workload(read_trace([CURRENT], "t"), read_throughputs(TABLE, "t"))
    name, two = "LM (batch size 5)", RequirementSet((2,))
    job = Job("1", 12.5, two, name, total_samples=700.0, weight=1.5, name=name, asked_count=2)
    assert found.submissions == (Submission(job, 700.0),)
    assert set(found.tables) == {name}
    assert found.rejected == ()


def test_what_the_table_does_not_have_is_rejected_with_a_reason() -> None:
    jobs = [
        GavelJob(1, "A3C", 1, 5.0, 0.0),
        GavelJob(2, "LM (batch size 5)", 3, 5.0, 0.0),
        GavelJob(3, "Huge", 1, 5.0, 0.0),
        GavelJob(4, "LM (batch size 5)", 1, 0.0, 0.0),
        GavelJob(5, "LM (batch size 5)", 1, 5.0, 0.0, slo=1.2),
    ]
    found = gavel_workload(jobs, read_throughputs(TABLE, "t"))
    reasons = (GavelRejectReason[name] for name in ("MODEL", "SCALE", "NOWHERE", "NO_WORK"))
    assert [(r.line, r.reason) for r in found.rejected] == list(enumerate(reasons, 1))
    assert [s.job.id for s in found.submissions] == ["5"]
    # Five steps at the table's best speed on one GPU, 1.2 times over.
    best = found.tables["LM (batch size 5)"].one_node[:, 0].max()
    assert found.submissions[0].job.deadline_s == pytest.approx(1.2 * 5.0 / best)
    assert any("1 of 1 jobs: they have an SLO" in text for text in found.assumptions)


def test_the_examples_of_the_documentation_go_together() -> None:
    page = (Path(__file__).parents[3] / "docs/formats/gavel.md").read_text()
    (trace,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (table,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    found = gavel_workload(read_trace(trace.splitlines(), "page"), read_throughputs(table, "page"))
    asked = {s.job.id: s.job.requirements.counts for s in found.submissions}
    assert asked == {"1": (4,), "2": (1,)}


def unpacked(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


@pytest.mark.parametrize("table", ["simulation", "physical_cluster"])
@pytest.mark.parametrize(
    ("trace", "used", "rejected"),
    [
        ("gavel_generated_480_static.trace", 480, 0),
        ("gavel_physical_cluster_max_min_fairness.trace", 96, 0),
        ("gavel_physical_cluster_minimize_makespan.trace", 100, 0),
        ("gavel_physical_cluster_small_test.trace", 20, 0),
        ("gavel_msr_seed0_0e4a51.trace.gz", 984, 197),
        ("gavel_msr_seed0_ee9e8c.trace.gz", 1627, 373),
    ],
)
def test_every_job_of_the_published_traces_is_used_or_rejected_for_its_number_of_gpus(
    data_dir: Path, table: str, trace: str, used: int, rejected: int
) -> None:
    lines = unpacked(data_dir / "workloads" / trace).splitlines()
    throughputs = unpacked(data_dir / f"throughputs/gavel_{table}_throughputs.json.gz")
    found = gavel_workload(read_trace(lines, trace), read_throughputs(throughputs, table))
    assert (len(found.submissions), len(found.rejected)) == (used, rejected)
    assert {r.reason for r in found.rejected} <= {GavelRejectReason.SCALE}
    for reject in found.rejected:
        model, *_, scale = lines[reject.line - 1].split("\t")
        assert f"('{model}', {scale})" not in throughputs


def test_the_speed_of_a_published_job_is_its_throughput_in_the_table(data_dir: Path) -> None:
    text = unpacked(data_dir / "throughputs/gavel_simulation_throughputs.json.gz")
    document, types = json.loads(text), ("k80", "p100", "v100")
    nodes = cluster_of(**{f"{t}{i}": (t, 4) for t in types for i in (0, 1)})
    speeds = Speeds(nodes, read_throughputs(text, "t"))
    for gpu_type in types:
        for key, entry in document[gpu_type].items():
            model, gpus = key[2:].rsplit("', ", 1)
            if gpus == "4)":
                together = on(**{f"{gpu_type}0": 4})
                assert speeds.speed(model, together) == pytest.approx(entry["null"])
                apart = document[f"{gpu_type}_unconsolidated"].get(key, {"null": 0.0})["null"]
                spread = on(**{f"{gpu_type}0": 2, f"{gpu_type}1": 2})
                assert speeds.speed(model, spread) == pytest.approx(apart)


# Measured throughputs for a log -------------------------------------------------------------------

MEASURED = {
    "v100": {
        "('LM (batch size 20)', 1)": {"null": 60.0},
        "('LM (batch size 20)', 2)": {"null": 100.0},
        "('CycleGAN', 1)": {"null": 4.0},
        "('A3C', 1)": {"null": 7.0},
    },
    "v100_unconsolidated": {"('LM (batch size 20)', 2)": {"null": 80.0}},
}
CLUSTER = ClusterFile(
    cluster_of(v1=("tesla_v100-sxm2", 2), v2=("tesla_v100-sxm2", 2), a=("a100", 2))
)
LOG = """JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T20:00:00|v1|gres/gpu=1|gres/gpu:tesla_v100-sxm2=1
2|ben|COMPLETED|2024-01-01T01:00:00|2024-01-01T01:00:00|2024-01-01T11:00:00|v[1-2]|gres/gpu=2|gres/gpu:v100=2
3|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|a|gres/gpu=1|gres/gpu:a100=1
4|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|v[1-2]|gres/gpu=2|gres/gpu:v100=2
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(MEASURED))
    return path


def test_types_have_the_clusters_names_and_models_the_classes_of_hadar(table: Path) -> None:
    found = read_measured(table, ["tesla_v100-sxm2", "a100", "mi250x"])
    assert {model.name: model.size for model in found.models} == {
        "LM (batch size 20)": SizeClass.LARGE,
        "CycleGAN": SizeClass.MEDIUM,
    }
    assert set(found.tables) == {"LM (batch size 20)", "CycleGAN", "A3C"}
    lm = found.tables["LM (batch size 20)"]
    assert lm.gpu_types == ("tesla_v100-sxm2",)
    assert [lm.per_gpu("tesla_v100-sxm2", 2, nodes) for nodes in (1, 2)] == [50, 40]
    assert not lm.runs_on("a100")
    # Measured on one GPU alone.
    assert found.tables["CycleGAN"].per_gpu("tesla_v100-sxm2", 4, 2) == 4
    assert any("no speeds on a100, mi250x" in sentence for sentence in found.assumptions)


def test_the_jobs_of_a_log_run_the_measured_models_at_the_measured_speeds(
    tmp_path: Path, table: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(LOG)
    loaded = load_workload([log], CLUSTER, LoadOptions(throughputs=table))
    jobs = {s.job.id: s for s in loaded.workload.submissions}
    assert set(jobs) == {"1", "2", "4"}
    # 20 GPU hours are of class L, 4 of class M.
    assert (jobs["1"].job.profile, jobs["1"].samples) == ("LM (batch size 20)", 60 * 72_000)
    assert (jobs["2"].job.profile, jobs["2"].samples) == ("LM (batch size 20)", 80 * 36_000)
    assert (jobs["4"].job.profile, jobs["4"].samples) == ("CycleGAN", 8 * 7_200)
    assert jobs["1"].job.gpu_types == frozenset({"tesla_v100-sxm2"})
    assert [r.job for r in loaded.workload.rejected] == ["3"]
    assert set(loaded.speeds.profiles) == {"LM (batch size 20)", "CycleGAN"}
    # The workload brings the speeds along.
    again = read_workload(workload_lines(loaded.workload), "again", ())
    assert again.submissions == loaded.workload.submissions


def test_a_table_without_the_clusters_types_is_refused(table: Path) -> None:
    with pytest.raises(InputError, match=r"none of the GPU types k80 is measured; .* v100"):
        read_measured(table, ["k80"])
