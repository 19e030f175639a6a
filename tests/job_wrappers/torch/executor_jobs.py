"""Jobs for an executor, as a user would write them; some of them do what no job should."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import torch
from torch import nn

from job_wrappers.executor import Work


class LateCompiler(ModuleType):
    """Stands for torch's compiler, which optimisers import at their first step.

    That takes as long as importing torch, and longer than all that is trained here. What asks
    for more of it gets the real one.
    """

    def disable(self, function: Any, *_: Any, **__: Any) -> Any:
        return function

    def graph_break(self, *_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(self.__name__, None)
        return getattr(importlib.import_module(self.__name__), name)


if "torch._dynamo" not in sys.modules:
    sys.modules["torch._dynamo"] = torch._dynamo = LateCompiler("torch._dynamo")


def classifier(width: int = 32) -> Work:
    """Normalisation, dropout and Adam: buffers, random numbers and optimiser state."""
    model = nn.Sequential(
        nn.Linear(12, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, 4),
    )

    def batch(_round: int, _task: int) -> Any:
        return torch.randn(16, 12), torch.randint(4, (16,))

    def loss(model: nn.Module, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    return Work(model, lambda p: torch.optim.Adam(p, lr=1e-2), batch, loss)


def convolution(channels: int = 6) -> Work:
    """A small image network under momentum."""
    model = nn.Sequential(
        nn.Conv2d(3, channels, 3),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(channels * 9, 3),
    )

    def batch(round_: int, task: int) -> Any:
        torch.manual_seed(1000 * round_ + task)
        return {"images": torch.randn(8, 3, 8, 8), "labels": torch.randint(3, (8,))}

    def loss(model: nn.Module, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])

    return Work(model, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), batch, loss)


def transformer(layers: int = 1) -> Work:
    """Attention, whose output projection is never called, and embeddings tied to the output."""
    embedding = nn.Embedding(20, 16)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True), layers
    )
    output = nn.Linear(16, 20, bias=False)
    output.weight = embedding.weight
    model = nn.Sequential(embedding, encoder, output)

    def batch(_round: int, _task: int) -> Any:
        return torch.randint(20, (4, 7))

    def loss(model: nn.Module, batch: Any) -> Any:
        return nn.functional.cross_entropy(
            model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
        )

    return Work(model, lambda p: torch.optim.AdamW(p, lr=1e-3), batch, loss)


def vandal(how: str, in_round: int = 1, sleeps: str = "3600") -> Work:
    """A classifier that does something bad in its loss in a round, of which a daemon sleeps."""
    work = classifier()
    now = {"round": 0}

    def batch(round_: int, task: int) -> Any:
        now["round"] = round_
        return work.batch(round_, task)

    def loss(model: nn.Module, batch: Any) -> Any:
        if now["round"] == in_round:
            if how == "exits":
                os._exit(7)
            if how == "is killed":
                os.kill(os.getpid(), 9)
            if how == "raises":
                raise RuntimeError("its data is gone")
            if how == "hangs":
                time.sleep(3600)
            if how.startswith("leaves"):
                _leave_a_daemon(sleeps)
            if how == "leaves and exits":
                os._exit(7)
            if how == "forks":
                os.fork()
            if how == "is a float":
                return 1.0
            if how == "answers":
                _answer_twice()
            if how == "closes":
                _connection().close()
                time.sleep(3600)
            if how == "hands on":
                # It fails where it has the connection.
                look = f"[ ! -e /proc/self/fd/{_connection().fileno()} ]"
                subprocess.run(["sh", "-c", look], close_fds=False, check=True)
            if how == "is killed and held":
                held = [_connection().fileno()]
                subprocess.Popen(["sleep", "3600"], pass_fds=held)
                os.kill(os.getpid(), 9)
        found = work.loss(model, batch)
        return found * float("nan") if how == "diverges" and now["round"] == in_round else found

    return Work(work.model, work.optimizer, batch, loss)


def _leave_a_daemon(sleeps: str) -> None:
    """Start what a helper of a logger is: of no session, group or parent of this process."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", sleeps])
        os._exit(0)
    os.wait()


def _connection() -> Connection:
    (connection,) = (c for c in gc.get_objects() if isinstance(c, Connection))
    return connection


def _answer_twice() -> None:
    _connection().send_bytes(b'{"size": 1, "held": 0}')


def pooled() -> Work:
    """A classifier whose batches are made by processes that are ended with SIGTERM."""
    work = classifier()

    def batch(round_: int, task: int) -> Any:
        with get_context("fork").Pool(4) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
        return work.batch(round_, task)

    return Work(work.model, work.optimizer, batch, work.loss)


def no_work() -> object:
    """Return something else than asked for."""
    return "nothing"
