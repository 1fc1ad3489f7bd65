"""The measurements of a run: the content of run.json, as frozen data. Durations are integer ns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .expect import Guess
from .options import Options

FORMAT = 2
"""Version of run.json; incremented when a key changes its meaning."""


@dataclass(frozen=True)
class StepTime:
    """Time of one step with the profiler off, in ns, over n samples."""

    median: int
    p10: int
    p90: int
    n: int


@dataclass(frozen=True)
class Measured:
    """A variant that ran.

    `step_ns` is null if no step ran with the profiler off. `compile_ns` is the time of the first
    call of a variant that compiles something, or null; `compile_cached` says whether the compiler's
    cache on disk was used, `recompilations` how many graphs were compiled after the first call.
    `peak_memory_bytes` is the most that was allocated on the GPU during timing, including weights,
    or null on a CPU; `weight_bytes` are the parameters and buffers of this variant. `max_error` is
    the largest absolute error of the result, `max_gradient_error` that of any gradient as a share
    of its largest value. `settled`: step times were stable when timing began. `files` are names
    inside the run folder.
    """

    name: str
    step_ns: StepTime | None
    compile_ns: int | None
    compile_cached: bool | None
    peak_memory_bytes: int | None
    max_error: float | None
    kernels_per_step: float
    files: tuple[str, ...]
    max_gradient_error: float | None = None
    recompilations: int | None = None
    weight_bytes: int | None = None
    warm_up_steps: int = 0
    settled: bool = True
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class Failed:
    """A variant that did not run or gave a wrong result: why, in one sentence.

    `skipped`: it cannot run on this machine, and was not selected by name.
    """

    name: str
    failed: str
    skipped: bool = False


@dataclass(frozen=True)
class RunRecord:
    """One run of a workload. `shapes_shrunk`: the CPU's defaults were used for some axis.

    `options` are the given options. `backward`: a step is a forward and a backward pass. `mode` is
    that of torch.compile. `provenance` says where and how the run was made, null for what could not
    be read.
    """

    format: int
    created: str
    workload: str
    summary: str
    shapes: Mapping[str, int]
    shapes_shrunk: bool
    dtype: str
    device: str
    device_kind: str
    versions: Mapping[str, str | None]
    seed: int
    profiled_steps: int
    variants: tuple[Measured | Failed, ...]
    options: Options = field(default_factory=Options)
    backward: bool = False
    mode: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """The variants that ran, in the requested order."""
        return tuple(v for v in self.variants if isinstance(v, Measured))

    @property
    def failed(self) -> tuple[Failed, ...]:
        """The variants that failed, without those that were skipped."""
        return tuple(v for v in self.variants if isinstance(v, Failed) and not v.skipped)

    @property
    def guessed_right(self) -> bool:
        """Whether every guess was right; True if there were none."""
        return all(guess.right for variant in self.measured for guess in variant.guesses)


@dataclass(frozen=True)
class Outcome:
    """The folder that was written, whether every guess was right, and what failed.

    `failed` names variants, and in a sweep the point before each.
    """

    folder: Path
    right: bool
    failed: tuple[str, ...] = ()
