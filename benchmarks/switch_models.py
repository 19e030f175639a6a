"""The eight models of Hare's table 3 as executor jobs, from the libraries that are known for them.

torchvision, transformers, torchaudio and torch-geometric, of which a model needs its own alone.
Weights and batches are random: what a switch costs hangs on sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from job_wrappers.executor import Work

Made = tuple[Any, Callable[[], Any], Callable[[Any, Any], Any]]
"""A model, what draws a batch on the host, and the loss of both."""


def work(model: str) -> Work:
    """Make one of the models; a job's function."""
    import torch

    net, batch, loss = MODELS[model]()
    return Work(net, lambda p: torch.optim.SGD(p, lr=1e-4), lambda *_: batch(), loss)


def _images(name: str, pixels: int) -> Made:
    import torch
    import torchvision

    more = {"aux_logits": False, "init_weights": False} if name == "inception_v3" else {}
    net = getattr(torchvision.models, name)(**more)
    return net, lambda: (torch.randn(32, 3, pixels, pixels), torch.randint(1000, (32,))), _classes


def _bert() -> Made:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    def loss(net: Any, batch: Any) -> Any:
        return net(batch[0], labels=batch[1]).loss

    net = BertForSequenceClassification(BertConfig())
    return net, lambda: (torch.randint(30_000, (32, 128)), torch.randint(2, (32,))), loss


def _transformer() -> Made:
    """Vaswani et al. 2017, base, with 32,000 words."""
    import torch
    from torch import nn

    net = nn.ModuleDict(
        {
            "words": nn.Embedding(32_000, 512),
            "body": nn.Transformer(batch_first=True),
            "out": nn.Linear(512, 32_000),
        }
    )

    def loss(net: Any, batch: Any) -> Any:
        source, target = (net["words"](words) for words in batch)
        return nn.functional.cross_entropy(
            net["out"](net["body"](source, target)).flatten(0, 1), batch[1].flatten()
        )

    return net, lambda: tuple(torch.randint(32_000, (32, 64)) for _ in range(2)), loss


def _deepspeech() -> Made:
    import torch
    from torchaudio.models import DeepSpeech

    net = DeepSpeech(161, n_class=29)
    return net, lambda: (torch.randn(16, 1, 300, 161), torch.randint(29, (16, 300))), _steps


def _steps(net: Any, batch: Any) -> Any:
    from torch.nn.functional import nll_loss

    return nll_loss(net(batch[0]).flatten(0, 1), batch[1].flatten())


def _classes(net: Any, batch: Any) -> Any:
    from torch.nn.functional import cross_entropy

    return cross_entropy(net(*batch[:-1]), batch[-1])


def _graph(name: str) -> Made:
    """Two layers of 256 on 20,000 nodes, with features and classes as many as Reddit has.

    FastGCN's own sampling is none of the model: it stands here as a plain GCN.
    """
    import torch
    import torch_geometric

    net = getattr(torch_geometric.nn, name)(602, 256, 2, 41)

    def batch() -> Any:
        edges = torch.randint(20_000, (2, 200_000))
        return torch.randn(20_000, 602), edges, torch.randint(41, (20_000,))

    return net, batch, _classes


MODELS: dict[str, Callable[[], Made]] = {
    "VGG19": lambda: _images("vgg19", 224),
    "ResNet50": lambda: _images("resnet50", 224),
    "InceptionV3": lambda: _images("inception_v3", 299),
    "GraphSAGE": lambda: _graph("GraphSAGE"),
    "BERT": _bert,
    "Transformer": _transformer,
    "DeepSpeech": _deepspeech,
    "FastGCN": lambda: _graph("GCN"),
}
