"""A session in this process: what goes wrong around it, and what it measures."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from job_wrappers.session import SessionError, TrainingSession
from job_wrappers.session.phases import CpuMarks, PhaseTimer
from job_wrappers.session.run import Stopped
from tests.conftest import fill
from tests.job_wrappers.worlds import DEVICE


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Give back the signals that sessions take, which end with their process."""
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Slow:
    """A data set whose batches take a while to come."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4000

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, float]]:
        import torch

        time.sleep(self.seconds)
        return [(torch.full((3,), float(index)), 1.0) for index in indices]


def session_of(
    checkpoint: Path | None = None, *, features: int = 3, data: Any = None, workers: int = 0
) -> tuple[TrainingSession, Any, Any]:
    """A session, its model and its optimiser."""
    import torch

    model = torch.nn.Linear(features, 1, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loader = torch.utils.data.DataLoader(
        Slow(0.0) if data is None else data, batch_size=4, num_workers=workers
    )
    return TrainingSession(model, optimizer, loader, checkpoint=checkpoint), model, optimizer


def train(session: TrainingSession, model: Any, optimizer: Any, steps: int) -> list[float]:
    """Train for some steps; return the first number of the samples of each batch."""
    seen = []
    for x, _ in session:
        seen.append(x[:, 0].tolist())
        model(x.to(DEVICE)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if len(seen) == steps:
            break
    return [value for batch in seen for value in batch]


def test_a_directory_that_nothing_can_be_written_to_is_told_before_any_training(
    small_disk: Callable[[str], Path],
) -> None:
    disk = small_disk("1m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for path in (disk / "checkpoints", disk):
        with pytest.raises(
            SessionError, match=r"no checkpoint can be written to .*Read-only"
        ) as no:
            session_of(path)
        assert str(path) in str(no.value)


def test_a_full_disk_costs_a_checkpoint_and_no_training_and_an_end_that_is_lost_is_told(
    small_disk: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    disk = small_disk("1m")
    session, model, optimizer = session_of(disk / "checkpoints")
    filler = fill(disk)
    train(session, model, optimizer, 2)
    session.save()
    assert "there is none: a restart begins anew" in capfd.readouterr().err
    filler.unlink()
    train(session, model, optimizer, 1)
    session.save()
    fill(disk)
    train(session, model, optimizer, 2)
    session.finish()
    said = capfd.readouterr().err
    assert "step 5 could not be written" in said
    assert "training is over after 5 steps, and its end is NOT saved" in said
    assert [path.name for path in (disk / "checkpoints").glob("step-*")] == ["step-000000000003"]
    (disk / "filler").unlink()
    with pytest.raises(SessionError, match="of another model"):
        session_of(disk / "checkpoints", features=5)
    again, model, optimizer = session_of(disk / "checkpoints")
    assert (again.resumed, again.steps, again.samples) == (True, 3, 12)
    again.finish()


def test_whatever_keeps_a_checkpoint_from_being_written_it_is_not_said_to_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def odd(*_: object) -> None:
        raise RuntimeError("odd")

    session, model, optimizer = session_of(tmp_path)
    train(session, model, optimizer, 2)
    session.save()
    monkeypatch.setattr("job_wrappers.session.checkpoints.pieces_of", odd)
    for x, _ in session:
        model(x.to(DEVICE)).sum().backward()
        optimizer.step()
        if session.steps == 2:
            signal.raise_signal(signal.SIGTERM)
            break
    with pytest.raises(Stopped):
        train(session, model, optimizer, 2)
    said = capfd.readouterr().err
    assert "could not be written: odd; the one before still counts" in said
    assert "NOT saved" in said
    assert [path.name for path in tmp_path.glob("*step-*")] == ["step-000000000002"]


def test_told_once_to_save_it_saves_once_and_trains_on(tmp_path: Path) -> None:
    session, model, optimizer = session_of(tmp_path)
    signal.raise_signal(signal.SIGUSR1)
    train(session, model, optimizer, 4)
    session.wait()
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000000001"]
    session.finish()


@pytest.mark.parametrize(
    ("name", "told", "why"),
    [
        ("WORLD_SIZE", "2", "WORLD_SIZE=2, .*init_process_group"),
        ("WORLD_SIZE", "two", "WORLD_SIZE=two, .*init_process_group"),
        ("HETSCHED_LR_SCALING", "cubic", "'cubic': expected one of linear, sqrt, none"),
    ],
)
def test_an_environment_that_makes_no_sense_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str, why: str
) -> None:
    monkeypatch.setenv(name, told)
    with pytest.raises(SessionError, match=why):
        session_of()


@pytest.mark.parametrize(("workers", "pattern"), [(0, 2), (1, 1)])
def test_whether_loading_runs_beside_training_is_found_out(workers: int, pattern: int) -> None:
    session, model, optimizer = session_of(data=Slow(0.02), workers=workers)

    optimizer.register_step_pre_hook(lambda *_: time.sleep(0.03))
    train(session, model, optimizer, 24)
    profile = session.report.profile
    assert profile is not None
    assert profile.pattern == pattern
    assert len(profile.data_s) == profile.iterations == 20
    assert profile.update_s >= 0.03
    # Beside training, the forward pass hides nearly nothing of it.
    assert min(profile.data_s) > (0.02 if workers == 0 else 0.01)
    session.finish()


def test_of_short_steps_so_many_are_measured_as_a_line_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks: list[int] = []
    session, model, optimizer = session_of()
    mark = CpuMarks.mark

    def counted() -> float:
        marks.append(session.steps)
        return mark()

    told: dict[str, Any] = {}
    telling = SimpleNamespace(tell=lambda kind, **values: told.update({kind: values}))
    monkeypatch.setattr(CpuMarks, "mark", staticmethod(counted))
    with monkeypatch.context() as with_spool:
        with_spool.setattr(session.report, "_telling", telling)
        train(session, model, optimizer, 500)
        session.report._due_s = 0.0
        train(session, model, optimizer, 3)
    # Of 500 steps that take far less than 5 s, those that were profiled and few others.
    assert len({step for step in marks if step > 30}) < 100
    data_s, wait_s = told["progress"]["data_s"], told["progress"]["wait_s"]
    assert 1 <= len(data_s) == len(wait_s) < 100
    assert all(0 < each < 1 for each in data_s)
    session.finish()


def resting() -> Callable[[float], object]:
    """What keeps the device busy for some seconds; on a GPU the call returns at once."""
    import torch

    if DEVICE == "cpu":
        return time.sleep
    torch.cuda._sleep(1)  # once before it is timed
    torch.cuda.synchronize()
    begun, cycles = time.perf_counter(), 100_000_000
    torch.cuda._sleep(cycles)
    torch.cuda.synchronize()
    per_s = cycles / (time.perf_counter() - begun)
    # A clock may rise meanwhile, and then the same cycles take less.
    return lambda seconds: torch.cuda._sleep(int(1.1 * seconds * per_s))


def test_the_phases_of_a_step_add_up_to_it() -> None:
    import torch

    model = torch.nn.Linear(3, 1, device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, rest = torch.ones(4, 3, device=DEVICE), resting()
    model(inputs).sum().backward()  # what is made at the first use of a device is no step's
    timer = PhaseTimer(torch, model, optimizer)
    timer.look()
    timer.settle()
    timer.begin()
    begun = time.perf_counter()
    rest(0.01)
    timer.got_data()
    loss = model(inputs).sum()
    rest(0.02)
    loss.backward()
    rest(0.03)
    optimizer.step()
    rest(0.04)
    assert timer.stepped
    timer.end_step()
    timer.settle()
    whole_s = time.perf_counter() - begun
    (step,) = timer.finished()
    assert list(timer.finished()) == []
    found = (step.data_s, step.forward_s, step.backward_s, step.wait_s, step.update_s)
    least = (0.01, 0.02, 0.0, 0.03, 0.04)
    assert all(phase > slept for phase, slept in zip(found, least, strict=True)), found
    assert sum(found) == pytest.approx(step.whole_s)
    assert step.whole_s == pytest.approx(whole_s, abs=0.005)


def test_an_evaluation_between_steps_is_no_step_of_its_own() -> None:
    session, model, optimizer = session_of()
    import torch

    for count, (x, _) in enumerate(session):
        there = x.to(DEVICE)
        with torch.no_grad():
            model(there)
        model(there)  # a forward pass that is never followed by a backward pass
        model(there).sum().backward()
        optimizer.step()
        if count == 4:
            break
    assert (session.steps, session.samples) == (5, 20)
    session.finish()
