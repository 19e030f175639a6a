"""Every template of sbatch_templates/ runs to its end on a real Slurm, placed by the daemon."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.backend import JobState, SlurmBackend
from slurm_plugin.daemon import Daemon
from slurm_plugin.testbed import Testbed
from slurm_plugin.testbed.processes import run
from tests.slurm_plugin.live import daemon_of, drive
from tests.slurm_plugin.submit.asking import mark_of

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("submitter")]

TEMPLATES = Path(__file__).parents[3] / "sbatch_templates"
TRAINING = ("rigid", "requirement-set", "range", "multi-node-torchrun")

STANDS_IN = """\
#!{python}
import json, os, sys
from pathlib import Path
told = {{"words": sys.argv, "environment": dict(os.environ)}}
name = os.environ["SLURM_NODEID"] + "." + os.environ["SLURM_PROCID"] + ".told"
(Path({folder!r}) / name).write_text(json.dumps(told))
"""
"""In the place of torchrun, or of the user's own script: it notes how it was called."""


@dataclass(frozen=True)
class Call:
    """One process that a template has started."""

    words: list[str]
    environment: dict[str, str]

    def option(self, name: str) -> str:
        (value,) = (word.partition("=")[2] for word in self.words if word.startswith(f"--{name}="))
        return value

    @property
    def gpus(self) -> int:
        return len(self.environment["CUDA_VISIBLE_DEVICES"].split(","))


def submit(testbed: Testbed, folder: Path, template: str, *words: str) -> str:
    """Submit a template as it is, from a folder in which stand-ins are found first."""
    for name in ("torchrun", "infer.py"):
        program = folder / name
        program.write_text(STANDS_IN.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
    environment = testbed.environment()
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    sbatch = testbed.installed.program("sbatch")
    script = TEMPLATES / f"{template}.sbatch"
    command: list[str | Path] = [sbatch, "--parsable", f"--chdir={folder}", *words, script]
    return run(command, env=environment).strip()


def run_to_the_end(backend: SlurmBackend, daemon: Daemon, job: str) -> int:
    """Let a daemon place a job, and return how many GPUs it had."""
    held: list[int] = []

    def ended() -> bool:
        seen = backend.read().jobs[job]
        held.append(seen.gpus)
        return seen.state is JobState.ENDED

    drive(daemon, ended)
    return held[-1]


@pytest.fixture
def daemon(backend: SlurmBackend) -> Daemon:
    return daemon_of(backend)


def calls(folder: Path) -> list[Call]:
    """What the stand-ins have noted, in the order of nodes and processes."""
    return [Call(**json.loads(path.read_text())) for path in sorted(folder.glob("*.told"))]


def finished_well(testbed: Testbed, job: str) -> bool:
    text = testbed.command("scontrol", "show", "job", job)
    return "JobState=COMPLETED" in text and "ExitCode=0:0" in text


def test_every_template_has_a_test() -> None:
    # The last three run with a real torch, in tests/job_wrappers/torch.
    known = {*TRAINING, "inference", "bandwidths", "pool", "training"}
    assert {path.stem for path in TEMPLATES.glob("*.sbatch")} == known
    readme = (TEMPLATES / "README.md").read_text()
    assert all(f"[{path.name}]" in readme for path in TEMPLATES.glob("*.sbatch"))


@pytest.mark.parametrize(
    ("template", "words"),
    [*((template, ()) for template in TRAINING), ("multi-node-torchrun", ("--gpu-set=16",))],
)
def test_a_template_starts_torchrun_once_on_each_node_with_a_worker_for_each_gpu(
    backend: SlurmBackend,
    testbed: Testbed,
    daemon: Daemon,
    tmp_path: Path,
    template: str,
    words: tuple[str, ...],
) -> None:
    job = submit(testbed, tmp_path, template, *words)
    mark = mark_of(backend, job)
    held = run_to_the_end(backend, daemon, job)
    output = "".join(path.read_text() for path in tmp_path.glob("*.out"))
    assert finished_well(testbed, job), output
    assert mark.options.counts is not None
    assert held in mark.options.counts
    started = calls(tmp_path)
    nodes = len(started)
    assert sum(call.gpus for call in started) == held
    names = {call.environment["SLURMD_NODENAME"] for call in started}
    assert len(names) == nodes
    for call in started:
        assert int(call.option("nnodes")) == nodes
        assert int(call.option("nproc-per-node")) == call.gpus == held // nodes
        assert call.option("rdzv-id") == f"{job}.0"
        head, _, port = call.option("rdzv-endpoint").partition(":")
        assert head == min(names)
        assert 20_000 <= int(port) < 40_000
        assert call.environment["HETSCHED_NONCE"] == mark.nonce
        assert "train.py" in call.words
    accepted = mark.options.gpu_types or {"a100", "v100", "t4"}
    types = {node.name: node.gpu_type for node in testbed.layout.nodes}
    assert {types[name] for name in names} <= accepted
    if words:
        assert names == {"n1", "n4"}


@pytest.mark.parametrize("counts", ["1", "4", "16"])
def test_the_inference_template_starts_a_worker_for_each_gpu(
    backend: SlurmBackend, testbed: Testbed, daemon: Daemon, tmp_path: Path, counts: str
) -> None:
    job = submit(testbed, tmp_path, "inference", f"--gpu-set={counts}")
    held = run_to_the_end(backend, daemon, job)
    output = "".join(path.read_text() for path in tmp_path.glob("*.out"))
    assert finished_well(testbed, job), output
    started = calls(tmp_path)
    assert len(started) == held == int(counts)
    shares = sorted(int(call.environment["SLURM_PROCID"]) for call in started)
    assert shares == list(range(held))
    assert {call.environment["SLURM_NTASKS"] for call in started} == {counts}
    # No two workers on a node share a GPU.
    names = ("SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES")
    seen = {tuple(call.environment[name] for name in names) for call in started}
    assert all(call.gpus == 1 for call in started)
    assert len(seen) == held
