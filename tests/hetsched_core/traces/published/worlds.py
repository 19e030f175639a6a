"""Published traces read from text, every line in exactly one class."""

from io import BytesIO

from hetsched_core.traces.lines import read_head
from hetsched_core.traces.published import PublishedLog, is_published, read_published
from hetsched_core.traces.sacct import SacctOptions, parse_zone

UTC = SacctOptions(zone=parse_zone("UTC"))


def read(*texts: str | bytes, options: SacctOptions = UTC) -> PublishedLog:
    """Read files together; return what the last one gave."""
    files = []
    for at, text in enumerate(texts):
        file = BytesIO(text if isinstance(text, bytes) else text.encode())
        assert is_published(read_head(file, 1 << 16))
        files.append((f"file {at}", file))
    refused: list[str] = []
    logs = read_published(files, options, refused.append)
    for log in logs:
        report = log.report
        classes = (report.headers, report.blank, report.steps, report.never_started, report.no_gpu)
        assert report.lines == sum(classes) + report.used + report.unusable
        assert report.used == len(log.runs)
    assert sum(log.report.unusable for log in logs) == len(refused)
    return logs[-1]


def why(log: PublishedLog) -> str:
    """Why the one line that cannot be used cannot be used."""
    assert log.report.unusable == 1
    ((flaw, examples),) = log.report.flaws.items()
    assert examples.first[0].flaw is flaw
    return str(examples.first[0])
