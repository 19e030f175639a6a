"""`hetsched cluster infer` and `hetsched cluster show`, from files to output and exit code."""

from pathlib import Path

import pytest

from hetsched_core.cli import main
from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import parse_cluster

SCONTROL = "NodeName=n1 Gres=gpu:a100:4 CPUTot=64 RealMemory=524288\n"
SINFO = "NODELIST GRES CPUS MEMORY\nn2 gpu:2 32 1000\n"
LOG = (
    "JobID|State|Submit|Start|End|NodeList|AllocTRES\n"
    "7|COMPLETED|2025-03-03T09:00:00|2025-03-03T09:00:00|2025-03-03T10:00:00|n3|gres/gpu:t4=2\n"
)

Run = tuple[int, str, str]


def hetsched(capsys: pytest.CaptureFixture[str], *args: object) -> Run:
    code = main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for name, text in {"scontrol": SCONTROL, "sinfo": SINFO, "log": LOG}.items():
        paths[name] = tmp_path / f"{name}.txt"
        paths[name].write_text(text)
    return paths


def test_several_sources_become_one_description(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for name, path in files.items() for word in (f"--{name}", path)]
    code, out, err = hetsched(
        capsys, "cluster", "infer", *options, "--name", "lab", "--node-type", "n[1-2]=V100"
    )
    assert (code, err) == (0, "")
    cluster = parse_cluster(out).cluster
    assert cluster.name == "lab"
    assert [(n.name, n.gpu_type, n.gpus, n.cpus, n.memory_mb) for n in cluster] == [
        ("n1", "a100", 4, 64, 524_288),
        ("n2", "v100", 2, 32, 1_000),
        ("n3", "t4", 2, 0, 0),
    ]
    comments = [line for line in out.splitlines() if line.startswith("#")]
    assert any("n3: GPUs counted as the most" in line for line in comments)


def test_the_bundled_log_gives_the_bundled_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hetsched(capsys, "cluster", "infer", "--log", log_path())
    assert code == 0
    assert parse_cluster(out).cluster.gpus_by_type() == {
        "a100": 16,
        "v100": 24,
        "rtx30": 16,
        "l40s": 8,
    }


def test_a_log_without_header_needs_its_columns_named(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    header, row = LOG.splitlines()
    files["log"].write_text(row.replace("|", ";") + "\n")
    code, _, err = hetsched(capsys, "cluster", "infer", "--log", files["log"])
    assert code == 1
    assert "--sacct-fields" in err
    fields = ("--sacct-fields", header.replace("|", ","), "--sacct-delimiter", ";")
    code, out, _ = hetsched(capsys, "cluster", "infer", "--log", files["log"], *fields)
    assert code == 0
    assert parse_cluster(out).cluster["n3"].gpu_type == "t4"


def test_show_prints_a_plain_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(
        'schema = "hetsched-cluster/1"\nname = "lab"\n'
        '[[nodes]]\nnodes = "n[1-2]"\ngpu_type = "a100"\ngpus = 4\ncpus = 64\nmemory = "512G"\n'
        '[[nodes]]\nnodes = "m-t4"\nhost = "m"\ngpu_type = "t4"\ngpus = 1\ngroup = "rack 2"\n'
        '[node_types]\n"old*" = "k80"\n'
    )
    code, out, err = hetsched(capsys, "cluster", "show", path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "NODELIST  HOSTS  NODES  GPU_TYPE  GPUS  CPUS  MEMORY  GROUP",
        "n[1-2]    -      2      a100      4     64    512G    -",
        "m-t4      m      1      t4        1     -     -       rack 2",
        "",
        "lab: 9 GPUs on 3 hosts: 8 a100, 1 t4",
        "untyped GPUs on old*: k80",
    ]


def test_show_reads_the_bundled_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = hetsched(capsys, "cluster", "show", cluster_path())
    assert code == 0
    assert "campus: 64 GPUs on 14 hosts: 16 a100, 24 v100, 16 rtx30, 8 l40s" in out


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        pytest.param("scontrol", "", "no line begins with NodeName=", id="an empty scontrol"),
        pytest.param("scontrol", "NodeName=c1 CPUTot=4", "no GPU found on 1 nodes", id="no GPU"),
        pytest.param("sinfo", "\x00\x01", "no column lists nodes", id="a binary sinfo"),
        pytest.param("log", "", "sacct", id="an empty log"),
        pytest.param("log", "\x00\x01", "binary file", id="a binary log"),
        pytest.param("log", LOG.splitlines()[0] + "\n", "no GPU found", id="a log of no job"),
    ],
)
def test_a_source_that_cannot_be_used_is_one_line_and_exit_1(
    files: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    option: str,
    text: str,
    expected: str,
) -> None:
    files[option].write_text(text)
    code, out, err = hetsched(capsys, "cluster", "infer", f"--{option}", files[option])
    assert (code, out) == (1, "")
    assert err.startswith("hetsched: error: ")
    assert err.count("\n") == 1
    assert expected in err


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param("a100", "'a100' is not of the form NODES=TYPE", id="no ="),
        pytest.param("n[1-=a100", "'n[1-' is no pattern of node names", id="a broken pattern"),
        pytest.param("n1=", "'' is no GPU type", id="no type"),
    ],
)
def test_a_node_type_that_cannot_be_read_is_a_wrong_command_line(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str], rule: str, expected: str
) -> None:
    code, _, err = hetsched(
        capsys, "cluster", "infer", "--scontrol", files["scontrol"], "--node-type", rule
    )
    assert code == 2
    assert expected in err


def test_columns_that_cannot_be_are_a_wrong_command_line(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fields = ("--sacct-fields", "JobID,Foo")
    code, _, err = hetsched(capsys, "cluster", "infer", "--log", files["log"], *fields)
    assert code == 2
    assert "unknown sacct field 'Foo'" in err


@pytest.mark.parametrize(
    "args", [["infer", "--scontrol"], ["infer", "--sinfo"], ["infer", "--log"], ["show"]]
)
def test_a_missing_file_is_exit_1(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    code, _, err = hetsched(capsys, "cluster", *args, "no/such/file")
    assert code == 1
    assert "no/such/file" in err
    assert "Traceback" not in err


def test_no_source_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = hetsched(capsys, "cluster", "infer")
    assert code == 2
    assert "give at least one of --log, --scontrol and --sinfo" in err


def test_a_cluster_is_made_up_of_whole_nodes_of_each_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--gpus", 40, "--types", "a100, v100", "--gpus-per-node", 4, "--name", "made")
    code, out, err = hetsched(capsys, "cluster", "generate", *asked)
    assert (code, err) == (0, "")
    cluster = parse_cluster(out).cluster
    assert (cluster.name, cluster.gpus_by_type()) == ("made", {"a100": 20, "v100": 20})
    assert len(cluster) == 10


@pytest.mark.parametrize(
    "asked", [("--gpus", 41, "--types", "a100"), ("--gpus", 8, "--types", ",")]
)
def test_a_cluster_that_cannot_be_made_up_is_refused(
    capsys: pytest.CaptureFixture[str], asked: tuple[object, ...]
) -> None:
    code, out, err = hetsched(capsys, "cluster", "generate", *asked)
    assert (code, out) == (1, "")
    assert err.startswith("hetsched: error: ")
