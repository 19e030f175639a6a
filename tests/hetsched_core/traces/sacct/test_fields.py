"""Values of sacct's columns, one by one."""

import pytest

from hetsched_core.traces.sacct.allocation import JobState
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123", JobId(123, "")),
        ("123.batch", JobId(123, "batch")),
        ("123.0+1", JobId(123, "0+1")),
        ("123_4", JobId(123, "")),
        ("123_3.batch", JobId(123, "batch")),
        ("123_[1-3]", JobId(123, "")),
        ("123_[3-5,8%2].0", JobId(123, "0")),
        ("176+0", JobId(176, "")),
        ("176+1.0", JobId(176, "0")),
    ],
)
def test_every_form_of_job_id_is_taken_apart(text: str, expected: JobId) -> None:
    assert parse_job_id(text) == expected


@pytest.mark.parametrize("text", ["", "abc", "-1", "1_", "1+", "1.", "1_[", "1_[2-3", "٣", "1 2"])
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="no job id such as"):
        parse_job_id(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COMPLETED", JobState.COMPLETED),
        ("CANCELLED", JobState.CANCELLED),
        ("CANCELLED by 2101037", JobState.CANCELLED),
        ("PREEMPTED", JobState.PREEMPTED),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("TIMEOUT", JobState.TIMEOUT),
        ("REQUEUED", JobState.REQUEUED),
        ("RESIZING", JobState.RESIZING),
        ("REVOKED", JobState.REVOKED),
        ("DEADLINE", JobState.DEADLINE),
        ("BOOT_FAIL", JobState.BOOT_FAIL),
        ("SOMETHING_NEW", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
    ],
)
def test_states_are_slurms_words_and_others_are_unknown(text: str, expected: JobState) -> None:
    assert parse_state(text) is expected


def test_a_state_cut_to_a_columns_width_is_refused() -> None:
    with pytest.raises(FieldError, match=r"'CANCELLED\+' is cut.*--parsable2"):
        parse_state("CANCELLED+")


def test_a_flag_goes_before_the_state_it_is_combined_with() -> None:
    assert combine_states(("PENDING", "REQUEUED")) == "REQUEUED"
    assert combine_states(("RUNNING", "COMPLETING")) == "COMPLETING"
    assert combine_states(("TIMEOUT",)) == "TIMEOUT"
    assert combine_states(()) == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:33", 33),
        ("1-06:51:32", 111_092),
        ("28932-13:08:19", 28_932 * 86_400 + 47_299),
        ("365-00:00:00", 365 * 86_400),
        ("22:53.824", 22 * 60 + 53.824),
        ("00:03", 3),
        ("100:00:00", 360_000),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_durations_of_every_form_become_seconds(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["-00:00:05", "12", "1-2", "1:2:3:4", "a:b", "1-00:00:00-", "٣:٣"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="no duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "²", "1" * 30])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match=r"no number|more than 18 digits"):
        parse_number(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("1000Mc", 8_000),
        ("31000Mn", 62_000),
        ("2Gn", 4_096),
        ("10000M", 10_000),
        ("64G", 65_536),
        ("62.50G", 64_000),
        ("1T", 1_048_576),
        ("512K", 0.5),
        ("2147486648Mn", 3_000 * 8),
        ("0", None),
        ("0n", None),
        ("", None),
    ],
)
def test_requested_memory_is_that_of_the_whole_job(text: str, mib: float | None) -> None:
    assert parse_memory(text, cpus=8, nodes=2) == mib


def test_memory_per_cpu_of_an_unknown_number_of_cpus_is_unknown() -> None:
    assert parse_memory("1000Mc", cpus=None, nodes=2) is None


@pytest.mark.parametrize("text", ["64GB", "-1G", "G", "1e9M", "64 G"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="no amount of memory"):
        parse_memory(text, 1, 1)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1", (("a100", 4),)),
        ("cpu=8,gres/gpu=4,gres/gpu:a100=4,node=1", (("a100", 4),)),
        ("cpu=8,gres/gpu=4,node=1", ((None, 4),)),
        ("gres/gpu:a100=4", (("a100", 4),)),
        ("gres/gpu:a100=2,gres/gpu:v100=2,gres/gpu=4", (("a100", 2), ("v100", 2))),
        ("gres/gpu:a100=2,gres/gpu=6", (("a100", 2), (None, 4))),
        ("gres/gpu:a100_80=4,gres/gpu=4", (("a100_80", 4),)),
        (
            "gres/gpu:nvidia_h100_80gb_hbm3_3g.40gb=2,gres/gpu=2",
            (("nvidia_h100_80gb_hbm3_3g.40gb", 2),),
        ),
        ("cpu=1,gres/gpumem=20500736K,gres/gpuutil=90", ()),
        ("cpu=1,gres/gpu=0", ()),
        ("billing=8,cpu=8,mem=64G,node=1", ()),
        ("billing=1", ()),
        ("", ()),
    ],
)
def test_no_gpu_of_a_tres_list_is_counted_twice(text: str, gpus: object) -> None:
    assert parse_tres(text).gpus == gpus


