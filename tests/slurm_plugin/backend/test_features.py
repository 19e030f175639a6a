"""Constraint expressions against node features, as slurmctld reads them."""

import itertools
import subprocess
from collections.abc import Iterable, Iterator

import pytest

from slurm_plugin.backend.features import nodes_with
from slurm_plugin.testbed import Testbed

FOUR = {
    "n0": frozenset({"fast", "eth"}),
    "n1": frozenset({"slow", "ib"}),
    "n2": frozenset({"slow", "eth"}),
    "n3": frozenset({"fast", "ib"}),
}

PLAIN = {
    "fast": "n0 n3",
    "fast&ib": "n3",
    "fast,ib": "n3",
    "fast|slow&ib": "n1 n3",
    "slow&ib|fast": "n0 n1 n3",
    "fast|ib&slow": "n1",
    "fast&ib|slow&eth": "n2",
    "(fast&ib)|(slow&eth)": "n2 n3",
    "fast|(slow&ib)": "n0 n1 n3",
    "fast&(ib|eth)": "n0 n3",
}


@pytest.mark.parametrize(("expression", "names"), PLAIN.items())
def test_an_expression_is_read_from_left_to_right(expression: str, names: str) -> None:
    assert nodes_with(expression, FOUR) == (frozenset(names.split()),)


@pytest.mark.parametrize(
    ("expression", "sets"),
    [
        ("", ("n0 n1 n2 n3",)),
        ("[fast|slow]", ("n0 n3", "n1 n2")),
        ("[fast|slow]&ib", ("n3", "n1")),
        ("ib&[fast|slow]", ("n3", "n1")),
        ("[(fast&ib)|(slow&eth)]", ("n3", "n2")),
        ("nosuch", ("",)),
    ],
)
def test_of_alternatives_in_brackets_a_run_keeps_to_one(
    expression: str, sets: tuple[str, ...]
) -> None:
    assert nodes_with(expression, FOUR) == tuple(frozenset(each.split()) for each in sets)


@pytest.mark.parametrize(
    "expression",
    [
        *("slow*2", "[fast*1&slow*1]", "fast*1&ib", "[(fast&ib)*1&slow*1]"),
        *("[fast&ib]", "[fast|slow]|ib", "ib|[fast|slow]", "[fast|slow]&[ib|eth]"),
        *("([fast|slow])", "fast&", "&fast", "(fast", "fast)", "[fast|slow", "fast & ib", "()"),
    ],
)
def test_what_only_slurm_can_tell_is_left_to_it(expression: str) -> None:
    assert nodes_with(expression, FOUR) is None


@pytest.fixture
def featured(testbed: Testbed) -> Iterator[Testbed]:
    """The shared testbed, whose first nodes have these features for a while."""

    def give(node: str, features: Iterable[str]) -> None:
        names = ",".join(features)
        words = (f"AvailableFeatures={names}", f"ActiveFeatures={names}")
        testbed.command("scontrol", "update", f"NodeName={node}", *words)

    for node, features in FOUR.items():
        give(node, features)
    yield testbed
    for fake in testbed.layout.nodes[: len(FOUR)]:
        give(fake.name, fake.features)


@pytest.mark.slurm
def test_slurmctld_reads_them_alike(featured: Testbed) -> None:
    testbed, sbatch = featured, featured.installed.program("sbatch")

    def allows(expression: str, nodes: tuple[str, ...]) -> bool:
        where = (f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"-n{len(nodes)}")
        words = (sbatch, "--test-only", f"--constraint={expression}", *where, "--wrap=true")
        done = subprocess.run(words, env=testbed.environment(), capture_output=True, check=False)
        return done.returncode == 0

    for expression in PLAIN:
        (allowed,) = nodes_with(expression, FOUR) or (frozenset(),)
        for count in (1, 2):
            for nodes in itertools.combinations(FOUR, count):
                assert allows(expression, nodes) == (allowed >= set(nodes)), (expression, nodes)
