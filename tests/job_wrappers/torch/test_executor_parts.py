"""What an executor's processes are made of, each beside plain torch."""

from __future__ import annotations

import copy
import errno
import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from job_wrappers import tensor_file
from job_wrappers.executor import TaskJob
from job_wrappers.executor.cleaning import Cleaner
from job_wrappers.executor.executor import kept
from job_wrappers.executor.layers import ModelLayers
from job_wrappers.executor.rounds import GONE_S, Advance, Rounds, StatesGoneError
from job_wrappers.executor.trainer import Trainer
from job_wrappers.states import mapped
from tests.job_wrappers.worlds import DEVICE, same

JOBS = str(Path(__file__).with_name("executor_jobs.py"))


def job(make: str, rounds: int = 3, scale: int = 1, **arguments: Any) -> TaskJob:
    return TaskJob(make, f"{JOBS}:{make}", rounds, scale, seed=3, arguments=arguments)


def trainer(folder: Path, make: str, rounds: int = 3, scale: int = 1, **arguments: Any) -> Trainer:
    return Trainer(job(make, rounds, scale, **arguments), folder, DEVICE, 0.0)


def do(trainer: Trainer, round_: int, number: int = 0) -> float | None:
    trained, made = trainer.train(round_, number)
    trainer.store(made)
    return trained.loss


def plain(made: TaskJob) -> dict[str, Any]:
    """The same job in plain torch: gradients of a round's tasks, their mean, one step."""
    work = made.work()
    device = torch.device(DEVICE)
    optimizer = work.optimizer(list(work.model.parameters()))
    for round_ in range(made.rounds):
        start = {name: b.clone() for name, b in work.model.named_buffers()}
        gradients: list[dict[str, Any]] = []
        buffers: list[dict[str, Any]] = []
        for task in range(made.scale):
            for name, buffer in work.model.named_buffers():
                buffer.copy_(start[name])
            made.begin_random("batch", round_, task)
            batch = work.batch(round_, task)
            made.begin_random("task", round_, task)
            work.model.zero_grad()
            # The optimiser works on the host, whatever the device.
            there = copy.deepcopy(work.model).to(device)
            work.loss(there, mapped(batch, lambda leaf: leaf.to(device))).backward()
            gradients.append({n: p.grad.cpu() for n, p in there.named_parameters()})
            buffers.append({n: b.cpu() for n, b in there.named_buffers()})
        for name, parameter in work.model.named_parameters():
            parameter.grad = mean([g[name] for g in gradients])
        for name, buffer in work.model.named_buffers():
            whole = not buffer.is_floating_point()
            added = sum(b[name] - start[name] for b in buffers)
            buffer.copy_(start[name] + added if whole else mean([b[name] for b in buffers]))
        optimizer.step()
    return {"model": work.model.state_dict(), "optimizer": optimizer.state_dict()}


def mean(parts: list[torch.Tensor]) -> torch.Tensor:
    doubles = [part.double() for part in parts]
    away = torch.stack([part - doubles[0] for part in doubles]).sum(0) / len(parts)
    return (doubles[0] + away).to(parts[0].dtype)


@pytest.mark.parametrize(
    ("make", "order"),
    [
        *(("classifier", order) for order in itertools.permutations(range(3))),
        ("convolution", (0, 2, 1)),
        ("transformer", (2, 0, 1)),
    ],
)
def test_the_tasks_of_a_round_may_run_anywhere_in_any_order(
    tmp_path: Path, make: str, order: tuple[int, ...]
) -> None:
    several = [trainer(tmp_path, make, 2, 3) for _ in range(2)]
    for round_ in range(2):
        for at, task in enumerate(order):
            # Neither ends both rounds: what the optimiser knows passes through the folder.
            do(several[(at + round_) % 2], round_, task)
            if order[0] == 2:
                several[0].layers.evict()
    assert same(Rounds(tmp_path / make, 3).state(2), plain(job(make, 2, 3)))


def test_a_round_ends_when_all_its_gradients_are_there_and_no_task_is_done_again(
    tmp_path: Path,
) -> None:
    own, other = (trainer(tmp_path, "classifier", 2, 2) for _ in range(2))
    assert do(own, 0, 0) is not None
    assert do(other, 0, 0) is None
    rounds = Rounds(tmp_path / "classifier", 2)
    assert rounds.newest() == 0
    with pytest.raises(TimeoutError, match="round 1 has not begun"):
        own.train(1, 0)
    do(own, 0, 1)
    assert rounds.newest() == 1
    before = rounds.state(1)
    assert do(own, 0, 1) is None
    assert same(rounds.state(1), before)


