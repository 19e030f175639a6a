"""Spool files: what a job says goes into the layers once, and what it must not say is counted."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hetsched_core.records.spool import MAX_FILE_BYTES, MAX_LINE_BYTES, Reject, SpoolName
from hetsched_core.store import (
    FileReject,
    Ingested,
    Mode,
    SpoolRun,
    Store,
    StoreWriteError,
)
from hetsched_core.store.spool_files import MOST_LINES
from hetsched_core.types import Node
from tests.conftest import fill
from tests.hetsched_core.store.spool import (
    ME,
    N1,
    N2,
    NOW,
    RESNET,
    RUN,
    RUNS,
    Line,
    Spool,
    averaged,
    profiled,
    progress,
    start,
)


def take(
    store: Store, spool: Spool, runs: dict[tuple[str, int], SpoolRun] | None = None
) -> Ingested:
    return store.ingest(spool.files(), RUNS if runs is None else runs, NOW)


def speeds(store: Store, gpu_type: str = "a100") -> dict[tuple[str, int, int], tuple[int, float]]:
    """(node or nothing, nodes, GPUs) -> (count, mean) of all that was measured."""
    layers = store.layers([RESNET], [gpu_type])
    return {
        (layers.nodes[entity] if entity >= 0 else "", nodes, gpus): (count, mean)
        for rows in (layers.by_entity, layers.by_type)
        for entity, nodes, gpus, count, mean in zip(
            rows.entity.tolist(),
            rows.nodes.tolist(),
            rows.gpus.tolist(),
            rows.count.tolist(),
            rows.mean.tolist(),
            strict=True,
        )
    }


def reasons(ingested: Ingested) -> dict[str, int]:
    return {each.reason: each.lines for each in ingested.rejected}


# What is taken in ---------------------------------------------------------------------------------


def test_achieved_speed_goes_to_the_node_and_the_type_per_gpu(store: Store, spool: Spool) -> None:
    # A run that stands still has no speed.
    spool.add(start(), progress(10, 400.0), progress(20, 440.0), progress(30, 0.0))
    ingested = take(store, spool)
    assert (ingested.measurements, len(ingested.lines)) == (2, 4)
    assert ingested.rejected == ()
    assert speeds(store) == {("n1", 1, 4): (2, 105.0), ("", 1, 4): (2, 105.0)}
    assert store.layers([RESNET], ["a100"]).by_type.last_s.tolist() == [NOW]


def test_the_caller_gets_every_accepted_line_with_its_file_in_the_order_of_the_files(
    store: Store, spool: Spool
) -> None:
    loss = {"type": "loss", "t_s": 11, "training_round": 5, "loss": 2.5}
    checkpoint = {"type": "checkpoint", "t_s": 12, "samples": 900, "stopped_s": 0.4}
    end = {"type": "end", "t_s": 20, "samples": 20_000, "how": "stopped"}
    for job in ("8", "7"):
        spool.add(start(job=job), progress(10), loss, checkpoint, end, name=f"{job}.0.0.jsonl")
    ingested = take(store, spool, {("7", 0): RUN, ("8", 0): RUN})
    assert [name for name, _ in ingested.lines] == [
        SpoolName(job, 0, 0) for job in ("7", "8") for _ in range(5)
    ]
    kinds = [type(line).__name__ for _, line in ingested.lines]
    assert kinds == ["SpoolStart", "Progress", "Loss", "Checkpoint", "End"] * 2


def test_basic_times_go_to_the_type_that_the_scheduler_knows(store: Store, spool: Spool) -> None:
    spool.add(start(), profiled(5), profiled(9, forward_s=0.041))
    assert take(store, spool).measurements == 8
    theory = store.layers([RESNET], ["a100"]).theory
    assert theory.count.tolist() == [2]
    assert theory.forward_s.tolist() == [pytest.approx(0.036)]
    assert theory.batch_size.tolist() == [64]
    assert theory.modes[0, 0].tolist() == pytest.approx([1.0, 0.012, 0.000816497, 0.002], rel=1e-5)
    # Data times while running are added to those of the profile.
    spool.add(progress(10, data_s=[0.02], wait_s=[0.002]))
    take(store, spool)
    assert store.summary().data_times == 7


def test_a_distributed_run_is_measured_on_all_its_nodes(store: Store, spool: Spool) -> None:
    spool.add(start(), progress(10, 600.0))
    take(store, spool, {("7", 0): replace(RUN, pieces=((N1, 4), (N2, 2)))})
    assert speeds(store) == {(node, 2, 6): (1, 100.0) for node in ("n1", "n2", "")}


def test_only_rank_0_speaks_for_the_job_but_each_rank_for_its_loading(
    store: Store, spool: Spool
) -> None:
    for rank in range(2):
        spool.add(
            start(rank=rank),
            progress(10, data_s=[0.01], wait_s=[0.001]),
            name=f"7.0.{rank}.jsonl",
        )
    take(store, spool)
    assert speeds(store)["", 1, 4] == (1, 100.0)
    assert store.summary().data_times == 2


def test_over_several_gpu_types_each_rank_counts_for_the_type_of_its_host(
    store: Store, spool: Spool
) -> None:
    old = Node("n9", "v100", 4)
    mixed = {("7", 0): replace(RUN, pieces=((N1, 2), (old, 2)))}
    where = {"n1": "7.0.0.jsonl", "n9": "7.0.1.jsonl", "elsewhere": "7.0.2.jsonl"}
    for rank, (host, name) in enumerate(where.items()):
        times = profiled(9, nodes=2, forward_s=0.1 * (rank + 1))
        spool.add(start(rank=rank, host=host), progress(8), times, name=name)
    ingested = take(store, spool, mixed)
    assert ingested.rejected == ()
    theory = store.layers([RESNET], ["a100", "v100"]).theory
    assert theory.forward_s.tolist() == [pytest.approx(0.1), pytest.approx(0.2)]
    # The speed of the whole says little about either type.
    assert store.summary().measurements == 0


# Bandwidths ---------------------------------------------------------------------------------------

TWO_NODES = {("7", 0): replace(RUN, profile=None, pieces=((N1, 4), (N2, 4)))}


def bandwidths_of(store: Store, gpu_type: str = "a100") -> tuple[float, float]:
    """Parameters/s inside a node and between nodes; NaN where nothing was measured."""
    (found,) = store.bandwidths([gpu_type])
    return found.link, found.network


def test_bandwidths_are_fitted_to_what_a_run_of_the_site_has_averaged(
    store: Store, spool: Spool
) -> None:
    # W8 of Hops: 0.0375 s on four GPUs of a node are 2e9 parameters/s, 0.2 s between nodes 5e8.
    within = (averaged(s, gpus=4, nodes=1) for s in (0.0375, 0.0375, 60.0))
    spool.add(start(), *within, averaged(0.2), averaged(0.1, parameters=50_000_000))
    ingested = take(store, spool, TWO_NODES)
    assert (ingested.rejected, ingested.measurements) == ((), 2)
    assert ingested.bandwidths == {"a100"}
    # One disturbed all-reduce spoils none.
    assert bandwidths_of(store) == pytest.approx((2e9, 5e8))
    # The next run counts as much, however many lines it has.
    spool.add(start(run=1), averaged(0.1), name="7.1.0.jsonl")
    take(store, spool, TWO_NODES | {("7", 1): TWO_NODES["7", 0]})
    assert bandwidths_of(store) == pytest.approx((2e9, 7.5e8))
    link, network = store.bandwidth_sources()
    assert (link.source, link.runs, network.source, network.runs) == ("measured", 1, "measured", 2)


@pytest.mark.skipif(ME != 0, reason="only root can give a file away")
def test_no_other_user_tells_how_fast_gpus_average(store: Store, spool: Spool) -> None:
    os.chown(spool.add(start(), averaged(0.2), progress(10)), 4242, -1)
    run = replace(RUN, uid=4242, pieces=((N1, 4), (N2, 4)))
    ingested = take(store, spool, {("7", 0): run})
    assert [(each.uid, each.reason) for each in ingested.rejected] == [(4242, Reject.NOT_THE_SITE)]
    assert ingested.bandwidths == frozenset()
    assert math.isnan(bandwidths_of(store)[1])
    # What it tells of itself counts as ever.
    assert ingested.measurements == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (averaged(0.2, gpus=16), Reject.WRONG_IDENTITY),
        (averaged(0.2, gpus=3, nodes=3), Reject.WRONG_IDENTITY),
        (averaged(1e-9, parameters=10**15), Reject.OUT_OF_RANGE),
        (json.dumps(averaged(float("inf"))).encode() + b"\n", Reject.NOT_JSON),
    ],
)
def test_an_absurd_all_reduce_is_counted_and_the_others_stay(
    store: Store, spool: Spool, line: Line | bytes, reason: Reject
) -> None:
    spool.add(start(), line, averaged(0.2))
    assert reasons(take(store, spool, TWO_NODES)) == {reason: 1}
    assert bandwidths_of(store)[1] == pytest.approx(5e8)


def test_what_cpus_or_gpus_of_several_types_average_says_nothing_of_any_type(
    store: Store, spool: Spool
) -> None:
    spool.add(start(), averaged(0.2, backend="gloo"))
    spool.add(start(run=1), averaged(0.2), name="7.1.0.jsonl")
    mixed = replace(TWO_NODES["7", 0], pieces=((N1, 4), (Node("n9", "v100", 4), 4)))
    ingested = take(store, spool, TWO_NODES | {("7", 1): mixed})
    assert (ingested.rejected, ingested.bandwidths) == ((), frozenset())
    assert store.bandwidth_sources() == ()


# Once, and only once ------------------------------------------------------------------------------


def test_each_line_counts_once_in_this_process_and_after_it(path: Path, spool: Spool) -> None:
    spool.add(start(), progress(10, 400.0))
    with Store.open(path, Mode.WRITE) as store:
        assert take(store, spool).measurements == 1
        assert take(store, spool) == Ingested((), (), 0)
    # After a restart it is still known what was said.
    spool.add(progress(5), start())
    with Store.open(path, Mode.WRITE) as store:
        assert reasons(take(store, spool)) == {Reject.WRONG_ORDER: 2}
        spool.add(progress(20, 800.0))
        assert take(store, spool).measurements == 1
        assert speeds(store)["", 1, 4] == (2, 150.0)


@pytest.mark.parametrize(
    ("chunk", "restart"), [(100, False), (3000, False), (1500, True), (5000, True)]
)
def test_however_a_file_grows_the_same_is_taken_in(
    path: Path, spool: Spool, chunk: int, restart: bool
) -> None:
    junk = b"x" * (2 * MAX_LINE_BYTES) + b"\n"
    parts = [start(), progress(10, 400.0), junk, b"\n", progress(20, 800.0), junk, progress(30)]
    whole = b"".join(p if isinstance(p, bytes) else json.dumps(p).encode() + b"\n" for p in parts)
    total: Counter[str] = Counter()
    store = Store.open(path, Mode.WRITE)
    for at in range(0, len(whole), chunk):
        spool.add(whole[at : at + chunk])
        if restart:
            store.close()
            store = Store.open(path, Mode.WRITE)
        ingested = take(store, spool)
        total.update(reasons(ingested))
        total["measured"] += ingested.measurements
    store.close()
    assert total == {"measured": 3, Reject.LINE_TOO_LONG: 2, Reject.NOT_JSON: 1}


def test_a_long_file_is_taken_in_over_several_calls(store: Store, spool: Spool) -> None:
    lines = 2 * MOST_LINES + 10
    spool.add(start(), *(progress(at) for at in range(lines)))
    taken = [len(take(store, spool).lines) for _ in range(4)]
    assert taken == [MOST_LINES, MOST_LINES, 11, 0]


def test_a_requeued_job_is_another_run(store: Store, spool: Spool) -> None:
    spool.add(start(), progress(10, 400.0))
    spool.add(start(run=1), progress(10, 800.0), name="7.1.0.jsonl")
    runs = {("7", 0): RUN, ("7", 1): replace(RUN, pieces=((N2, 4),))}
    take(store, spool, runs)
    assert speeds(store)["n1", 1, 4] == (1, 100.0)
    assert speeds(store)["n2", 1, 4] == (1, 200.0)


def test_a_job_id_that_is_handed_out_again_is_read_from_the_start(path: Path, spool: Spool) -> None:
    with Store.open(path, Mode.WRITE) as store:
        file = spool.add(start(), progress(10, 400.0), progress(20, 400.0))
        take(store, spool)
        file.unlink()
        spool.add(start(nonce="another-nonce"), progress(10, 800.0))
        again = {("7", 0): replace(RUN, nonce="another-nonce")}
        assert take(store, spool, again).measurements == 1


# Forged -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (start(run=1), Reject.WRONG_IDENTITY),
        (start(nonce="guessed-nonce"), Reject.WRONG_NONCE),
        (progress(5), Reject.WRONG_ORDER),
    ],
)
def test_a_file_that_does_not_begin_as_the_job_would_is_rejected_whole(
    store: Store, spool: Spool, line: Line | bytes, reason: Reject
) -> None:
    spool.add(line, start(), progress(10), progress(20))
    ingested = take(store, spool)
    assert ingested.lines == ()
    assert sum(each.lines for each in ingested.rejected) == 4
    assert reason in reasons(ingested)
    assert store.summary().measurements == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps(progress(10, float("nan"))).encode() + b"\n", Reject.NOT_JSON),
        (progress(10, 1e-12), Reject.OUT_OF_RANGE),
        (profiled(10, gpus=400), Reject.WRONG_IDENTITY),
        (profiled(10, nodes=2), Reject.WRONG_IDENTITY),
        (b'{"type": "progress", ' * 200 + b"\n", Reject.LINE_TOO_LONG),
    ],
)
def test_an_absurd_line_is_counted_and_the_others_stay(
    path: Path, spool: Spool, line: Line | bytes, reason: Reject
) -> None:
    spool.add(start(), line, progress(20, 800.0))
    with Store.open(path, Mode.WRITE) as store:
        ingested = take(store, spool)
        assert reasons(ingested) == {reason: 1}
        assert ingested.rejected[0].uid == ME
        assert "7.0.0.jsonl" in ingested.rejected[0].example
        assert ingested.rejected[0].example.isprintable()
        assert speeds(store) == {("n1", 1, 4): (1, 200.0), ("", 1, 4): (1, 200.0)}
        assert take(store, spool).rejected == ()
    with Store.open(path, Mode.WRITE) as store:
        assert take(store, spool).rejected == ()
        assert store.summary().rejected == ((reason.value, 1),)


def link(spool: Spool) -> Path:
    real = spool.add(start(), progress(10), name="../7.0.0.jsonl")
    (spool.folder / "7.0.0.jsonl").symlink_to(real)
    return spool.folder


def pipe(spool: Spool) -> Path:
    os.mkfifo(spool.folder / "7.0.0.jsonl")
    return spool.folder


def folder(spool: Spool) -> Path:
    (spool.folder / "7.0.0.jsonl").mkdir()
    return spool.folder


def folder_of_the_user_is_a_link(spool: Spool) -> Path:
    spool.add(start(), progress(10))
    elsewhere = spool.folder.with_name("elsewhere")
    elsewhere.symlink_to(spool.folder)
    return elsewhere


@pytest.mark.parametrize("put", [link, pipe, folder, folder_of_the_user_is_a_link])
def test_what_is_no_file_is_not_opened(
    store: Store, spool: Spool, put: Callable[[Spool], Path]
) -> None:
    files = [put(spool) / "7.0.0.jsonl"]
    assert reasons(store.ingest(files, RUNS, NOW)) == {FileReject.NOT_A_FILE: 1}
    assert store.ingest(files, RUNS, NOW).rejected == ()
    assert store.summary().measurements == 0


@pytest.mark.skipif(ME != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused_under_the_name_of_its_owner(
    store: Store, spool: Spool
) -> None:
    os.chown(spool.add(start(), progress(10)), 4242, -1)
    ingested = take(store, spool)
    assert [(each.uid, each.reason) for each in ingested.rejected] == [(4242, FileReject.OWNER)]
    assert store.summary().measurements == 0


def test_a_job_of_another_user_is_not_measured_by_my_file(store: Store, spool: Spool) -> None:
    spool.add(start(), progress(10))
    ingested = take(store, spool, {("7", 0): replace(RUN, uid=ME + 1)})
    assert [(each.uid, each.reason) for each in ingested.rejected] == [(ME, FileReject.OWNER)]
    assert store.summary().measurements == 0


def test_files_of_no_known_run_are_counted_once_and_read_when_the_run_is_known(
    store: Store, spool: Spool
) -> None:
    spool.add(start(), progress(10))
    assert reasons(take(store, spool, {})) == {FileReject.UNKNOWN_RUN: 1}
    assert take(store, spool, {}).rejected == ()
    assert take(store, spool).measurements == 1


@pytest.mark.parametrize(
    "name", ["notes.txt", "7.0.jsonl", "7.00.0.jsonl", "..jsonl", "7.0.0.jsonl~"]
)
def test_files_of_other_names_are_not_opened(store: Store, spool: Spool, name: str) -> None:
    spool.add(b"anything", name=name)
    assert reasons(take(store, spool)) == {FileReject.NAME: 1}


def test_a_file_that_has_shrunk_is_not_read_a_second_time(path: Path, spool: Spool) -> None:
    file = spool.add(start(), progress(10), progress(20))
    with Store.open(path, Mode.WRITE) as store:
        take(store, spool)
        os.truncate(file, 100)
        assert reasons(take(store, spool)) == {FileReject.SHRUNK: 1}
    file.unlink()
    spool.add(start(), progress(10))
    with Store.open(path, Mode.WRITE) as store:
        assert reasons(take(store, spool)) == {FileReject.SHRUNK: 1}
        assert store.summary().measurements == 2


def test_a_file_that_is_not_there_yet_is_no_mistake(store: Store, spool: Spool) -> None:
    assert store.ingest([spool.folder / "7.0.0.jsonl"], RUNS, NOW) == Ingested((), (), 0)


def test_a_file_that_never_ends_is_read_to_its_limit(path: Path, spool: Spool) -> None:
    file = spool.add(start(), progress(10))
    os.truncate(file, 100 << 30)  # a hole: a line of zeros that never ends
    with Store.open(path, Mode.WRITE) as store:
        total: Counter[str] = Counter()
        for _ in range(MAX_FILE_BYTES // (1 << 20) + 3):
            ingested = take(store, spool)
            total.update(reasons(ingested))
            total["measured"] += ingested.measurements
        assert total == {"measured": 1, Reject.LINE_TOO_LONG: 1, Reject.FILE_TOO_LONG: 1}
    with Store.open(path, Mode.WRITE) as store:
        assert take(store, spool) == Ingested((), (), 0)


# When it cannot be written ------------------------------------------------------------------------


def test_lines_that_could_not_be_recorded_on_a_full_disk_are_recorded_later(
    small_disk: Callable[[str], Path], spool: Spool
) -> None:
    disk = small_disk("3m")
    spool.add(start(), *(progress(at, 400.0) for at in range(500)))
    with Store.open(disk / "store.duckdb", Mode.WRITE) as store:
        filler = fill(disk)
        for _ in range(2):
            with pytest.raises(StoreWriteError):
                take(store, spool)
        assert store.summary().measurements == 0
        filler.unlink()
        assert take(store, spool).measurements == 500
        assert take(store, spool).measurements == 0
        assert speeds(store)["", 1, 4] == (500, 100.0)
