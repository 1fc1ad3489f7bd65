"""The measurements of a run: the content of run.json, as frozen data. Durations are
integer ns.

What is read may come from anybody, so nothing in it is trusted. Among it are guesses
such as `kernels=5 gemm=3`, compared with what a step really ran: the kinds are defined
in `gpu.kinds`, the counting in `analysis.questions.computing`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import orjson

from fusetui.analysis.questions.computing import Tallies
from fusetui.gpu.kinds import KINDS
from fusetui.text.cutting import clip

from .errors import CaptureError
from .options import Options

_TERM = re.compile(r"([a-z_]+)=(\d+)\Z")
_FOR_VARIANT = re.compile(r"\s*([\w.-]+)\s*:")


@dataclass(frozen=True)
class Guess:
    """One term of a guess and what was found: a number per step, or one for a whole
    trace."""

    kind: str
    expected: int
    found: tuple[int, ...]

    @property
    def right(self) -> bool:
        """Whether the guess is right, for every step."""
        return all(count == self.expected for count in self.found)

    @property
    def said(self) -> str:
        """What was found: one number, or all of them if steps differ."""
        return ", ".join(
            map(str, self.found if len(set(self.found)) > 1 else self.found[:1])
        )


def parse(guess: str) -> dict[str, int]:
    """`kernels=5 gemm=3` -> counts by kind. Raises CaptureError for an invalid
    guess."""
    found: dict[str, int] = {}
    for term in guess.replace(",", " ").split():
        match = _TERM.match(term)
        if term.partition("=")[0] not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise CaptureError(
                f"'{term}' is not a guess such as gemm=3: use one of {known}."
            )
        if not match:
            raise CaptureError(
                f"'{term}' is not a guess: give a whole number, as in gemm=3."
            )
        found[match[1]] = int(match[2])
    if not found:
        raise CaptureError('The guess is empty: try --expect "kernels=5 gemm=3".')
    return found


def parse_for(
    guesses: Iterable[str], variants: Sequence[str]
) -> dict[str, dict[str, int]]:
    """The guesses of each variant: `gemm=3` applies to all of them, `eager: gemm=3` to
    one. Raises CaptureError for an unknown variant or an invalid guess."""
    found: dict[str, dict[str, int]] = {name: {} for name in variants}
    for guess in guesses:
        match = _FOR_VARIANT.match(guess)
        if match and match[1] not in found:
            raise CaptureError(
                f"--expect names '{match[1]}', which is not among the variants run."
            )
        terms = parse(guess[match.end() :] if match else guess)
        for name in [match[1]] if match else variants:
            found[name] |= terms
    return found


def compare(expected: Mapping[str, int], counted: Tallies) -> tuple[Guess, ...]:
    """Every term of a guess, with what was counted."""
    return tuple(
        Guess(kind, count, counted.found(kind)) for kind, count in expected.items()
    )


def guess_lines(variant: str, guesses: Sequence[Guess]) -> list[str]:
    """`= eager kernels: guess 5, found 5`, with a `!` in front of a wrong guess."""
    return [
        f"{'=' if g.right else '!'} {variant} {g.kind}: guess {g.expected}, found {g.said}"
        for g in guesses
    ]


RECORD_NAME = "run.json"
LARGEST = 16 << 20
"""The most bytes of one of our JSON files; a run of a hundred variants takes 100 kB."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0)

T = TypeVar("T")

FORMAT = 2  # version of run.json; incremented when a key changes its meaning


