"""Logs that lack something: what is said in the first line, and what is replayed all the same."""

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from hetsched_core.traces.bundled import cluster_path
from tests.hetsched_core.cli.conftest import Result, Run, result_file, short_log

HETSCHED = Path(sysconfig.get_path("scripts")) / "hetsched"
HEADER, *ROWS = (line.split("|") for line in short_log().splitlines())
GPU_JOBS = 30
"""In these lines of the bundled log."""

Row = dict[str, str]


def write(
    name: str,
    change: Callable[[Row], Row] = lambda row: row,
    *,
    without: tuple[str, ...] = (),
    renamed: tuple[tuple[str, str], ...] = (),
) -> Path:
    """Write the log with each row changed, without some columns, and with others named anew."""
    names = [name for name in HEADER if name not in without]
    shown = [dict(renamed).get(name, name) for name in names]
    rows = [change(dict(zip(HEADER, row, strict=True))) for row in ROWS]
    lines = [shown, *([row[name] for name in names] for row in rows)]
    Path(name).write_text("".join("|".join(line) + "\n" for line in lines))
    return Path(name)


def no_gpus(*columns: str, partition: str = "gpu") -> Callable[[Row], Row]:
    """Take the GPUs from some columns."""

    def change(row: Row) -> Row:
        for column in columns:
            kept = [part for part in row[column].split(",") if "gpu" not in part]
            row = {**row, column: ",".join(kept)}
        return {**row, "Partition": partition}

    return change


def untyped(row: Row) -> Row:
    """Leave the type of the GPUs out."""
    kept = [part for part in row["AllocTRES"].split(",") if not part.startswith("gres/gpu:")]
    return {**row, "AllocTRES": ",".join(kept)}


@pytest.fixture
def replay(hetsched: Run, folder: Path) -> Run:
    """Runs `hetsched replay` on some files of this folder, and demands a list of rejects."""

    def replay(*words: object) -> Result:
        (folder / "rejects").unlink(missing_ok=True)
        result = hetsched("replay", "--tz=UTC", "--policy=fifo", "--rejects=rejects", *words)
        assert (folder / "rejects").exists()
        return result

    return replay


def refused(result: Result) -> str:
    """Return the error, which is all that was said."""
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    return line.removeprefix("hetsched: error: ")


CLUSTER = f"--cluster={cluster_path()}"


def test_without_node_list_a_cluster_must_be_given_and_what_is_not_known_is_told(
    replay: Run,
) -> None:
    log = write("log", without=("NodeList",))
    assert refused(replay(log)).startswith(
        f"no cluster can be inferred: none of {GPU_JOBS} GPU allocations names a node; export "
        "the log with NodeList, or describe the nodes in a file for --cluster"
    )
    result = replay(log, CLUSTER)
    assert result.code == 0
    assert "assumed: log: no allocation names a node, so that" in result.err
    assert "; export with NodeList\n" in result.err


def test_gpus_that_accounting_does_not_track_are_told_from_the_partition(replay: Run) -> None:
    log = write("log", no_gpus("AllocTRES", "ReqTRES"))
    error = refused(replay(log, CLUSTER))
    assert error.startswith(
        f"GPUs are not tracked in log: none of {GPU_JOBS} jobs holds one, though some are of "
        "partition gpu; slurm.conf's AccountingStorageTRES must name gres/gpu"
    )


def test_a_log_of_cpu_jobs_says_so_first(replay: Run) -> None:
    log = write("log", no_gpus("AllocTRES", "ReqTRES", partition="long"))
    error = refused(replay(log, CLUSTER))
    assert error.startswith(f"only CPU jobs in log: {GPU_JOBS} jobs without GPU, and a replay")


def test_gpus_that_were_asked_for_and_not_held_are_told_apart_from_those(replay: Run) -> None:
    log = write("log", no_gpus("AllocTRES"))
    assert refused(replay(log, CLUSTER)).startswith(
        f"no job of log holds a GPU in AllocTRES, though {GPU_JOBS} of {GPU_JOBS} asked for one in "
        "ReqTRES; export AllocTRES again."
    )
    text = write("rest").read_text()
    Path("rest").write_text(text + log.read_text().partition("\n")[2].replace("482", "882"))
    result = replay("rest", CLUSTER)
    assert result.code == 0
    assert f"assumed: rest: {GPU_JOBS} jobs asked for GPUs in ReqTRES and held none" in result.err


def test_a_log_with_reqtres_alone_is_told_why_that_is_not_enough(replay: Run) -> None:
    error = refused(replay(write("log", without=("AllocTRES",)), CLUSTER))
    assert error.startswith(
        "log: line 1: no column AllocTRES or AllocGRES among 20 columns; ReqTRES, which there is, "
        "tells what a job asked for and not what it held; export with: sacct "
    )