def test_who_waits_for_a_round_begins_it_where_the_last_task_died_before(tmp_path: Path) -> None:
    one, other = (trainer(tmp_path, "classifier", 2, 2) for _ in range(2))
    do(one, 0, 0)
    _, made = one.train(0, 1)
    Rounds(tmp_path / "classifier", 2).put(*made)  # and then it dies
    assert do(other, 1, 0) is not None


def test_who_is_overtaken_while_it_reads_the_gradients_goes_on_in_the_round_that_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = trainer(tmp_path, "classifier", 2, 2)
    do(own, 0, 0)
    _, made = own.train(0, 1)
    rounds, read = Rounds(tmp_path / "classifier", 2), tensor_file.read
    rounds.put(*made)
    others: list[Path] = []

    def overtaken(path: Path) -> Any:
        if path.name.endswith("task-001.gradient") and not others:
            others.append(path)
            assert rounds.advance(0, lambda state, _: state) is Advance.OWN
            assert not path.exists()
        return read(path)

    monkeypatch.setattr(tensor_file, "read", overtaken)
    assert rounds.advance(0, lambda state, _: state) is Advance.BEGUN
    assert len(others) == 1


def test_a_damaged_gradient_is_removed_for_its_task_to_run_again(tmp_path: Path) -> None:
    own = trainer(tmp_path, "classifier", 1, 2)
    do(own, 0, 0)
    path = next((tmp_path / "classifier").glob("*.gradient"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"is damaged: .*; it was removed$"):
        do(own, 0, 1)
    for task in range(2):
        do(own, 0, task)
    assert same(Rounds(tmp_path / "classifier", 2).state(1), plain(job("classifier", 1, 2)))


def test_a_file_system_that_is_full_for_a_while_costs_nothing_but_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Counter[str]()
    sync = os.fsync

    def full(file: int) -> None:
        name = Path(f"/proc/self/fd/{file}").readlink().name
        refused[name] += 1
        if refused[name] <= 2 and name.endswith(".part"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    own = trainer(tmp_path, "classifier", 2)
    for round_ in range(2):
        do(own, round_)
    # Three states and two gradients.
    assert sum(name.endswith(".part") for name in refused) == 5
    assert same(Rounds(tmp_path / "classifier", 1).state(2), plain(job("classifier", 2)))
    said = capsys.readouterr().err
    assert f"{tmp_path}/classifier/round-000000.task-000.gradient: No space left" in said
    assert said.count("\n") == 5


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_a_file_system_that_is_away_for_a_while_whatever_is_read_costs_nothing_but_the_while(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each call that reads, or removes what was read, is refused at first.
    refused = Counter[str]()

    def away(module: Any, name: str) -> None:
        does = getattr(module, name)

        def refuses(path: Any, *given: Any, **more: Any) -> Any:
            if tmp_path in Path(path).parents:
                refused[name] += 1
                if refused[name] % 3 == 1:
                    raise OSError(number, os.strerror(number))
            return does(path, *given, **more)

        monkeypatch.setattr(module, name, refuses)

    for module, name in ((os, "listdir"), (Path, "stat"), (tensor_file, "read"), (Path, "unlink")):
        away(module, name)
    own = trainer(tmp_path, "classifier", 2, 2)
    for round_ in range(2):
        for task in range(2):
            do(own, round_, task)
    assert min(refused.values()) > 3
    assert same(Rounds(tmp_path / "classifier", 2).state(2), plain(job("classifier", 2, 2)))


def test_states_are_not_gone_while_the_folder_of_all_trainings_is_away(tmp_path: Path) -> None:
    away = tmp_path / "away"
    folder = tmp_path / "rounds"
    own, other = (Trainer(job("classifier", 3), folder, DEVICE, 60.0) for _ in range(2))
    do(own, 0)
    _, made = own.train(1, 0)
    acts: list[Callable[[], object]] = [lambda: own.store(made), lambda: do(other, 2)]
    for act in acts:
        folder.rename(away)
        comes = threading.Timer(GONE_S + 1.0, away.rename, [folder])
        comes.start()
        act()
        comes.join()
    assert same(Rounds(folder / "classifier", 1).state(3), plain(job("classifier", 3)))


@pytest.mark.parametrize("how", ["states", "folder"])
def test_states_that_are_gone_are_told_at_once(tmp_path: Path, how: str) -> None:
    own = Trainer(job("classifier"), tmp_path, DEVICE, 60.0)
    do(own, 0)
    for path in (tmp_path / "classifier").iterdir():
        path.unlink()
    if how == "folder":
        (tmp_path / "classifier").rmdir()
    for round_ in (1, 0):
        with pytest.raises(StatesGoneError, match="files are gone: rounds/classifier/ has none"):
            do(own, round_)


def test_a_model_that_leaves_the_device_is_overwritten_there() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    layers = ModelLayers(model, DEVICE)
    layers.load()
    layers.wait()
    there = [tensor.view(-1) for tensor in layers.tensors()]
    assert any(bool(tensor.any()) for tensor in there)
    layers.evict()
    assert not any(bool(tensor.any()) for tensor in there)
    assert layers.tensors() == []
    assert not layers.resident
    assert all(p.numel() == 0 for p in model.parameters())


def network_with_a_child_that_is_never_called() -> nn.Sequential:
    idle = nn.Sequential(nn.Linear(3, 3))
    child = idle[0]
    idle.forward = lambda x: nn.functional.linear(x, child.weight, child.bias)
    return nn.Sequential(nn.Linear(3, 3), idle, nn.Linear(3, 3))


def test_a_forward_pass_waits_for_each_layer_and_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = network_with_a_child_that_is_never_called()
    inputs = torch.randn(2, 3, device=DEVICE)
    expected = model.to(DEVICE)(inputs)
    model.cpu()
    layers = ModelLayers(model, DEVICE)
    original = torch.Tensor.copy_
    began = [threading.Event() for _ in model]
    copied: list[torch.Tensor] = []
    late: list[int] = []
    patience_s = [0.0, 20.0]

    def slowly(self: torch.Tensor, *given: Any, **more: Any) -> torch.Tensor:
        # A layer comes only after the one before has been called.
        at = len(copied) // 2
        if at and not began[at - 1].wait(patience_s[0]):
            late.append(at)
        copied.append(self)
        return original(self, *given, **more)

    for event, module in zip(began, model, strict=True):
        module.register_forward_hook(lambda *_, event=event: event.set())
    monkeypatch.setattr(torch.Tensor, "copy_", slowly)
    while patience_s:
        copied.clear()
        late.clear()
        layers.load()
        with layers.forward_pass():
            assert torch.equal(model(inputs), expected)
        # The first pass finds out who needs what, and has waited for everything.
        assert late == ([1, 1, 2, 2] if patience_s.pop(0) == 0.0 else [])
        layers.evict()
        for event in began:
            event.clear()


def test_an_error_of_the_transfer_reaches_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = ModelLayers(nn.Linear(3, 3), DEVICE)

    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("the device is full")

    monkeypatch.setattr(torch.Tensor, "copy_", fails)
    layers.load()
    with pytest.raises(MemoryError, match="full"), layers.forward_pass():
        pass
    with pytest.raises(MemoryError, match="full"):
        layers.evict()


def saving(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(torch.full_like(x, 3.0))
    return x.sum() * 3


# Gives as its gradient what it has saved, as fused losses do.
Fused: Any = type(
    "Fused",
    (torch.autograd.Function,),
    {
        "forward": staticmethod(saving),
        "backward": staticmethod(lambda ctx, _: ctx.saved_tensors[0]),
    },
)


def test_a_gradient_that_was_saved_in_the_forward_pass_is_not_cleaned() -> None:
    weight = torch.randn(4, device=DEVICE, requires_grad=True)
    with Cleaner().watch():
        out = Fused.apply(weight * 2)
    out.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0] * 4


def test_cleaning_changes_no_gradient() -> None:
    models: list[tuple[nn.Module, Any]] = [
        (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 6)),
        (nn.Sequential(nn.Linear(6, 8), nn.Sigmoid(), nn.LayerNorm(8)), torch.randn(4, 6)),
        (nn.GRU(6, 5, 2, batch_first=True), torch.randn(2, 7, 6)),
        (nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0), torch.randn(5, 2, 6)),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2)),
            torch.randn(2, 1, 8, 8),
        ),
    ]
    for made, drawn in models:
        model, inputs = made.to(DEVICE), drawn.to(DEVICE)
        gradients = []
        for watched in (False, True):
            model.zero_grad()
            cleaner = Cleaner()
            cleaner.spare([*model.parameters(), inputs])
            with cleaner.watch() if watched else nullcontext():
                out = model(inputs)
            out = out[0] if isinstance(out, tuple) else out
            out.square().exp().sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            assert (cleaner.cleaned > 0, cleaner.held) == (watched, 0)
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True)), model