@dataclass(frozen=True)
class StepTime:
    """Time of one step with the profiler off, in ns, over n samples."""

    median: int
    p10: int
    p90: int
    n: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A variant that ran.

    `step_ns` is null if no step ran with the profiler off. `compile_ns` is the time of
    the first call of a variant that compiles something, or null; `compile_cached` says
    whether the compiler's cache on disk was used, `recompilations` how many graphs were
    compiled after the first call. `peak_memory_bytes` is the most that was allocated on
    the GPU during timing, including weights, or null on a CPU; `weight_bytes` are the
    parameters and buffers of this variant. `max_error` is the largest absolute error of
    the result, `max_gradient_error` that of any gradient as a share of its largest
    value. `settled`: step times were stable when timing began. `files` are names inside
    the run folder.
    """

    name: str
    step_ns: StepTime | None
    compile_ns: int | None = None
    compile_cached: bool | None = None
    peak_memory_bytes: int | None = None
    max_error: float | None = None
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
    `skipped`: it cannot run on this machine, and was not selected by name."""

    name: str
    failed: str
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of a workload. `shapes_shrunk`: the CPU's defaults were used for some
    axis.

    `options` are the given options. `backward`: a step is a forward and a backward
    pass. `mode` is that of torch.compile. `provenance` says where and how the run was
    made, null for what could not be read.
    """

    format: int
    created: str
    workload: str
    summary: str
    shapes: Mapping[str, int]
    shapes_shrunk: bool = False
    dtype: str = ""
    device: str
    device_kind: str
    versions: Mapping[str, str | None]
    seed: int = 0
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
        return tuple(
            v for v in self.variants if isinstance(v, Failed) and not v.skipped
        )


@dataclass(frozen=True)
class RunOutcome:
    """The folder that was written, whether every guess was right, and what failed.
    `failed` names variants, and in a sweep the point before each."""

    folder: Path
    right: bool
    failed: tuple[str, ...] = ()


class ListedVariant(msgspec.Struct, frozen=True):
    """The fields of a variant that are needed to open its traces."""

    name: str = ""
    files: tuple[str, ...] | None = ()


class Traces(msgspec.Struct, frozen=True):
    """The traces listed in run.json: (variant, file); and a sentence for each that is
    ignored."""

    found: tuple[tuple[str, Path], ...]
    ignored: tuple[str, ...]


class SavedVariant(msgspec.Struct, frozen=True):
    """A variant of a run, with the fields that are shown again. See `Measured` and
    `Failed`."""

    name: str
    step_ns: StepTime | None = None
    kernels_per_step: float | None = None
    weight_bytes: int | None = None
    max_error: float | None = None
    compile_ns: int | None = None
    guesses: tuple[Guess, ...] = ()
    failed: str | None = None
    skipped: bool = False


class SavedRun(msgspec.Struct, frozen=True):
    """A run, with the fields that are shown again. See `RunRecord`."""

    workload: str
    shapes: dict[str, int]
    dtype: str
    device: str
    device_kind: str
    variants: Annotated[tuple[SavedVariant, ...], msgspec.Meta(min_length=1)]
    backward: bool = False
    mode: str | None = None


class _Listing(msgspec.Struct, frozen=True):
    variants: tuple[ListedVariant, ...]


def read_run(folder: Path) -> SavedRun:
    """Reads run.json. Raises CaptureError if it is missing or does not have our
    form."""
    return _read(folder, SavedRun)


def trace_files(folder: Path) -> Traces:
    """The trace files of a run that lie in its folder, in the order of the run. Raises
    CaptureError if the folder has no run.json that lists variants."""
    listed = [
        (variant.name, name)
        for variant in _read(folder, _Listing).variants
        for name in variant.files or ()
    ]
    wrong = {name: reason for _, name in listed if (reason := why_not(folder, name))}
    ignored = [
        f"{folder / RECORD_NAME} lists '{clip(name, 60, '...')}', which {reason}: it is ignored."
        for name, reason in wrong.items()
    ]
    found = [(variant, folder / name) for variant, name in listed if name not in wrong]
    return Traces(tuple(found), tuple(ignored))


def why_not(folder: Path, name: str) -> str | None:
    """Why a file must not be opened: it must be a regular one inside the folder, links
    followed."""
    try:
        # ValueError for an impossible name
        real = Path(os.path.realpath(folder / name))
        if not real.is_relative_to(os.path.realpath(folder)):
            return "leads out of the folder"
        regular = stat.S_ISREG(os.stat(folder / name).st_mode)
    except OSError as error:
        return f"cannot be opened ({(error.strerror or str(error)).lower()})"
    except ValueError:
        return "is not a file name"
    return None if regular else "is no regular file"


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises CaptureError, also for what is no file or too
    large."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # not even opened: that could block
            raise OSError("it is no regular file")
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAIT)
        ) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OSError(f"it is larger than {LARGEST >> 20} MiB")
    except OSError as error:
        raise CaptureError(f"Cannot read {path}: {error.strerror or error}.") from error
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise CaptureError(f"{path} is not JSON: {error}.") from error


def _read(folder: Path, kind: type[T]) -> T:
    path = folder / RECORD_NAME
    try:
        return msgspec.convert(read_json(path), kind)
    except msgspec.ValidationError as error:
        raise CaptureError(
            f"{path} is not the record of a fusetui run: {error}."
        ) from error
