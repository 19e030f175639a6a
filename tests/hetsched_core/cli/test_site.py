"""A site's shares, limits and tiers in `hetsched replay` and `hetsched cluster infer`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hetsched_core.traces.cluster_file import parse_cluster
from tests.hetsched_core.cli.conftest import Run, write

NODES = "NodeName=n1 Gres=gpu:a100:8 CPUTot=64 RealMemory=524288\n"
ASSOC = """\
Account|Par Name|User|Share|MaxJobs
root|||1|
physics|root||3|
physics||ann|1|
biology|root||1|
biology||bob|1|
"""
QOS = "Name|Priority|MaxTRESPU\nnormal|0|gres/gpu=6\nhigh|100|\n"
PARTITIONS = "PartitionName=gpu Nodes=n[1-9] PriorityTier=1 QoS=N/A\n"
SITE = ("--site=assoc", "--site=qos", "--site=partitions")
BEGIN = 1_740_000_000
HOUR_S = 3_600


def log(jobs: int) -> str:
    """A log in which physics and biology submit by turns, more than there is room for."""
    names = "JobID|User|Account|Partition|QOS|State|Submit|Start|End|NodeList|AllocTRES|JobName"
    rows = [names]
    for at in range(jobs):
        account, user = (("physics", "ann"), ("biology", "bob"))[at % 2]
        start_s = BEGIN + 600 + at // 8 * 1_200
        row = {
            "JobID": str(100 + at),
            "User": user,
            "Account": account,
            "Partition": "gpu",
            "QOS": "normal",
            "State": "COMPLETED",
            "Submit": str(BEGIN + at),
            "Start": str(start_s),
            # Of unlike lengths, so that GPUs become free one by one.
            "End": str(start_s + 600 + at * 137 % 600),
            "NodeList": "n1",
            "AllocTRES": "cpu=1,gres/gpu:a100=1,gres/gpu=1,node=1",
            "JobName": "train",
        }
        rows.append("|".join(row[name] for name in names.split("|")))
    return "\n".join(rows) + "\n"


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    texts = {"nodes": NODES, "assoc": ASSOC, "qos": QOS, "partitions": PARTITIONS}
    write(folder, texts | {"log": log(400)})


def runs(policy: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each run of a run log, with the account of its job."""
    lines = [json.loads(line) for line in Path(f"runs/{policy}.jsonl").read_text().splitlines()]
    jobs = [line["job"] for line in lines if line.get("kind") == "job"]
    accounts = {job["id"]: job["account"] for job in jobs}
    for run in (line for line in lines if line.get("kind") == "run"):
        yield run, accounts[run["job"]]


def gpu_hours(policy: str, until_s: float) -> dict[str, float]:
    hours = {"physics": 0.0, "biology": 0.0}
    for run, account in runs(policy):
        hours[account] += max(0.0, min(run["freed_s"], until_s) - run["since_s"]) / HOUR_S
    return hours


def test_accounts_of_shares_3_to_1_get_gpu_hours_of_3_to_1(hetsched: Run) -> None:
    cluster = hetsched("cluster", "infer", "--scontrol=nodes", "--site=assoc").out
    Path("cluster.toml").write_text(cluster.replace("[shares]", '[shares]\nhalf_life = "0-1"'))
    policies = ("fifo", "slurm")
    words = ("--cluster=cluster.toml", f"--policy={','.join(policies)}", "--run-log=runs")
    settings = (
        *("--set=slurm.weight_fairshare=100000", "--set=slurm.decay_half_life_s=3600"),
        "--set=slurm.calc_period_s=60",
    )
    assert hetsched("replay", "log", *words, *settings).code == 0
    for policy in policies:
        # For three half-lives both have work.
        hours = gpu_hours(policy, BEGIN + 3 * HOUR_S)
        assert hours["physics"] / hours["biology"] == pytest.approx(3.0, rel=0.1), policy
        assert sum(hours.values()) == pytest.approx(3 * 8, rel=0.02), policy


def test_what_slurm_prints_beside_a_replay_does_what_it_does_in_the_cluster_file(
    hetsched: Run,
) -> None:
    told = hetsched("cluster", "infer", "--scontrol=nodes", *SITE)
    assert (told.code, told.err) == (0, "")
    Path("whole.toml").write_text(told.out)
    Path("bare.toml").write_text(hetsched("cluster", "infer", "--scontrol=nodes").out)
    file = parse_cluster(told.out)
    assert [account.name for account in file.site.accounts] == ["physics", "biology"]
    assert file.partitions == {"gpu": {"n1"}}
    Path("log").write_text(log(80))
    logs = []
    for options in (("--cluster=whole.toml",), ("--cluster=bare.toml", *SITE), SITE):
        assert hetsched("replay", "log", *options, "--policy=fifo", "--run-log=runs").code == 0
        logs.append([run for run, _ in runs("fifo")])
    # A cluster that the log alone tells has no CPUs, which makes no difference here.
    assert logs[0] == logs[1] == logs[2]


def test_limits_are_never_exceeded(hetsched: Run) -> None:
    words = (
        "--site=qos",
        "--site=assoc",
        "--policy=fifo,slurm,steady",
        "--run-log=runs",
        "--set=slurm.weight_fairshare=1000",
    )
    Path("log").write_text(log(120))
    assert hetsched("replay", "log", *words).code == 0
    for policy in ("fifo", "slurm", "steady"):
        mine = [run for run, account in runs(policy) if account == "physics"]
        held = [(run["since_s"], run["freed_s"]) for run in mine]
        most = max(sum(since <= at < freed for since, freed in held) for at, _ in held)
        assert most == 6, policy


def test_a_tier_goes_first_under_slurm_and_without_a_word_nothing_is_told(hetsched: Run) -> None:
    lines = log(80).splitlines()
    lines[-1] = lines[-1].replace("normal", "high")
    Path("log").write_text("\n".join(lines) + "\n")
    base = ("replay", "log", "--policy=slurm", "--run-log=runs")
    assert hetsched(*base, "--site=qos").code == 0
    with_site = {run["job"]: run["since_s"] for run, _ in runs("slurm")}
    assert hetsched(*base).code == 0
    without = {run["job"]: run["since_s"] for run, _ in runs("slurm")}
    assert with_site["179"] < BEGIN + 0.5 * HOUR_S < BEGIN + HOUR_S < without["179"]


@pytest.mark.parametrize(
    ("site", "says"),
    [
        ("missing", "missing: cannot be read: No such file"),
        ("nodes", "nodes begins with 'NodeName=n1"),
    ],
)
def test_a_file_that_tells_nothing_of_a_site_is_refused(
    hetsched: Run, site: str, says: str
) -> None:
    for words in (("replay", "log"), ("cluster", "infer", "--scontrol=nodes")):
        code, _, err = hetsched(*words, f"--site={site}")
        assert code == 1
        assert says in err
