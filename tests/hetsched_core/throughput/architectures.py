"""Networks counted layer by layer, as obviously right twins of figures in `profiles.toml`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Of the layers added so far, for one sample: parameters, multiply-accumulates, outputs."""

    parameters: int = 0
    macs: int = 0
    activations: int = 0

    def conv(
        self, inputs: int, outputs: int, kernel: int, size: int, *, groups: int = 1, bias: int = 0
    ) -> None:
        """Add a convolution without normalisation; `size` is the side of its output."""
        weights = inputs // groups * outputs * kernel**2
        self.parameters += weights + outputs * bias
        self.macs += weights * size**2
        self.activations += outputs * size**2

    def norm(self, channels: int) -> None:
        """Add a normalisation."""
        self.parameters += 2 * channels

    def conv_norm(
        self, inputs: int, outputs: int, kernel: int, size: int, *, groups: int = 1
    ) -> None:
        """Add a convolution and its normalisation."""
        self.conv(inputs, outputs, kernel, size, groups=groups)
        self.norm(outputs)

    def linear(self, inputs: int, outputs: int, positions: int = 1) -> None:
        """Add a linear layer with bias."""
        self.parameters += (inputs + 1) * outputs
        self.macs += inputs * outputs * positions
        self.activations += outputs * positions


def resnet(depths: tuple[int, ...], *, bottleneck: bool, image: int, classes: int) -> Counts:
    """He et al. 2016; images of 32 get a 3x3 stem of stride 1."""
    net, inputs = Counts(), 64
    if image == 32:
        size = image
        net.conv_norm(3, inputs, 3, size)
    else:
        net.conv_norm(3, inputs, 7, image // 2)
        size = image // 4
    for stage, depth in enumerate(depths):
        width = 64 << stage
        outputs = width * (4 if bottleneck else 1)
        for block in range(depth):
            before, size = size, size // 2 if stage and not block else size
            if bottleneck:
                net.conv_norm(inputs, width, 1, before)
                net.conv_norm(width, width, 3, size)
                net.conv_norm(width, outputs, 1, size)
            else:
                net.conv_norm(inputs, width, 3, size)
                net.conv_norm(width, width, 3, size)
            if inputs != outputs:
                net.conv_norm(inputs, outputs, 1, size)
            inputs = outputs
    net.linear(inputs, classes)
    return net


def vgg(depths: tuple[int, ...], *, image: int, classes: int) -> Counts:
    """Simonyan and Zisserman 2015; images of 32 get normalisation and one linear layer."""
    net, inputs, size = Counts(), 3, image
    for stage, depth in enumerate(depths):
        width = min(512, 64 << stage)
        for _ in range(depth):
            net.conv(inputs, width, 3, size, bias=1)
            if image == 32:
                net.norm(width)
            inputs = width
        size //= 2
    if image == 32:
        net.linear(512, classes)
    else:
        net.linear(512 * size**2, 4096)
        net.linear(4096, 4096)
        net.linear(4096, classes)
    return net


def mobilenet_v2(*, image: int, classes: int) -> Counts:
    """Sandler et al. 2018; images of 32 keep their size in the stem and the second stage."""
    net, inputs = Counts(), 32
    small = image == 32
    size = image if small else image // 2
    net.conv_norm(3, inputs, 3, size)
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 1 if small else 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, outputs, depth, stride in stages:
        for block in range(depth):
            before, size = size, size // (1 if block else stride)
            hidden = inputs * expansion
            if expansion > 1:
                net.conv_norm(inputs, hidden, 1, before)
            net.conv_norm(hidden, hidden, 3, size, groups=hidden)
            net.conv_norm(hidden, outputs, 1, size)
            inputs = outputs
    net.conv_norm(inputs, 1280, 1, size)
    net.linear(1280, classes)
    return net


def densenet161(*, image: int, classes: int) -> Counts:
    """Huang et al. 2017; images of 32 get a 3x3 stem of stride 1."""
    net, growth, channels = Counts(), 48, 96
    if image == 32:
        size = image
        net.conv(3, channels, 3, size)
    else:
        net.conv_norm(3, channels, 7, image // 2)
        size = image // 4
    for stage, depth in enumerate((6, 12, 36, 24)):
        if stage:
            net.norm(channels)
            net.conv(channels, channels // 2, 1, size)
            channels, size = channels // 2, size // 2
        for _ in range(depth):
            net.norm(channels)
            net.conv_norm(channels, 4 * growth, 1, size)
            net.conv(4 * growth, growth, 3, size)
            channels += growth
    net.norm(channels)
    net.linear(channels, classes)
    return net


def convnext_base(*, image: int, classes: int) -> Counts:
    """Liu et al. 2022, patches of 4x4."""
    net, inputs, size = Counts(), 3, image // 4
    for stage, depth in enumerate((3, 3, 27, 3)):
        width = 128 << stage
        if stage:
            size //= 2
            net.norm(inputs)
            net.conv(inputs, width, 2, size, bias=1)
        else:
            net.conv(inputs, width, 4, size, bias=1)
            net.norm(width)
        for _ in range(depth):
            net.conv(width, width, 7, size, groups=width, bias=1)
            net.norm(width)
            net.linear(width, 4 * width, size**2)
            net.linear(4 * width, width, size**2)
            net.parameters += width  # the scale of the layer
        inputs = width
    net.norm(inputs)
    net.linear(inputs, classes)
    return net


def regnety_3_2gf(*, image: int, classes: int) -> Counts:
    """Radosavovic et al. 2020; images of 32 get a stem of stride 1."""
    net, inputs, size = Counts(), 32, image if image == 32 else image // 2
    net.conv_norm(3, inputs, 3, size)
    for depth, width in ((2, 72), (5, 216), (13, 576), (1, 1512)):
        for block in range(depth):
            before, size = size, size if block else size // 2
            net.conv_norm(inputs, width, 1, before)
            net.conv_norm(width, width, 3, size, groups=width // 24)
            squeezed = round(inputs / 4)
            net.conv(width, squeezed, 1, 1, bias=1)
            net.conv(squeezed, width, 1, 1, bias=1)
            net.conv_norm(width, width, 1, size)
            if not block:
                net.conv_norm(inputs, width, 1, size)
            inputs = width
    net.linear(inputs, classes)
    return net


def transformer(
    tokens: int, width: int, *, encoder: int = 0, decoder: int = 0, vocabulary: int = 0
) -> Counts:
    """Vaswani et al. 2017: blocks of attention and of two linear layers, four times as wide.

    `vocabulary` is that of the output layer, whose weights are those of the embedding.
    """
    net = Counts()
    for attentions in (1,) * encoder + (2,) * decoder:
        for _ in range(attentions):
            for _ in ("query", "key", "value", "output"):
                net.linear(width, width, tokens)
            net.macs += 2 * tokens**2 * width  # scores, and their weighted sum
        net.linear(width, 4 * width, tokens)
        net.linear(4 * width, width, tokens)
        for _ in range(attentions + 1):
            net.norm(width)
    net.parameters += width * vocabulary
    net.macs += tokens * width * vocabulary
    net.activations += tokens * vocabulary
    return net


def lstm_language_model(tokens: int, width: int, *, layers: int, vocabulary: int) -> Counts:
    """Zaremba et al. 2014, embedding and output layer apart, as in pytorch/examples."""
    net = Counts()
    net.parameters += width * vocabulary
    for _ in range(layers):
        net.linear(2 * width, 4 * width, tokens)
    net.linear(width, vocabulary, tokens)
    return net