def test_a_tres_list_gives_cpus_nodes_and_memory_of_the_job() -> None:
    expected = Tres((("a100", 4),), cpus=32, nodes=2, memory_mb=131_072)
    assert parse_tres("billing=78,cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=2") == expected


def test_shares_of_a_gpu_are_told_from_whole_ones() -> None:
    assert parse_tres("cpu=1,gres/shard=4").part_of_gpu
    assert parse_tres("cpu=1,gres/mps:a100=50,gres/mps=50").part_of_gpu
    assert not parse_tres("cpu=1,gres/shard=0").part_of_gpu
    assert not parse_tres("cpu=1,gres/gpu=1,gres/shard=4").part_of_gpu


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cpu=8,gres/gpu", "'gres/gpu' in .* is not NAME=VALUE"),
        ("gres/gpu=four", "'four' is no number"),
        ("gres/gpu=-1", "'-1' is no number"),
        ("gres/gpu:a100=4,gres/gpu=2", "4 GPUs by type but 2 in all"),
        ("mem=64Q,gres/gpu=1", "'64Q' is no amount of memory"),
        ("x=1," * 2_000, "too long"),
    ],
)
def test_a_tres_list_that_does_not_make_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(FieldError, match=why):
        parse_tres(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:2", ((None, 2),)),
        ("gpu:0", ()),
        ("gpu:k80:4,craynetwork:1", (("k80", 4),)),
        ("gpu:k80:2,gpu:1", (("k80", 2), (None, 1))),
        ("craynetwork:1", ()),
        ("", ()),
    ],
)
def test_the_old_column_of_gres_gives_gpus_too(text: str, gpus: object) -> None:
    assert parse_gres(text) == gpus


def test_the_old_column_of_gres_is_refused_where_it_has_no_count() -> None:
    with pytest.raises(FieldError, match="'gpu:many' in 'gpu:many': 'many' is no number"):
        parse_gres("gpu:many")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ["n1"]),
        ("gpu-2", ["gpu-2"]),
        ("n[1,4]", ["n1", "n4"]),
        ("n[1-3,7],m0[01-03]", ["m001", "m002", "m003", "n1", "n2", "n3", "n7"]),
        ("omni[1,10-12]", ["omni1", "omni10", "omni11", "omni12"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("None assigned", []),
        ("", []),
    ],
)
def test_node_lists_are_expanded(text: str, nodes: list[str]) -> None:
    assert sorted(expand_nodes(text)) == nodes
    assert NodeLists().expand(text) == expand_nodes(text)


@pytest.mark.parametrize(
    "text", ["n[1-", "n[3-1]", "n[a-b]", "@all", "n1 n2", "n[1-2]!n1", "n1,", "$(id)", "n[1-9/2]"]
)
def test_what_is_no_node_list_is_refused_and_no_group_is_looked_up(text: str) -> None:
    with pytest.raises(FieldError):
        expand_nodes(text)


@pytest.mark.parametrize(
    "text",
    ["n[1-999999999]", "r[1-99999]n[1-99999]", "n[1-60000],m[1-60000]", "n[0-" + "9" * 99 + "]"],
)
def test_a_short_text_cannot_stand_for_endless_nodes(text: str) -> None:
    with pytest.raises(FieldError, match="more than 65536 nodes"):
        expand_nodes(text)


def test_a_node_list_that_is_kept_is_as_good_as_a_fresh_one() -> None:
    lists = NodeLists()
    for _ in range(2):
        assert lists.expand("n[1-2]") == ("n1", "n2")
        assert lists.expand("n[1-300]") == expand_nodes("n[1-300]")