def test_what_a_layer_kept_is_overwritten_as_soon_as_its_backward_pass_is_done() -> None:
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(50, 50), nn.Tanh()) for _ in range(4)))
    cleaner = Cleaner()
    layers.to(DEVICE)
    cleaner.spare(layers.parameters())
    seen: list[tuple[int, int]] = []
    inputs = torch.randn(8, 50, device=DEVICE, requires_grad=True)
    with cleaner.watch():
        out = inputs
        for layer in layers:
            out = layer(out)
            out.register_hook(lambda _: seen.append((cleaner.cleaned, cleaner.held)))
        loss = out.sum()
    held = cleaner.held
    del out, layer
    loss.backward()
    # Before each layer's backward pass those of the layers behind it are clean already. The output
    # of a layer is an input of the next, so it goes with its own.
    one = 8 * 50 * 4
    assert seen == [(at * one, held - at * one) for at in range(4)]
    assert (cleaner.cleaned, cleaner.peak) == (4 * one, held)


def lent(memory: torch.Tensor) -> torch.Tensor:
    """The same memory as another tensor's, which has no part in who holds it."""
    if memory.is_cuda:
        at = {"data": (memory.data_ptr(), False), "shape": memory.shape, "typestr": "<f4"}
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__={**at, "version": 2}))
    return torch.from_numpy(memory.numpy())


