"""`hetsched cluster`, from files to output and exit code."""

from pathlib import Path

import pytest

from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import parse_cluster, read_cluster
from tests.hetsched_core.cli.conftest import Run, write

HEADER = "JobID|State|Submit|Start|End|NodeList|AllocTRES"
ROW = "7|COMPLETED|2025-03-03T09:00:00|2025-03-03T09:00:00|2025-03-03T10:00:00|n3|gres/gpu:t4=2"
FILES = {
    "scontrol": "NodeName=n1 Gres=gpu:a100:4 CPUTot=64 RealMemory=524288\n",
    "sinfo": "NODELIST GRES CPUS MEMORY\nn2 gpu:2 32 1000\n",
    "log": f"{HEADER}\n{ROW}\n",
    "rows": ROW.replace("|", ";") + "\n",
    "header": f"{HEADER}\n",
    "empty": "",
}


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    write(folder, FILES)


def test_several_sources_become_one_description(hetsched: Run) -> None:
    sources = ("--scontrol=scontrol", "--sinfo=sinfo", "--log=log", "--node-type=n[1-2]=V100")
    code, out, err = hetsched("cluster", "infer", *sources, "--name=lab")
    assert (code, err) == (0, "")
    cluster = parse_cluster(out).cluster
    assert cluster.name == "lab"
    assert [(n.name, n.gpu_type, n.gpus, n.cpus, n.memory_mb) for n in cluster] == [
        ("n1", "a100", 4, 64, 524_288),
        ("n2", "v100", 2, 32, 1_000),
        ("n3", "t4", 2, 0, 0),
    ]
    assert "\n# n3: GPUs counted as the most" in out


def test_the_bundled_log_gives_the_bundled_cluster(hetsched: Run) -> None:
    inferred = parse_cluster(hetsched("cluster", "infer", "--log", log_path()).out).cluster
    assert inferred.gpus_by_type() == read_cluster(cluster_path()).cluster.gpus_by_type()
    shown = hetsched("cluster", "show", cluster_path()).out
    assert "campus: 64 GPUs on 14 hosts: 16 a100, 24 v100, 16 rtx30, 8 l40s" in shown


def test_a_log_without_header_needs_its_columns_named(hetsched: Run) -> None:
    unnamed = hetsched("cluster", "infer", "--log=rows")
    assert unnamed.code == 1
    assert "--sacct-fields" in unnamed.err
    named = ("--sacct-fields", HEADER.replace("|", ","), "--sacct-delimiter=;")
    out = hetsched("cluster", "infer", "--log=rows", *named).out
    assert parse_cluster(out).cluster["n3"].gpu_type == "t4"


def test_show_prints_a_plain_table(hetsched: Run) -> None:
    Path("lab.toml").write_text(
        'schema = "hetsched-cluster/1"\nname = "lab"\n'
        '[[nodes]]\nnodes = "n[1-2]"\ngpu_type = "a100"\ngpus = 4\ncpus = 64\nmemory = "512G"\n'
        '[[nodes]]\nnodes = "m-t4"\nhost = "m"\ngpu_type = "t4"\ngpus = 1\ngroup = "rack 2"\n'
        '[node_types]\n"old*" = "k80"\n'
    )
    code, out, err = hetsched("cluster", "show", "lab.toml")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "NODELIST  HOSTS  NODES  GPU_TYPE  GPUS  CPUS  MEMORY  GROUP",
        "n[1-2]    -      2      a100      4     64    512G    -",
        "m-t4      m      1      t4        1     -     -       rack 2",
        "",
        "lab: 9 GPUs on 3 hosts: 8 a100, 1 t4",
        "untyped GPUs on old*: k80",
    ]


def test_a_cluster_is_made_up_of_whole_nodes_of_each_type(hetsched: Run) -> None:
    asked = ("--gpus=40", "--types=a100, v100", "--gpus-per-node=4", "--name=made")
    code, out, err = hetsched("cluster", "generate", *asked)
    assert (code, err) == (0, "")
    cluster = parse_cluster(out).cluster
    assert (cluster.name, cluster.gpus_by_type()) == ("made", {"a100": 20, "v100": 20})
    assert len(cluster) == 10


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("infer --log=empty", 1, "export one with: sacct"),
        ("infer --log=header", 1, "no GPU found"),
        ("infer --scontrol=no/file", 1, "no/file"),
        ("infer --log=no/file", 1, "no/file"),
        ("show no/file", 1, "no/file"),
        ("generate --gpus=41 --types=a100", 1, "GPU"),
        ("infer", 2, "give at least one of --log, --scontrol and --sinfo"),
        ("infer --log=log --sacct-fields=JobID,Foo", 2, "unknown sacct field 'Foo'"),
        ("infer --log=log --node-type=a100", 2, "--node-type a100: expected NODES=TYPE"),
        ("infer --log=log --node-type=n[1-=a100", 2, "'n[1-' is no pattern of node names"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_1_or_wrong_usage_and_exit_2(
    hetsched: Run, words: str, code: int, says: str
) -> None:
    result = hetsched("cluster", *words.split())
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    if code == 1:
        assert result.err.startswith("hetsched: error: ")
        assert result.err.count("\n") == 1