@pytest.mark.parametrize(
    ("renamed", "says"),
    [
        (
            (("JobID", "Job ID"), ("State", "Status")),
            "log: line 1 is a header with names that are none of sacct's (Job ID, Status);",
        ),
        (
            (("Submit", "Begun"),),
            "log: line 1: no column Submit among 21 columns, and none of sacct's is named Begun;",
        ),
    ],
)
def test_a_header_of_other_names_is_replayed_under_the_names_of_sacct(
    replay: Run, renamed: tuple[tuple[str, str], ...], says: str
) -> None:
    log = write("log", renamed=renamed)
    error = refused(replay(log, CLUSTER))
    assert error.startswith(f"{says} give sacct's names of all columns with --sacct-fields")
    assert replay(log, CLUSTER, f"--sacct-fields={','.join(HEADER)}").code == 0
    (reject,) = Path("rejects").read_text().splitlines()
    assert reject.startswith("log: line 1: unreadable job id")


def test_a_line_without_end_is_refused_as_what_it_is_in_a_log_and_in_a_workload(
    replay: Run,
) -> None:
    Path("log").write_text("x" * 3_000_000)
    assert refused(replay("log", CLUSTER)).startswith("log: line 1 is longer than 1048576 bytes")
    with Path("jobs").open("w") as file:
        file.write('{"schema": "hetsched-workload/1"}\n')
        file.writelines("x" * (1 << 20) for _ in range(65))
    assert refused(replay("jobs", CLUSTER)).startswith("jobs: line 2 is longer than 64 MiB")


def test_what_is_wrong_with_many_files_is_said_once(replay: Run) -> None:
    names = [write(f"log{n}", no_gpus("AllocTRES", "ReqTRES")) for n in range(11)]
    error = refused(replay(*names, CLUSTER))
    assert error.startswith(
        f"GPUs are not tracked in 11 files (log0, ...): none of {11 * GPU_JOBS}"
    )
    assert error.count("log") == 1
    result = replay(*names, write("log"), CLUSTER)
    assert result.code == 0
    assert result.err.count("GPUs are not tracked") == 1


def test_the_list_of_rejects_is_kept_where_the_command_fails_later(replay: Run) -> None:
    log = write("log")
    log.write_text(log.read_text() + "1|too|few\n")
    Path("rules").write_text('schema = "hetsched-rules/1"\n[[rules]]\nprofile = "none"\n')
    assert "unknown profile 'none'" in refused(replay(log, CLUSTER, "--rules=rules"))
    (reject,) = Path("rejects").read_text().splitlines()
    assert reject.startswith("log: line 61: wrong number of fields")


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "-", CLUSTER, "--policy=fifo"),
        ("workload", "show", "-", CLUSTER),
        ("workload", "convert", "-", "out", CLUSTER),
        ("cluster", "infer", "--log", "-"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("piped", [True, False])
def test_a_dash_reads_the_standard_input(folder: Path, words: tuple[str, ...], piped: bool) -> None:
    text = write("log").read_text()
    with (folder / "log").open() as file:
        done = subprocess.run(
            [HETSCHED, *words, "--tz=UTC"],
            stdin=None if piped else file,
            input=text if piped else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert f"/dev/stdin: 60 lines: {GPU_JOBS} GPU allocations" in done.stderr + done.stdout


def test_rules_tell_the_gpu_type_of_a_partition_with_and_without_a_cluster(
    replay: Run,
) -> None:
    log = write("log", untyped, without=("NodeList",))
    error = refused(replay(log, CLUSTER))
    assert error.startswith("no job of log can be used: ")
    assert "name it in node_types of the cluster file or partition_types of the rules" in error
    Path("rules").write_text('schema = "hetsched-rules/1"\n[partition_types]\n"gp*" = "V100"\n')
    result = replay(log, CLUSTER, "--rules=rules", "--json=result.json")
    assert result.code == 0
    written = result_file()
    said = "allocations: the GPU type is that of their partition in the rules."
    assert f"{GPU_JOBS} of {GPU_JOBS} {said}" in written["input"]["assumptions"]
    whole = write("log", untyped)
    assert replay(whole, "--rules=rules", "--json=result.json").code == 0
    assert set(result_file()["input"]["gpus"]) == {"v100"}
    # A log that names the types of its GPUs is believed.
    assert replay(write("log"), "--rules=rules", "--json=result.json").code == 0
    assert "rtx30" in result_file()["input"]["gpus"]
