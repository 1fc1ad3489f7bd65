"""Ten small training loops for the CPU, each with something slow that can be left out.

A function that is named after its loop makes the step of the loop: with `slow` as it
is, without it as if a change of `fusetui whatif` had been made.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

Step = Callable[[], None]
LIBRARY = torch.library.Library("slow", "DEF")
LIBRARY.define("wait(Tensor x, float ms) -> Tensor")
LIBRARY.define("work(Tensor x, float ms) -> Tensor")


def _wait(x: torch.Tensor, ms: float) -> torch.Tensor:
    time.sleep(ms / 1000)
    return x.clone()


def _work(x: torch.Tensor, ms: float) -> torch.Tensor:
    """Keep the processor busy for `ms`, in long calls of built-in functions, so that
    recorded stacks stay small. Returns a copy of `x`."""
    until = time.perf_counter() + ms / 1000
    while time.perf_counter() < until:
        sum(range(2000))
    return x.clone()


LIBRARY.impl("wait", _wait, "CPU")
LIBRARY.impl("work", _work, "CPU")


class Sleepy(torch.autograd.Function):  # type: ignore[misc]
    """Sleeps in forward or in backward."""

    @staticmethod
    def forward(
        context: Any, x: torch.Tensor, forward_ms: float, backward_ms: float
    ) -> Any:
        context.ms = backward_ms
        time.sleep(forward_ms / 1000)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        time.sleep(context.ms / 1000)
        return gradients[0], None, None


class Augment(nn.Module):  # type: ignore[misc]
    """A layer that works in Python and changes nothing."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self.ms = ms

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0 * torch.ops.slow.work(x.detach(), self.ms)


class Random(Dataset):  # type: ignore[misc]
    """Each item takes a while."""

    def __init__(self, ms: float, shape: tuple[int, ...]) -> None:
        self.ms = ms
        self.shape = shape

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.ms / 1000)
        return torch.full(self.shape, float(index % 7))


def _mlp(width: int = 512, *before_last: nn.Module) -> nn.Sequential:
    """Return a small network of linear layers, with `before_last` in front of the last
    one."""
    return nn.Sequential(
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.GELU(),
        *before_last,
        nn.Linear(width, 10),
    )


def _conv() -> nn.Sequential:
    """Return a small network of convolutions for images of three channels."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def _encoder() -> nn.Sequential:
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0)
    return nn.Sequential(
        nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(128 * 32, 10)
    )


def _trained(
    model: nn.Module,
    batches: Callable[[], torch.Tensor],
    adam: bool = False,
    before: Callable[[torch.Tensor], None] | None = None,
    last: Callable[[torch.Tensor], torch.Tensor] | None = None,
    after: Callable[[torch.Tensor], None] | None = None,
) -> Step:
    """Return a step of training: `before` on the batch, forward, `last` on its result,
    backward, the optimizer, `after` on the loss. `batches` returns the next batch."""
    optimizer: torch.optim.Optimizer
    if adam:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        batch = batches()
        if before is not None:
            before(batch)

        optimizer.zero_grad()

        out = model(batch)
        if last is not None:
            out = last(out)

        loss = out.square().mean()
        loss.backward()
        optimizer.step()

        if after is not None:
            after(loss.detach())

    return step


def _always(*shape: int) -> Callable[[], torch.Tensor]:
    """Return a function that returns the same random batch each time."""
    batch = torch.randn(*shape)
    return lambda: batch


def _op(name: str, ms: float, times: int = 1) -> Callable[[torch.Tensor], None]:
    """Return a function that calls one of our ops, of `ms` each, so many times. It
    calls none if `ms` is 0."""

    def call(x: torch.Tensor) -> None:
        small = x.detach().flatten()[:16]
        for _ in range(times if ms else 0):
            getattr(torch.ops.slow, name)(small, ms)

    return call


def metrics(slow: bool) -> Step:
    """Return a step after which metrics sleep in one op, if `slow`."""
    return _trained(_mlp(), _always(256, 512), after=_op("wait", 20 * slow))


def many_calls(slow: bool) -> Step:
    """Return a step with forty short calls of one op before forward, which take no time
    unless `slow`."""
    return _trained(_conv(), _always(12, 3, 48, 48), before=_op("work", 0.5 * slow, 40))


def half(slow: bool) -> Step:
    """Return a step with an op that is twice as long if `slow`."""
    return _trained(
        _encoder(), _always(12, 32, 128), after=_op("wait", 40 if slow else 20)
    )


def forward(slow: bool) -> Step:
    """Return a step in which an autograd function sleeps in forward; without `slow`
    there is none."""
    last = (lambda x: Sleepy.apply(x, 25.0, 0.0)) if slow else None
    return _trained(_mlp(), _always(256, 512), adam=True, last=last)


def backward(slow: bool) -> Step:
    """Return a step in which an autograd function sleeps in backward; without `slow`
    there is none."""
    last = (lambda x: Sleepy.apply(x, 0.0, 25.0)) if slow else None
    return _trained(_conv(), _always(12, 3, 48, 48), last=last)


def module(slow: bool) -> Step:
    """Return a step of a model with a layer that works in Python, if `slow`."""
    layers = [Augment(20.0)] if slow else []
    return _trained(_mlp(512, *layers), _always(256, 512))


def modules(slow: bool) -> Step:
    """Return a step of a transformer's encoder with three layers that work in Python,
    if `slow`."""
    layers = [Augment(8.0) for _ in range(3)] if slow else []
    return _trained(nn.Sequential(*layers, *_encoder()), _always(12, 32, 128))


def annotated(slow: bool) -> Step:
    """Return a step after which the program sleeps in a range that it records itself,
    if `slow`."""

    def log(x: torch.Tensor) -> None:
        if slow:
            with record_function("log metrics"):
                time.sleep(0.02)

    return _trained(_mlp(), _always(256, 512), after=log)


def loader(slow: bool) -> Step:
    """Return a step that makes its batch itself if `slow`; otherwise two workers make
    the batches."""
    data = Random(2.0, (3, 48, 48))
    batches: Iterator[torch.Tensor] = iter(
        DataLoader(data, 10, num_workers=0 if slow else 2)
    )
    return _trained(_conv(), lambda: next(batches))


def prefetched(slow: bool) -> Step:
    """Return a step that waits at a queue for a batch of another thread, which sleeps
    before each batch if `slow`."""
    ready: queue.Queue[torch.Tensor] = queue.Queue(1)
    batch = torch.randn(12, 3, 48, 48)

    def produce() -> None:
        while True:
            if slow:
                torch.ops.slow.wait(batch[0, 0, 0], 60.0)
            ready.put(batch)

    threading.Thread(target=produce, daemon=True).start()
    return _trained(_conv(), ready.get)


class Case(NamedTuple):
    """A loop, the change of `fusetui whatif` that takes what is slow away, and whether
    stacks are recorded."""

    make: Callable[[bool], Step]
    change: str
    stacks: bool = False


CASES = (
    Case(metrics, "op:slow::wait x0"),
    Case(many_calls, "op:slow::work x0"),
    Case(half, "op:slow::wait x0.5"),
    Case(forward, "op:Sleepy x0"),
    Case(backward, "op:SleepyBackward x0"),
    Case(module, "module:Augment x0", stacks=True),
    Case(modules, "module:Augment x0", stacks=True),
    Case(annotated, "module:log metrics x0"),
    Case(loader, "loader:workers=2"),
    Case(prefetched, "op:slow::wait x0"),
)
