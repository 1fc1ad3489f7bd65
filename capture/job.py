"""What is run: the variants of a workload or of the user's build function, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .step import Answer


@dataclass(frozen=True)
class Trial:
    """One variant. `build` makes the callable; `unable` says why it cannot run here, if so.

    `compiles`: its first call compiles something, with torch.compile or Triton.
    """

    name: str
    build: Callable[[], Callable[..., Any]]
    copies: Sequence[Sequence[Any]] = ((),)
    compiles: bool = False
    unable: str | None = None


@dataclass(frozen=True)
class Job:
    """The trials of one run and what they have in common.

    `reference` is the right answer, in float32, which every trial must give; without one, the
    others are compared with the first trial's answer, for information only. `gradient` is that of
    the result in a backward pass. `keeps_gradients`: the user's functions decide about autograd
    themselves.
    """

    workload: str
    summary: str
    shapes: Mapping[str, int]
    shapes_shrunk: bool
    dtype: str
    label: str
    trials: Sequence[Trial]
    backward: bool
    keeps_gradients: bool
    reference: Answer | None = None
    gradient: Any = None
