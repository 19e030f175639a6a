"""Small real models of six kinds, and what a user's script would train them on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset


class Images(Dataset[Any]):
    """Random images with a class, which cost `load_s` to get; one in four `slow_s` more."""

    def __init__(self, shape: tuple[int, ...], classes: int, load_s: float, slow_s: float) -> None:
        self._shape, self._classes = shape, classes
        self._load_s, self._slow_s = load_s, slow_s

    def __len__(self) -> int:
        return 100_000

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        # A whole batch at once: a store answers it, or has to fetch it.
        slow = self._slow_s if random.Random(indices[0]).random() < 0.25 else 0.0
        if self._load_s + slow:
            time.sleep(self._load_s + slow)
        generator = torch.Generator().manual_seed(indices[0])
        images = torch.randn(len(indices), *self._shape, generator=generator)
        return [(image, at % self._classes) for at, image in zip(indices, images, strict=True)]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.__getitems__([index])[0]


class Tokens(Dataset[Any]):
    """Random sequences of tokens, and the class of each."""

    def __init__(self, words: int, length: int, classes: int) -> None:
        self._words, self._length, self._classes = words, length, classes

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, self._words, (self._length,), generator=generator)
        return tokens, index % self._classes


class Convolution(nn.Module):
    """Three stages of convolutions, as ResNets have them, without their depth."""

    def __init__(self) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            stages += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after)]
            stages += [nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()]
        self.body = nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


class Transformer(nn.Module):
    """Two encoder layers over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 256, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    """An LSTM over embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.body = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.body(self.embed(x))[0][:, -1])


class EmbeddingHeavy(nn.Module):
    """A great table of which each step uses little, and a small network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(40_000, 32)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.table(x))


class Tiny(nn.Module):
    """A network so small that its steps are mostly Python."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 10))

    def forward(self, x: torch.Tensor) -> Any:
        return self.body(x)


@dataclass(frozen=True)
class Case:
    """A model, what it is trained on, and the batch of each process."""

    model: Callable[[], nn.Module]
    data: Callable[[], Dataset[Any]]
    batch: int
    workers: int = 0
    stable: bool = True


CASES: dict[str, Case] = {
    "convolution": Case(Convolution, lambda: Images((3, 32, 32), 10, 0, 0), 32),
    "transformer": Case(Transformer, lambda: Tokens(1000, 32, 4), 16),
    "recurrent": Case(Recurrent, lambda: Tokens(1000, 24, 4), 16),
    "embedding-heavy": Case(EmbeddingHeavy, lambda: Tokens(40_000, 20, 4), 32),
    "data-bound": Case(Convolution, lambda: Images((3, 32, 32), 10, 0.08, 0), 32, workers=1),
    "data-bound, in line": Case(Convolution, lambda: Images((3, 32, 32), 10, 0.03, 0), 32),
    "tiny": Case(Tiny, lambda: Images((3, 4, 4), 10, 0, 0), 32),
    "unstable, in line": Case(
        Convolution, lambda: Images((3, 32, 32), 10, 0.005, 0.08), 32, stable=False
    ),
    "unstable, beside": Case(
        Convolution, lambda: Images((3, 32, 32), 10, 0.005, 0.25), 32, workers=1, stable=False
    ),
}
