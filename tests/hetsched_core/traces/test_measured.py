"""Measured throughputs stand for the built-in speeds of a log."""

import json
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.throughput import SizeClass
from hetsched_core.traces.cluster_file import parse_cluster
from hetsched_core.traces.gavel import read_measured
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.workload_file import read_workload, workload_lines

TABLE = {
    "v100": {
        "('LM (batch size 20)', 1)": {"null": 60.0},
        "('LM (batch size 20)', 2)": {"null": 100.0},
        "('CycleGAN', 1)": {"null": 4.0},
        "('A3C', 1)": {"null": 7.0},
    },
    "v100_unconsolidated": {"('LM (batch size 20)', 2)": {"null": 80.0}},
}
CLUSTER = parse_cluster("""schema = "hetsched-cluster/1"
[[nodes]]
nodes = "v[1-2]"
gpu_type = "tesla_v100-sxm2"
gpus = 2
[[nodes]]
nodes = "a"
gpu_type = "a100"
gpus = 2
""")
LOG = """JobID|User|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES
1|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:00|2024-01-01T20:00:00|v1|gres/gpu=1|gres/gpu:tesla_v100-sxm2=1
2|ben|COMPLETED|2024-01-01T01:00:00|2024-01-01T01:00:00|2024-01-01T11:00:00|v[1-2]|gres/gpu=2|gres/gpu:v100=2
3|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|a|gres/gpu=1|gres/gpu:a100=1
4|ben|COMPLETED|2024-01-01T02:00:00|2024-01-01T02:00:00|2024-01-01T04:00:00|v[1-2]|gres/gpu=2|gres/gpu:v100=2
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(TABLE))
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
