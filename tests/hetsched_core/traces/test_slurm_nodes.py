"""What scontrol and sinfo print of nodes, in the forms of several sites."""

from collections.abc import Callable

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.slurm_nodes import SlurmNodeRecord, read_scontrol, read_sinfo

# As Slurm 24.11 prints it, shortened; the comment tries to be a field.
FULL = """\
NodeName=gpu-1 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=8 CPUEfctv=62 CPUTot=64 CPULoad=3.11
   AvailableFeatures=a100,ib
   Gres=gpu:A100:4(S:0-1),mps:400
   NodeAddr=gpu-1 NodeHostName=gpu-1 Version=24.11.5
   RealMemory=512000 AllocMem=65536 FreeMem=401234 Sockets=2 Boards=1
   CfgTRES=cpu=62,mem=500G,billing=62,gres/gpu=4
   AllocTRES=cpu=8,mem=64G,gres/gpu=1
   Comment=was Gres=gpu:v100:8 until May

NodeName=c1 Arch=x86_64 CoresPerSocket=32
   Gres=(null)
   RealMemory=256000
   CfgTRES=cpu=64,mem=250G,billing=64

"""


def test_the_output_of_scontrol_is_read_node_by_node_in_lines_or_in_one_line_each() -> None:
    assert read_scontrol(FULL) == (
        SlurmNodeRecord("gpu-1", (("a100", 4),), 62, 512_000),
        SlurmNodeRecord("c1", (), 64, 256_000),
    )
    lines = "\n".join(" ".join(node.split()) for node in FULL.strip().split("\n\n"))
    assert len(lines.splitlines()) == 2
    assert read_scontrol(lines) == read_scontrol(FULL)


@pytest.mark.parametrize(
    ("fields", "gpus", "cpus", "memory_mb"),
    [
        ("CfgTRES=cpu=8,mem=10M,gres/gpu=4,gres/gpu:a100=4", (("a100", 4),), 8, 10),
        ("CfgTRES=cpu=8,mem=10M,gres/gpu=4", ((None, 4),), 8, 10),
        ("CfgTRES=cpu=8,mem=62.50G", (), 8, 64_000),
        ("Gres=gpu:a100:2(S:0,1),gpu:t4:1(S:1) CPUTot=8", (("a100", 2), ("t4", 1)), 8, None),
        ("Gres=gpu:8 RealMemory=10", ((None, 8),), None, 10),
        ("State=IDLE", None, None, None),
    ],
)
def test_fields_of_scontrol(
    fields: str,
    gpus: tuple[tuple[str | None, int], ...] | None,
    cpus: int | None,
    memory_mb: int | None,
) -> None:
    assert read_scontrol(f"NodeName=n {fields}\n") == (SlurmNodeRecord("n", gpus, cpus, memory_mb),)


SINFO = (
    SlurmNodeRecord("gpu-1", (("a100", 4),), 64, 512_000),
    SlurmNodeRecord("gpu-2", (("a100", 4),), 64, 512_000),
    SlurmNodeRecord("c1", (), 64, 256_000),
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "NODELIST GRES CPUS MEMORY\ngpu-1 gpu:a100:4(S:0-1) 64 512000\n"
            "gpu-2 gpu:a100:4(S:0-1) 64 512000\nc1 (null) 64 256000\n",
            id="%N %G %c %m",
        ),
        pytest.param(
            "PARTITION NODELIST MEMORY CPUS GRES\ngpu* gpu-[1-2] 512000+ 64+ gpu:a100:4\n"
            "all gpu-[1-2] 512000 64 gpu:a100:4\nall c1 256000 64 (null)\n",
            id="another order, nodes in two partitions",
        ),
        pytest.param(
            "HOSTNAMES|PARTITION|GRES|CPUS|MEMORY\ngpu-1|big mem|gpu:A100:4|64|512000\n\n"
            "gpu-2|big mem|gpu:A100:4|64|512000\nc1||(null)|64|256000\n",
            id="bars, names with blanks, empty values",
        ),
        pytest.param(
            "gpu-[1-2] gpu:a100:4(S:0,1) 64 512000\nc1 (null) 64 256000\n", id="without a header"
        ),
    ],
)
def test_columns_of_sinfo_are_found(text: str) -> None:
    assert read_sinfo(text) == SINFO


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        # Only two columns of numbers are CPUs and memory.
        ("n1 gpu:2 64\n", [SlurmNodeRecord("n1", ((None, 2),))]),
        # A state in which there is a digit now and then is no node.
        ("n1 up2\nn2 idle\n", [SlurmNodeRecord("n1"), SlurmNodeRecord("n2")]),
        # A partition whose name looks like a node's is none.
        (
            "gpu1|n[1-2]|\ngpu2|n3|\n",
            [SlurmNodeRecord("n1"), SlurmNodeRecord("n2"), SlurmNodeRecord("n3")],
        ),
    ],
)
def test_without_a_header_nothing_is_taken_for_what_it_may_not_be(
    text: str, nodes: list[SlurmNodeRecord]
) -> None:
    assert list(read_sinfo(text)) == nodes


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (read_scontrol, "", "no line begins with NodeName="),
        (read_scontrol, "\nNodeName=n Gres=gpu:a100:x", "node of line 2: 'gpu:a100:x'"),
        (read_scontrol, "NodeName=n CfgTRES=cpu=all", "cpu in 'cpu=all'"),
        (read_scontrol, "NodeName=n RealMemory=1G", "'1G' is no number"),
        (read_scontrol, "NodeName= Gres=gpu:1", "NodeName is empty"),
        (read_sinfo, "", "no column lists nodes"),
        (read_sinfo, "idle mixed\n", "--format '%N %G %c %m'"),
        (read_sinfo, "NODELIST GRES\nn1 gpu:a100:x\n", "line 2: 'gpu:a100:x'"),
        (read_sinfo, "NODELIST CPUS\nn1 many\n", "line 2: 'many' is no number"),
        (read_sinfo, "NODELIST CPUS\nn[1- 4\n", "line 2: 'n[1-' is no node list"),
    ],
)
def test_output_that_cannot_be_read_is_refused_with_its_line(
    read: Callable[..., object], text: str, expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "nodes.txt")
    assert str(caught.value).startswith("nodes.txt")
    assert expected in str(caught.value)
