"""Files and streams: what can be read at all."""

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest

from hetsched_core.errors import InputError
from hetsched_core.traces.sacct import read_sacct
from tests.hetsched_core.traces.worlds import read_log

LOG = (
    b"JobID|State|Submit|Start|End|AllocTRES\n"
    b"1|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|gres/gpu=1\n"
    b"2.batch|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|gres/gpu=1\n"
    b"x|FAILED|2025-09-12T14:00:00|2025-09-12T14:10:00|2025-09-12T15:10:00|gres/gpu=1\n"
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


def test_the_report_grows_while_the_log_is_read() -> None:
    log = read_sacct(io.BytesIO(LOG))
    assert (log.report.lines, log.report.complete) == (0, False)
    next(log)
    assert (log.report.lines, log.report.complete) == (2, False)
    assert list(log) == []
    assert (log.report.lines, log.report.complete) == (4, True)


def test_unusable_lines_are_listed_when_asked_for_and_the_first_are_kept() -> None:
    listed: list[str] = []
    log = read_sacct(io.BytesIO(LOG + b"y\n" * 10), None, lambda line: listed.append(str(line)))
    list(log)
    assert len(listed) == 11
    assert listed[0].startswith("line 4: unreadable job id: JobID: 'x' is no job id")
    flaws = {flaw.flaw: flaw for flaw in log.report.flaws}
    assert sorted(flaw.count for flaw in flaws.values()) == [1, 10]
    assert all(len(flaw.first) <= 3 for flaw in flaws.values())


def test_a_stream_that_gives_a_byte_at_a_time_will_do() -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(1, size or 1))

    assert [allocation.job_id for allocation in read_sacct(Dripping(LOG))] == ["1"]
    assert [a.job_id for a in read_sacct(Dripping(gzip.compress(LOG)))] == ["1"]


def test_compressed_text_is_recognised_by_its_content() -> None:
    assert read_log(gzip.compress(LOG)).allocations == read_log(LOG).allocations
    assert read_log(gzip.compress(LOG) * 2).report.headers == 2


def test_a_compressed_file_that_is_cut_off_or_damaged_is_an_error() -> None:
    packed = gzip.compress(LOG * 1_000, mtime=0)
    damaged = packed[:200] + b"\0\0\0\0" + packed[204:]
    for data in (packed[: len(packed) // 2], packed[:5], damaged):
        with pytest.raises(InputError, match=r"damaged or cut off after line .*zcat"):
            list(read_sacct(io.BytesIO(data)))


@pytest.mark.parametrize(
    "data",
    [b"\x7fELF\x02\x01\x01\0\0\0", LOG.decode().encode("utf-16"), gzip.compress(b"a\0b")],
    ids=["program", "UTF-16", "packed"],
)
def test_a_binary_file_is_an_error(data: bytes) -> None:
    with pytest.raises(InputError, match=r"a binary file.*expected the text or JSON"):
        list(read_sacct(io.BytesIO(data)))


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        list(read_sacct(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        list(read_sacct(tmp_path))


def test_memory_does_not_grow_with_the_log() -> None:
    class Endless:
        """A log that is made while it is read, no two rows of which are alike."""

        def __init__(self, rows: int) -> None:
            self.rows = iter(range(rows))
            self.rest = LOG

        def read(self, size: int = -1, /) -> bytes:
            while len(self.rest) < size and (at := next(self.rows, None)) is not None:
                day = f"2025-09-{1 + at % 28:02}"
                self.rest += (
                    f"{at}|FAILED|{day}T14:00:00|{day}T14:10:00|{day}T15:10:00|"
                    f"cpu={at},gres/gpu=1\n".encode()
                )
            found, self.rest = self.rest[:size], self.rest[size:]
            return found

    def peak(rows: int) -> int:
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_sacct(Endless(rows))) == rows + 1
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # The 3,000 rows more would take some 3 MB if each were kept.
    assert peak(9_000) < peak(6_000) + 1_000_000


def test_a_given_stream_is_left_open() -> None:
    stream = io.BytesIO(LOG)
    list(read_sacct(stream))
    assert not stream.closed
