"""Values of sacct's columns, one by one."""

from collections.abc import Callable
from functools import partial

import pytest

from hetsched_core.traces.sacct.allocation import LoggedState
from hetsched_core.traces.sacct.fields import (
    FieldError,
    JobId,
    NodeLists,
    Tres,
    combine_states,
    expand_nodes,
    parse_duration,
    parse_gres,
    parse_job_id,
    parse_memory,
    parse_number,
    parse_state,
    parse_tres,
)

memory_of_8_cpus_on_2_nodes = partial(parse_memory, cpus=8, nodes=2)
LONG_TYPE = "nvidia_h100_80gb_hbm3_3g.40gb"


def gpus_of(text: str) -> object:
    return parse_tres(text).gpus


def part_of_gpu(text: str) -> bool:
    return parse_tres(text).part_of_gpu


def sorted_nodes(text: str) -> list[str]:
    assert NodeLists().expand(text) == expand_nodes(text)
    return sorted(expand_nodes(text))


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (parse_job_id, "123", JobId(123, "")),
        (parse_job_id, "123.batch", JobId(123, "batch")),
        (parse_job_id, "123.0+1", JobId(123, "0+1")),
        (parse_job_id, "123_4", JobId(123, "")),
        (parse_job_id, "123_3.batch", JobId(123, "batch")),
        (parse_job_id, "123_[1-3]", JobId(123, "")),
        (parse_job_id, "123_[3-5,8%2].0", JobId(123, "0")),
        (parse_job_id, "176+1.0", JobId(176, "0")),
        *(
            (parse_state, str(state), state)
            for state in LoggedState
            if state is not LoggedState.UNKNOWN
        ),
        (parse_state, "CANCELLED by 2101037", LoggedState.CANCELLED),
        (parse_state, "SOMETHING_NEW", LoggedState.UNKNOWN),
        (parse_state, "", LoggedState.UNKNOWN),
        # A flag goes before the state it is combined with.
        (combine_states, ("PENDING", "REQUEUED"), "REQUEUED"),
        (combine_states, ("RUNNING", "COMPLETING"), "COMPLETING"),
        (combine_states, ("TIMEOUT",), "TIMEOUT"),
        (combine_states, (), ""),
        (parse_duration, "00:00:33", 33),
        (parse_duration, "1-06:51:32", 111_092),
        (parse_duration, "28932-13:08:19", 28_932 * 86_400 + 47_299),
        (parse_duration, "22:53.824", 22 * 60 + 53.824),
        (parse_duration, "00:03", 3),
        (parse_duration, "100:00:00", 360_000),
        (parse_duration, "UNLIMITED", None),
        (parse_duration, "Partition_Limit", None),
        (parse_duration, "INVALID", None),
        (parse_duration, "", None),
        # Requested memory is that of the whole job.
        (memory_of_8_cpus_on_2_nodes, "1000Mc", 8_000),
        (memory_of_8_cpus_on_2_nodes, "31000Mn", 62_000),
        (memory_of_8_cpus_on_2_nodes, "2Gn", 4_096),
        (memory_of_8_cpus_on_2_nodes, "10000M", 10_000),
        (memory_of_8_cpus_on_2_nodes, "62.50G", 64_000),
        (memory_of_8_cpus_on_2_nodes, "1T", 1_048_576),
        (memory_of_8_cpus_on_2_nodes, "512K", 0.5),
        (memory_of_8_cpus_on_2_nodes, "2147486648Mn", 3_000 * 8),
        (memory_of_8_cpus_on_2_nodes, "0n", None),
        (memory_of_8_cpus_on_2_nodes, "", None),
        (partial(parse_memory, cpus=None, nodes=2), "1000Mc", None),
        # No GPU of a TRES list is counted twice.
        (gpus_of, "cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1", (("a100", 4),)),
        (gpus_of, "cpu=8,gres/gpu=4,gres/gpu:a100=4,node=1", (("a100", 4),)),
        (gpus_of, "cpu=8,gres/gpu=4,node=1", ((None, 4),)),
        (gpus_of, "gres/gpu:a100=4", (("a100", 4),)),
        (gpus_of, "gres/gpu:a100=2,gres/gpu:v100=2,gres/gpu=4", (("a100", 2), ("v100", 2))),
        (gpus_of, "gres/gpu:a100=2,gres/gpu=6", (("a100", 2), (None, 4))),
        (gpus_of, f"gres/gpu:{LONG_TYPE}=2,gres/gpu=2", ((LONG_TYPE, 2),)),
        (gpus_of, "cpu=1,gres/gpumem=20500736K,gres/gpuutil=90", ()),
        (gpus_of, "cpu=1,gres/gpu=0", ()),
        (gpus_of, "", ()),
        (parse_tres, "billing=78,cpu=32,mem=128G,node=2", Tres((), 32, 2, 131_072)),
        (part_of_gpu, "cpu=1,gres/shard=4", True),
        (part_of_gpu, "cpu=1,gres/mps:a100=50,gres/mps=50", True),
        (part_of_gpu, "cpu=1,gres/shard=0", False),
        (part_of_gpu, "cpu=1,gres/gpu=1,gres/shard=4", False),
        (parse_gres, "gpu:2", ((None, 2),)),
        (parse_gres, "gpu:0", ()),
        (parse_gres, "gpu:k80:4,craynetwork:1", (("k80", 4),)),
        (parse_gres, "gpu:k80:2,gpu:1", (("k80", 2), (None, 1))),
        (parse_gres, "", ()),
        (sorted_nodes, "n1", ["n1"]),
        (sorted_nodes, "gpu-2", ["gpu-2"]),
        (sorted_nodes, "n[1-3,7],m0[01-02]", ["m001", "m002", "n1", "n2", "n3", "n7"]),
        (sorted_nodes, "r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        (sorted_nodes, "None assigned", []),
        (sorted_nodes, "", []),
    ],
)
def test_every_form_of_a_value_is_read(
    read: Callable[[object], object], text: object, expected: object
) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("read", "why", "texts"),
    [
        (parse_job_id, "no job id such as", ["", "abc", "-1", "1_", "1+", "1.", "1_[", "1_[2-3"]),
        (parse_job_id, "no job id such as", ["٣", "1 2"]),
        (parse_state, r"'CANCELLED\+' is cut.*--parsable2", ["CANCELLED+"]),
        (parse_duration, "no duration", ["-00:00:05", "12", "1-2", "1:2:3:4", "a:b", "٣:٣"]),
        (parse_duration, "no duration", ["1-00:00:00-"]),
        (parse_number, "no number", ["-1", "1.5", "x", "²"]),
        (parse_number, "more than 18 digits", ["1" * 30]),
        (memory_of_8_cpus_on_2_nodes, "no amount", ["64GB", "-1G", "G", "1e9M", "64 G"]),
        (parse_tres, "'gres/gpu' in .* is not NAME=VALUE", ["cpu=8,gres/gpu"]),
        (parse_tres, "is no number", ["gres/gpu=four", "gres/gpu=-1"]),
        (parse_tres, "4 GPUs by type but 2 in all", ["gres/gpu:a100=4,gres/gpu=2"]),
        (parse_tres, "'64Q' is no amount of memory", ["mem=64Q,gres/gpu=1"]),
        (parse_tres, "too long", ["x=1," * 2_000]),
        (parse_gres, "'gpu:many' in 'gpu:many': 'many' is no number", ["gpu:many"]),
        (expand_nodes, "no node list such as", ["n[1-", "n[a-b]", "n1 n2", "n[1-2]!n1", "n1,"]),
        (expand_nodes, "no node list such as", ["n[1-9/2]", "@all", "$(id)"]),
        (expand_nodes, "bad range", ["n[3-1]"]),
        (expand_nodes, "more than 65536", ["n[1-999999999]", "r[1-99999]n[1-99999]"]),
        (expand_nodes, "more than 65536", ["n[1-60000],m[1-60000]", f"n[0-{'9' * 99}]"]),
    ],
)
def test_what_is_no_value_is_refused(
    read: Callable[[str], object], why: str, texts: list[str]
) -> None:
    for text in texts:
        with pytest.raises(FieldError, match=why):
            read(text)


def test_a_node_list_that_is_kept_is_as_good_as_a_fresh_one() -> None:
    lists = NodeLists()
    for _ in range(2):
        assert lists.expand("n[1-2]") == ("n1", "n2")
        assert lists.expand("n[1-300]") == expand_nodes("n[1-300]")
