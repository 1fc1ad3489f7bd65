"""Five small programs for the CPU, whose ops `fusetui reproduce` makes again: a function
that is named after its program makes its step."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import nn

Step = Callable[[], None]


def mlp() -> Step:
    """Return a step of inference of three linear layers with norms."""
    model = nn.Sequential(
        nn.Linear(512, 2048),
        nn.GELU(),
        nn.LayerNorm(2048),
        nn.Linear(2048, 512),
        nn.Dropout(),
        nn.Softmax(dim=-1),
    ).eval()
    x = torch.randn(64, 512)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def attention() -> Step:
    """Return a step of causal attention with heads side by side, so that its inputs are
    not contiguous. It is computed once more by its formula, with a mask."""
    projection = nn.Linear(256, 3 * 256)
    x = torch.randn(4, 128, 256)
    mask = torch.ones(128, 128, dtype=torch.bool).tril()

    def step() -> None:
        with torch.no_grad():
            parts = projection(x).view(4, 128, 3, 8, 32).permute(2, 0, 3, 1, 4)
            query, key, value = parts.unbind(0)
            functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            scores = query @ key.transpose(-2, -1) / 32**0.5
            scores = scores.masked_fill(~mask, float("-inf"))
            output = scores.softmax(-1) @ value
            output.transpose(1, 2).reshape(4, 128, 256)

    return step


def convolution() -> Step:
    """Return a step of inference of a small network in channels-last layout."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, stride=2, groups=2),
        nn.GroupNorm(8, 64),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(8, 3, 64, 64).to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad():
            model(x).argmax(1)

    return step


def embeddings() -> Step:
    """Return a training step of two embeddings, one of them a bag, with Adam."""
    words = nn.Embedding(5000, 64)
    bags = nn.EmbeddingBag(2000, 64, mode="sum")
    head = nn.Linear(64, 5000)
    parameters = [*words.parameters(), *bags.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters)
    tokens = torch.randint(0, 5000, (128,))
    members = torch.randint(0, 2000, (512,))
    starts = torch.arange(0, 512, 4)

    def step() -> None:
        optimizer.zero_grad()
        chosen = words(tokens) + bags(members, starts)
        logits = head(chosen)[torch.arange(128)]
        functional.cross_entropy(logits, tokens).backward()
        optimizer.step()

    return step


def training() -> Step:
    """Return a training step with SGD of a convolution network with a residual
    connection."""
    first = nn.Conv2d(3, 32, 3, padding=1)
    norm = nn.BatchNorm2d(32)
    second = nn.Conv2d(32, 32, 3, padding=1)
    head = nn.Linear(32, 10)
    modules = nn.ModuleList([first, norm, second, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(16, 3, 32, 32)
    target = torch.randint(0, 10, (16,))

    def step() -> None:
        optimizer.zero_grad()
        y = norm(first(x)).relu()
        y = (second(y) + y).mean((2, 3))
        functional.cross_entropy(head(y), target).backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "mlp": mlp,
    "attention": attention,
    "convolution": convolution,
    "embeddings": embeddings,
    "training": training,
}
