"""What a capture can be asked for, and the choices that need no torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .defaults import STEPS
from .errors import CaptureError

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes of torch.compile."""


@dataclass(frozen=True)
class Recording:
    """What the profiler records: `steps` steps, with Python stacks, input shapes, allocations."""

    steps: int = STEPS
    stack: bool = False
    shapes: bool = True
    memory: bool = False
    scrub: bool = False


@dataclass(frozen=True)
class Options:
    """The options of one capture, as the user gave them.

    `shapes` are arguments such as `--batch 32`. `backward` measures the training step, forward and
    backward, without an optimizer. `mode` is torch.compile's. `expect` holds guesses such as
    `kernels=5 gemm=3` or `eager: kernels=5`. `seconds` is the time spent on timing each variant.
    """

    variants: Sequence[str] = ()
    device: str = "auto"
    dtype: str | None = None
    shapes: Sequence[str] = ()
    backward: bool = False
    mode: str | None = None
    expect: Sequence[str] = ()
    seconds: float = 1.0
    recording: Recording = Recording()


def validate(options: Options) -> None:
    """Raises CaptureError for a number of steps, a time or a mode that cannot be."""
    if options.recording.steps < 1:
        raise CaptureError(f"--steps must be at least 1, not {options.recording.steps}.")
    if not options.seconds > 0:
        raise CaptureError(f"--seconds must be more than 0, not {options.seconds:g}.")
    if options.mode is not None and options.mode not in MODES:
        raise CaptureError(f"unknown mode '{options.mode}': it can be {', '.join(MODES)}.")


def choose(owner: str, known: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The variants asked for, each once, or all. Raises CaptureError for an unknown one."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise CaptureError(f"{owner} has no variant '{unknown[0]}': it has {', '.join(known)}.")
    return tuple(dict.fromkeys(wanted or known))