def test_the_content_of_what_was_kept_is_gone_not_only_its_pointer() -> None:
    # Memory of ours, that can still be looked at when torch has given it up.
    memory = torch.ones(8, device=DEVICE)
    weight = torch.ones(8, device=DEVICE, requires_grad=True)
    with Cleaner().watch():
        out = (lent(memory) * weight).sum()
    assert memory.all()
    out.backward()
    assert not memory.any()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0] * 8


def test_parameters_and_what_the_job_still_holds_are_not_overwritten() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Tanh()).to(DEVICE)
    before = [p.detach().clone() for p in model.parameters()]
    inputs = torch.randn(3, 5, device=DEVICE)
    cleaner = Cleaner()
    with cleaner.watch():
        out = model(inputs)
    copy = out.detach().clone()
    out.sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(out, copy)


def everything(ahead: list[str], sizes: dict[str, int], working: int, limit: int) -> list[str]:
    """Of all ways to keep jobs beside the first, the one that serves the nearest tasks best."""
    order = list(dict.fromkeys(ahead))
    first, others = order[0], order[1:]
    if sizes[first] + working > limit:
        return []
    ways = [
        way
        for n in range(len(others) + 1)
        for way in itertools.combinations(others, n)
        if sizes[first] + working + sum(sizes[j] for j in way) <= limit
    ]
    return [first, *max(ways, key=lambda way: [job in way for job in others])]


@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12),
    st.lists(st.integers(1, 50), min_size=6, max_size=6),
    st.integers(0, 50),
    st.integers(0, 150),
)
def test_models_are_kept_that_come_next_as_far_as_there_is_room(
    ahead: list[str], sizes: list[int], working: int, limit: int
) -> None:
    of = dict(zip("abcdef", sizes, strict=True))
    found = kept(ahead, of, working, limit)
    assert found == everything(ahead, of, working, limit)
    assert not found or sum(of[job] for job in found) + working <= limit
    # While it is not known what a task takes, it has the device to itself.
    assert kept(ahead, of, None, limit) == ([ahead[0]] if of[ahead[0]] <= limit else [])
    assert kept(ahead, of, working, None) == list(dict.fromkeys(ahead))


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda: TaskJob("../a", "m:f", 1), "expected letters"),
        (lambda: TaskJob("a", "m:f", 0), "1 round or more"),
        (lambda: TaskJob("a", "m:f", 1, 0), "1 round or more"),
        (lambda: TaskJob("a", f"{JOBS}:no_work", 1).work(), "returned no Work"),
        (lambda: TaskJob("a", f"{JOBS}:absent", 1).work(), "has no function 'absent'"),
        (
            lambda: ModelLayers(nn.Linear(3, 3), DEVICE).put({"weight": torch.zeros(2, 2)}),
            "does not fit",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        refused()


FORKS = """
import os, signal, time
from job_wrappers.executor import worker
signal.signal(signal.SIGTERM, worker._deaf)
worker._mind_forks()
lived = 0
for _ in range(50):
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        os._exit(7)
    os.kill(child, signal.SIGTERM)
    lived += not os.WIFSIGNALED(os.waitpid(child, 0)[1])
os.kill(os.getpid(), signal.SIGTERM)
print(lived, "lived")
"""


def test_what_is_forked_ends_by_a_signal_however_soon_that_comes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "0 lived\n"
