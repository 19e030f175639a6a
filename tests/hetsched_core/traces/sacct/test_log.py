"""Files and streams: what can be read at all."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import read_sacct
from tests.hetsched_core.traces.worlds import Endless, read_log

WHEN = b"2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|gres/gpu=1\n"
LOG = b"JobID|State|Submit|Start|End|AllocTRES\n" + b"".join(
    job + b"|FAILED|" + WHEN for job in (b"1", b"2.batch", b"x")
)


def test_a_file_is_read_by_its_path_and_named_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_bytes(LOG)
    log = read_sacct(path)
    assert [allocation.job_id for allocation in log] == ["1"]
    assert log.report.source == str(path)
    assert str(log.report) == (
        f"{path}: 4 lines: 1 GPU allocation, 0 jobs without GPU, 0 never started, 1 step, "
        "1 header, 0 blank, 1 unusable"
    )


def test_the_report_grows_while_a_stream_is_read_which_is_left_open() -> None:
    stream = io.BytesIO(LOG)
    log = read_sacct(stream)
    assert (log.report.lines, log.report.complete) == (0, False)
    next(log)
    assert (log.report.lines, log.report.complete) == (2, False)
    assert list(log) == []
    assert (log.report.lines, log.report.complete) == (4, True)
    assert not stream.closed


def test_unusable_lines_are_listed_when_asked_for_and_the_first_are_kept() -> None:
    listed: list[str] = []
    log = read_sacct(io.BytesIO(LOG + b"y\n" * 10), None, lambda line: listed.append(str(line)))
    list(log)
    assert len(listed) == 11
    assert listed[0].startswith("line 4: unreadable job id: JobID: 'x' is no job id")
    assert sorted(seen.count for seen in log.report.flaws.values()) == [1, 10]
    assert all(len(seen.first) <= 3 for seen in log.report.flaws.values())


def test_compressed_text_and_a_stream_that_gives_a_byte_at_a_time_will_do() -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(1, size or 1))

    plain = read_log(LOG).allocations
    assert read_log(gzip.compress(LOG)).allocations == plain
    assert read_log(gzip.compress(LOG) * 2).report.headers == 2
    for data in (LOG, gzip.compress(LOG)):
        assert list(read_sacct(Dripping(data))) == plain


PACKED = gzip.compress(LOG * 1_000, mtime=0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (PACKED[: len(PACKED) // 2], r"damaged or cut off after line .*zcat"),
        (PACKED[:5], r"damaged or cut off after line .*zcat"),
        (PACKED[:200] + b"\0\0\0\0" + PACKED[204:], r"damaged or cut off after line .*zcat"),
        (b"\x7fELF\x02\x01\x01\0\0\0", r"a binary file.*expected the text or JSON"),
        (LOG.decode().encode("utf-16"), r"a binary file.*expected the text or JSON"),
        (gzip.compress(b"a\0b", mtime=0), r"a binary file.*expected the text or JSON"),
    ],
    ids=["half", "five bytes", "damaged", "program", "UTF-16", "packed"],
)
def test_a_damaged_or_binary_file_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        list(read_sacct(io.BytesIO(data)))


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.txt", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(InputError, match=f"cannot be read: {why}"):
            list(read_sacct(path))


def test_memory_does_not_grow_with_the_log() -> None:
    def row(at: int) -> bytes:
        when = WHEN.removesuffix(b"\n").replace(b"-12T", b"-%02dT" % (1 + at % 28))
        return b"%d|FAILED|%s,cpu=%d\n" % (at, when, at)

    def peak(rows: int) -> int:
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_sacct(Endless(LOG, map(row, range(rows))))) == rows + 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # The 3,000 rows more would take some 3 MB if each were kept.
    assert peak(9_000) < peak(6_000) + 1_000_000
